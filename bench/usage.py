"""What a tree of processes uses while something runs: processor time, and memory at its peak.

Read from `/proc`, so on Linux only; elsewhere everything is 0. Memory is looked at ten times a
second: a peak that is shorter than that may go unseen.
"""

import os
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

_PROC = Path("/proc")
_LOOK_S = 0.1
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MB = 1 << 20


@dataclass(frozen=True, slots=True)
class Usage:
    """What our processes used, and what those used that were left out."""

    cpu_s: float = 0.0
    """Processor time, user and system."""
    server_cpu_s: float = 0.0
    """The same of the processes that were left out."""
    python_mb: float = 0.0
    """Of the largest Python process below ours, at its peak."""
    jvm_mb: float = 0.0


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int
    parent: int
    name: str
    cpu_s: float
    memory_mb: float


class Watch:
    """Watches this process and all below it for as long as it is entered."""

    def __init__(self, without: Iterable[int] = ()) -> None:
        """`without` are processes below ours that count apart, such as the server."""
        self._without = frozenset(without)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="watch", daemon=True)
        self._python_mb = self._jvm_mb = 0.0
        self._before = (0.0, 0.0)
        self.usage = Usage()

    def __enter__(self) -> Self:
        """Begin."""
        self._before = self._look()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """End; `usage` is there now."""
        self._over.set()
        self._thread.join()
        # A process that nobody has waited for yet takes its time along; we wait for ours.
        ours_s, theirs_s = (
            max(0.0, now - before) for now, before in zip(self._look(), self._before, strict=True)
        )
        self.usage = Usage(ours_s, theirs_s, self._python_mb, self._jvm_mb)

    def _look_on(self) -> None:
        while not self._over.wait(_LOOK_S):
            self._look()

    def _look(self) -> tuple[float, float]:
        """Note how much memory is in use now; the processor time used so far, ours and theirs."""
        ours_s = theirs_s = 0.0
        for each in _tree(os.getpid()):
            if each.pid in self._without:
                theirs_s += each.cpu_s
                continue
            ours_s += each.cpu_s
            if each.name == "java":
                self._jvm_mb = max(self._jvm_mb, each.memory_mb)
            elif each.name.startswith("python") and each.pid != os.getpid():
                self._python_mb = max(self._python_mb, each.memory_mb)
        return ours_s, theirs_s


def _tree(root: int) -> Iterator[_Process]:
    below: dict[int, list[_Process]] = {}
    found: list[_Process] = []
    for each in _processes():
        below.setdefault(each.parent, []).append(each)
        if each.pid == root:
            found.append(each)
    while found:
        process = found.pop()
        yield process
        found += below.get(process.pid, ())


def _processes() -> Iterator[_Process]:
    for entry in _PROC.glob("[0-9]*/stat"):
        try:
            text = entry.read_text()
        except OSError:  # it has ended meanwhile
            continue
        # The name stands in parentheses and may hold anything.
        head, _, rest = text.rpartition(")")
        pid, _, name = head.partition(" (")
        fields = rest.split()
        # Its own time, user and system, and that of children it has waited for.
        ticks = sum(map(int, fields[11:15]))
        memory_mb = int(fields[21]) * _PAGE_BYTES / _MB
        yield _Process(int(pid), int(fields[1]), name, ticks / _TICKS, memory_mb)
