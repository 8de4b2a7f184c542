"""What the model is made of: jobs, entries, dead letters, recurring specs, units of time."""

from dataclasses import dataclass

START_MS = 1_700_000_000_000
"""What the clocks of producers and schedulers say at the start: years before the server's."""
UNIT_MS = 600_000
"""All times of the model are multiples of this: no real delay of a test can blur them."""
LEASE = 1
GRACE = 6
RESULT_TTL = 6
LOCK_TTL = 6
FOR_ALL = 144
"""So long counts as silent what was handed back."""
MAX_STREAM = 6
MAX_ATTEMPTS = 3
LONGEST_BACKOFF = 4


@dataclass(frozen=True)
class Job:
    """A job as its envelope has it; `serial` stands for its data and `made` for finished runs."""

    id: str
    name: str
    serial: int
    made: int = 0
    attempts: int | None = None
    is_unique: bool = False
    poison: str = ""
    """Why no handler may see it; with an empty id it is no job at all."""

    @property
    def budget(self) -> int:
        return MAX_ATTEMPTS if self.attempts is None else self.attempts


@dataclass(frozen=True)
class Held:
    """Who has an entry: `counted` deliveries, last heard of at `since` (None: given up freely)."""

    consumer: str
    counted: int
    since: int | None


@dataclass
class Entry:
    """One entry of the stream; in nobody's hand it waits."""

    job: Job
    held: Held | None = None
    entry_id: bytes = b""


@dataclass
class Later:
    """A delayed job; `run_at_ms` is by the server's clock and known once it was looked at."""

    job: Job
    due: int
    run_at_ms: int | None = None


@dataclass(frozen=True)
class Letter:
    """A dead letter."""

    job: Job
    reason: str
    attempts: int


@dataclass(frozen=True)
class Ended:
    """What is kept of a job's end: `v`, `n` or `f`, and the value."""

    kind: str
    value: int | None
    until: int


@dataclass(frozen=True)
class Taken:
    """One delivery as the model expects it, and which run it is."""

    entry: Entry
    before: int
    """How often the entry was delivered before."""
    attempt: int
    is_in_hand: bool


@dataclass
class Spec:
    """A recurring job; all times by the schedulers' clock."""

    name: str
    serial: int
    interval_ms: int
    is_cron: bool
    """Its windows lie on the grid of the day; else they are counted from when it was stored."""
    due_ms: int
    missed: tuple[str, int]
    """The policy, and how many windows it makes up for at most."""
    limit: int | None = None
    end_ms: int | None = None
    attempts: int | None = None
    own_id: str | None = None
    is_paused: bool = False
    fired: int = 0

    def plan(self, now_ms: int) -> tuple[list[int], int | None]:
        """The windows that it fires now that it is due, and the next one; None if it has none."""
        passed = list(range(self.due_ms, now_ms + 1, self.interval_ms))
        next_ms = passed[-1] + self.interval_ms
        kind, most = self.missed
        if len(passed) > 1:
            passed = passed[: {"skip": 0, "fire-once": 1, "fire-all": most}[kind]]
        if self.end_ms is None:
            return passed, next_ms
        windows = [window_ms for window_ms in passed if window_ms <= self.end_ms]
        return windows, next_ms if next_ms <= self.end_ms else None


def first_fire(interval_ms: int, now_ms: int, *, is_cron: bool) -> int:
    """When a spec that is stored now fires first."""
    return (now_ms // interval_ms + 1) * interval_ms if is_cron else now_ms + interval_ms
