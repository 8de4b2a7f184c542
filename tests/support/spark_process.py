"""A driver that a test starts, orders about, and kills in part or as a whole."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.support import spark_driver
from tests.support.eventually import eventually_sync

# For what a machine under load takes its time with.
PATIENCE_SECS = 500.0


class SparkProcess:
    """A process of `spark_driver.py`, and all that it started."""

    def __init__(self, config: dict[str, str]) -> None:
        """Start it; its session comes up by and by, orders are kept until then."""
        self._orders: Counter[str] = Counter()
        self._told = tempfile.TemporaryFile()  # noqa: SIM115 -- closed with the process
        self._done = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-m", spark_driver.__name__, json.dumps(config)],
            cwd=Path(spark_driver.__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=self._done,
            stderr=self._told,
            start_new_session=True,
        )

    def order(self, what: str, **facts: Any) -> None:
        """Let it do something."""
        assert self._process.stdin is not None
        self._orders[what] += 1
        self._process.stdin.write(json.dumps({"what": what, **facts}).encode() + b"\n")
        self._process.stdin.flush()

    def until(self, is_so: Callable[[], object]) -> None:
        """Return once it is so; fails, with what the driver said, if it ends or nothing comes."""
        try:
            eventually_sync(lambda: not self.is_running() or is_so(), timeout=PATIENCE_SECS)
        except AssertionError as error:
            message = f"{error}; it said: {self._said()}"
            raise AssertionError(message) from None
        assert self.is_running(), self._said()

    def ask(self, what: str, **facts: Any) -> Any:
        """Let it find something out; what it found."""
        with tempfile.TemporaryDirectory() as folder:
            answer = Path(folder, "answer")
            self.order(what, into=str(answer), **facts)
            self.until(answer.exists)
            return json.loads(answer.read_text())

    def until_done(self, what: str) -> None:
        """Return once all such orders were carried out."""
        line = f"{what}\n".encode()
        self.until(lambda: _text(self._done).splitlines(keepends=True).count(line)
                   == self._orders[what])  # fmt: skip

    def is_running(self) -> bool:
        """Whether the driver lives."""
        return self._process.poll() is None

    def find(self, words: str = "") -> list[int]:
        """Its processes whose command line holds `words`, the oldest first."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                pid = int(path.name)
                if os.getsid(pid) != self._process.pid:
                    continue
                if words in (path / "cmdline").read_bytes().replace(b"\0", b" ").decode():
                    found.append(pid)
        return sorted(found)

    def descendants(self, ancestor: int) -> set[int]:
        """The processes that were started by this one, and by those."""
        parents = {pid: _parent(pid) for pid in self.find()}
        found = {ancestor}
        while more := {pid for pid, parent in parents.items() if parent in found} - found:
            found |= more
        return found - {ancestor}

    def kill(self, *pids: int) -> None:
        """Kill these, or all that it started and itself."""
        self._send(signal.SIGKILL, pids or self.find())
        if not pids:
            self._process.wait()

    def kill_while(self, is_so: Callable[[], object]) -> None:
        """Kill all of it while it is so: it stands still for the last look before."""
        while True:
            self.until(is_so)
            self._send(signal.SIGSTOP, self.find())
            if is_so():
                self.kill()
                return
            self._send(signal.SIGCONT, self.find())

    @staticmethod
    def _send(number: signal.Signals, pids: Iterable[int]) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def close(self) -> None:
        """Kill what is left."""
        self.kill()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._told.close()
        self._done.close()

    def _said(self) -> str:
        return _text(self._told).decode(errors="replace")[-3_000:]


def _parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def _text(file: Any) -> bytes:
    """What stands in a file that another process writes to."""
    return os.pread(file.fileno(), 1 << 20, 0)


@contextlib.contextmanager
def spark_processes() -> Iterator[Callable[[dict[str, str]], SparkProcess]]:
    """A way to start drivers; they are killed in the end."""
    started: list[SparkProcess] = []

    def start(config: dict[str, str]) -> SparkProcess:
        started.append(SparkProcess(config))
        return started[-1]

    try:
        yield start
    finally:
        for process in started:
            process.close()
