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
class Burst:
    """A producer has asked for many jobs at once: so many of its calls are unanswered."""

    us: int
    who: str
    under_way: int


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
class Reviving:
    """A job is about to be sent round again, if it is a dead letter: it may have its runs anew."""

    us: int
    job_id: str


@dataclass(frozen=True, slots=True)
class Revived:
    """The answer to that, which was asked for at `since_us`: None if none came, or not for each."""

    us: int
    since_us: int
    job_id: str
    is_done: bool | None


@dataclass(frozen=True, slots=True)
class Recurs:
    """A recurring job was stored."""

    us: int
    key: str
    every_ms: int
    policy: str
    budget: int = 0


@dataclass(frozen=True, slots=True)
class Fired:
    """An event tells that the job of a window waits: since when, and when the server wrote that.

    The first such event of a job is that of its fire, told by the clock by which the leader chose
    the window; one that comes after a run is that of a retry.
    """

    us: int
    job_id: str
    told_ms: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class Ceased:
    """All recurring jobs were about to be removed: until then they had to fire."""

    us: int


@dataclass(frozen=True, slots=True)
class Born:
    """A process has begun, by how wrong a clock, as it was read there.

    `holder` is its name in the scheduler's lock; empty if it fires no recurring jobs. If it is a
    worker that keeps no results, nothing is left of what it completes.
    """

    us: int
    who: str
    holder: str
    skew_ms: int
    keeps_results: bool = True


@dataclass(frozen=True, slots=True)
class Led:
    """From then to then the scheduler's lock was seen in these hands, and in no other."""

    us: int
    until_us: int
    holder: str


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
    """It has ended, as `how` says: ok, failed, hopeless or cancelled. Not acknowledged yet.

    Whether it returned something, which is to be kept, it says too.
    """

    us: int
    run: str
    how: str
    has_value: bool = False


@dataclass(frozen=True, slots=True)
class Died:
    """A process is gone, or about to be, by SIGKILL: at this step, if it was told to."""

    us: int
    who: str
    step: str = ""


@dataclass(frozen=True, slots=True)
class Cut:
    """From then to then somebody, or everybody, could not work: frozen, starved, cut off."""

    us: int
    until_us: int
    who: str
    why: str


@dataclass(frozen=True, slots=True)
class Blocked:
    """From now, until then, a worker's event loop does nothing else. It excuses no run."""

    us: int
    until_us: int
    who: str


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
    """The nemesis did something, which was begun then, or tried to and could not."""

    us: int
    fault: str
    detail: str = ""
    is_done: bool = True


@dataclass(frozen=True, slots=True)
class Paused:
    """The queue was paused from then, when that was acknowledged, until that was to end.

    It was asked for at `asked_us`, and its end acknowledged at `ended_us`: a server that stands
    still carries out both late, and in any order with what others ask.
    """

    us: int
    until_us: int
    asked_us: int
    ended_us: int


@dataclass(frozen=True, slots=True)
class Poisoned:
    """The nemesis left something in the queue that is no job, to be set aside; or so it seems.

    It is known again by the id of its entry, unless a worker handed it back and it has another
    since, and by its last bytes, in hex. Without an answer of the server it may not be there.
    """

    us: int
    shape: str
    tail: str
    entry_id: str = ""
    is_certain: bool = True


@dataclass(frozen=True, slots=True)
class Found:
    """Afterwards: a job lies at this place, once for each such record.

    Places are `stream`, `delayed`, `dlq` and `completed`. The last says whether what the handler
    returned can be read. Which call's job it was they say if they know, and a dead letter says
    since when it is one.
    """

    job_id: str
    place: str
    has_result: bool = True
    call: str = ""
    ms: int = 0


@dataclass(frozen=True, slots=True)
class SetAside:
    """Afterwards: a dead letter that is no job of ours; its entry, and the last bytes of it."""

    source_id: str
    tail: str


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
    Asked | Burst | Added | Refused | Withdrawing | Withdrawn | Reviving | Revived | Recurs | Fired
    | Born | Led | Started | Ended | Died | Cut | Blocked | Forgotten | Starved | Broke | Paused
    | Poisoned | Found | SetAside | Quiet | Stage | Ceased
)  # fmt: skip
_KINDS = {
    kind.__name__: kind
    for kind in (
        Asked, Burst, Added, Refused, Withdrawing, Withdrawn, Reviving, Revived, Recurs, Fired,
        Born, Led, Started, Ended, Died, Cut, Blocked, Forgotten, Starved, Broke, Paused, Poisoned,
        Found, SetAside, Quiet, Stage, Ceased,
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
    paths = sorted(folder.glob("*.jsonl"))
    return in_order(record for path in paths for record in read_since(path, 0))


def read_since(path: Path, at: int) -> list[Record]:
    """The records of a file behind its first `at` bytes."""
    with path.open("rb") as file:
        file.seek(at)
        added = file.read().decode("utf-8")
    return [from_line(line) for line in _whole(added)]


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


def _whole(text: str) -> Iterator[str]:
    # A process that was killed inside its `write` may have left half of a line, at the end.
    return (line for line in text.splitlines(keepends=True) if line.endswith("\n"))
