"""What happened, as values: one JSON object a line, written by the process that saw it.

A line is one `write` to a file that is opened for appending, without a buffer: it is with the
kernel before the writer goes on, so a SIGKILL costs at most the line that was not begun. What must
not be missing is written first: an intention before the call, a start before the work, an end
before the acknowledgement.

Two clocks. `us` is the machine's monotonic clock, which all processes share: it orders things.
`ms` is the machine's wall clock, which is the servers' clock too, as they run on it.
"""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

from chaos.clocks import now_us

EVERYBODY = "*"


@dataclass(frozen=True, slots=True)
class Asked:
    """A producer is about to add a job; `call` names this one call."""

    us: int
    ms: int
    call: str
    kind: str
    budget: int
    delay_ms: int = 0
    job_id: str = ""


@dataclass(frozen=True, slots=True)
class Added:
    """The server has acknowledged it, or says that the id is taken."""

    us: int
    call: str
    job_id: str
    is_taken: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """An add ended with an error: the job may be there or not, unless that `is_certain`."""

    us: int
    call: str
    error: str
    is_certain: bool = False


@dataclass(frozen=True, slots=True)
class Withdrawing:
    """A job is about to be cancelled or removed: who asks may die before the answer."""

    us: int
    job_id: str


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """A delayed job was cancelled, or a job removed: the answer, or None if none came."""

    us: int
    job_id: str
    is_gone: bool | None


@dataclass(frozen=True, slots=True)
class Recurs:
    """A recurring job was stored."""

    us: int
    key: str
    every_ms: int
    policy: str


@dataclass(frozen=True, slots=True)
class Started:
    """A handler has begun; `run` names this one run."""

    us: int
    ms: int
    run: str
    who: str
    job_id: str
    call: str
    attempt: int
    budget: int


@dataclass(frozen=True, slots=True)
class Ended:
    """It has ended, as `how` says: ok, failed, hopeless or cancelled. Not acknowledged yet."""

    us: int
    run: str
    how: str


@dataclass(frozen=True, slots=True)
class Died:
    """A process is gone, or about to be, by SIGKILL."""

    us: int
    who: str


@dataclass(frozen=True, slots=True)
class Cut:
    """From then to then somebody, or everybody, could not work: frozen, starved, cut off."""

    us: int
    until_us: int
    who: str
    why: str


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The server lost what it knew of deliveries, or, if `since_us`, all it was told since."""

    us: int
    why: str
    since_us: int = 0


@dataclass(frozen=True, slots=True)
class Starved:
    """The server had no memory to give."""

    us: int
    until_us: int


@dataclass(frozen=True, slots=True)
class Broke:
    """The nemesis did something, or tried to and could not."""

    us: int
    fault: str
    detail: str = ""
    is_done: bool = True


@dataclass(frozen=True, slots=True)
class Poisoned:
    """The nemesis left so many things in the queue that are no jobs, each to be set aside."""

    us: int
    shape: str
    count: int


@dataclass(frozen=True, slots=True)
class Found:
    """Afterwards: a job lies at this place, once for each such record.

    Places are `stream`, `delayed`, `dlq` and `completed`. The last says whether what the handler
    returned can be read, and which call's job it says it was, if it says so.
    """

    job_id: str
    place: str
    has_result: bool = True
    call: str = ""


@dataclass(frozen=True, slots=True)
class SetAside:
    """Afterwards: so many dead letters are no jobs of ours."""

    count: int


@dataclass(frozen=True, slots=True)
class Quiet:
    """Afterwards: whether everything was settled in good time, and what did not look right."""

    is_drained: bool
    leftovers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stage:
    """What was played, and where: written once, first."""

    us: int
    seed: int
    server: str
    topology: str
    lease_ms: int


Record: TypeAlias = (
    Asked | Added | Refused | Withdrawing | Withdrawn | Recurs | Started | Ended | Died | Cut
    | Forgotten | Starved | Broke | Poisoned | Found | SetAside | Quiet | Stage
)  # fmt: skip
_KINDS = {
    kind.__name__: kind
    for kind in (
        Asked, Added, Refused, Withdrawing, Withdrawn, Recurs, Started, Ended, Died, Cut, Forgotten,
        Starved, Broke, Poisoned, Found, SetAside, Quiet, Stage,
    )
}  # fmt: skip


class Scroll:
    """A file of records that one process appends to, from any thread."""

    def __init__(self, path: Path) -> None:
        """Open it, new or not."""
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, record: Record) -> None:
        """Append a record; it survives the death of this process from here on."""
        os.write(self._file, (to_line(record) + "\n").encode())

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def to_line(record: Record) -> str:
    """One record as JSON."""
    return json.dumps({"what": type(record).__name__, **asdict(record)})


def read_all(folder: Path) -> list[Record]:
    """Every record of every file, in the order of the clock; those without a time come last."""
    lines = (line for path in sorted(folder.glob("*.jsonl")) for line in _whole_lines(path))
    return in_order(from_line(line) for line in lines)


def in_order(records: Iterable[Record]) -> list[Record]:
    """Records by their time."""
    last = now_us()
    return sorted(records, key=lambda record: getattr(record, "us", last))


def from_line(line: str) -> Record:
    """The record of a line."""
    given = json.loads(line)
    kind = _KINDS[given.pop("what")]
    if kind is Quiet:
        given["leftovers"] = tuple(given["leftovers"])
    made: Record = kind(**given)
    return made


def _whole_lines(path: Path) -> Iterator[str]:
    # A process that was killed inside its `write` may have left half of a line, at the end.
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            yield line
