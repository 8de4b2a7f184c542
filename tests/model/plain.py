"""What a queue promises, in plain Python: no server, no bytes, no scripts, time in whole units.

The machine in `test_machine.py` does the same to this and to a real queue, and compares the two.
Where the promise leaves an order open (which of several expired leases is claimed first, which of
several jobs due in the same millisecond is promoted first) the model follows what the queue did,
after checking that it was allowed to.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

UNIT_MS = 600_000
"""All times of the model are multiples of this: no real delay of a test can blur them."""
LEASE = 1
GRACE = 6
RESULT_TTL = 6
LOCK_TTL = 6
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
class Model:
    """The whole visible state of one queue."""

    now: int = 0
    stream: list[Entry] = field(default_factory=list)
    delayed: list[Later] = field(default_factory=list)
    dlq: list[Letter] = field(default_factory=list)
    ended: dict[str, Ended] = field(default_factory=dict)
    taken_ids: dict[str, int] = field(default_factory=dict)
    """When each unique id is free again."""
    is_paused: bool = False
    leader: tuple[str, int] | None = None
    events: list[tuple[str, str]] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    """Every id there ever was, the oldest first."""

    # --- looking

    @property
    def waiting(self) -> list[Entry]:
        return [entry for entry in self.stream if entry.held is None]

    @property
    def active(self) -> list[Entry]:
        return [entry for entry in self.stream if entry.held is not None]

    @property
    def expired(self) -> list[Entry]:
        return [entry for entry in self.active if self._is_silent(entry)]

    def is_taken(self, job_id: str) -> bool:
        return self.taken_ids.get(job_id, self.now) > self.now

    def is_alive(self, job_id: str) -> bool:
        """Whether a job of this id is anywhere."""
        places = [each.job for each in (*self.stream, *self.delayed, *self.dlq)]
        return any(job.id == job_id for job in places)

    def state_of(self, job_id: str) -> str:
        if self._later(job_id):
            return "delayed"
        if entry := self._entry(job_id):
            return "active" if entry.held else "waiting"
        if any(letter.job.id == job_id for letter in self.dlq):
            return "failed"
        if end := self.ended.get(job_id):
            return "failed" if end.kind == "f" else "completed"
        return "unknown"

    def value_of(self, job_id: str) -> int | None:
        """The result, while it is kept: half as long as how the job ended."""
        end = self.ended.get(job_id)
        return end.value if end and end.until - self.now > RESULT_TTL else None

    # --- adding

    def add(self, jobs: Sequence[tuple[Job, int]]) -> tuple[list[bool | None], bool]:
        """Jobs with their delays: what became of each (None: not in), and whether it was refused.

        Unique ones first, then the others for now, all or none, then those for later.
        """
        fates: list[bool | None] = [None] * len(jobs)
        unique = [at for at, (job, delay) in enumerate(jobs) if job.is_unique and not delay]
        fresh = [at for at, (job, delay) in enumerate(jobs) if not job.is_unique and not delay]
        for at in unique:
            fates[at] = self._add_unique(jobs[at][0])
        if any(fates[at] is None for at in unique):
            return fates, True
        if fresh and len(self.stream) + len(fresh) > MAX_STREAM:
            return fates, True
        for at in fresh:
            self._append(jobs[at][0])
            fates[at] = True
        for at, (job, delay) in enumerate(jobs):
            if delay:
                fates[at] = self._add_later(job, delay)
        return fates, False

    def _add_unique(self, job: Job) -> bool | None:
        if self.is_taken(job.id):
            return False
        if len(self.stream) >= MAX_STREAM:
            return None
        self.taken_ids[job.id] = self.now + GRACE
        self._append(job)
        return True

    def _add_later(self, job: Job, delay: int) -> bool:
        if job.is_unique and self.is_taken(job.id):
            return False
        if job.is_unique:
            self.taken_ids[job.id] = self.now + delay + GRACE
        self._meet(job)
        self.delayed.append(Later(job, self.now + delay))
        self.events.append(("delayed", job.id))
        return True

    # --- by hand

    def cancel(self, job_id: str) -> bool:
        later = self._later(job_id)
        if later is None:
            return False
        self.delayed.remove(later)
        self.taken_ids.pop(job_id, None)
        return True

    def remove(self, job_id: str) -> bool:
        if self.cancel(job_id):
            return True
        entry = self._entry(job_id)
        if entry is None or entry.held:
            return False
        self.stream.remove(entry)
        self.taken_ids.pop(job_id, None)
        return True

    def drain(self, *, delayed_too: bool) -> int:
        gone = [entry.job for entry in self.waiting]
        self.stream = self.active
        if delayed_too:
            gone += [later.job for later in self.delayed]
            self.delayed = []
        for job in gone:
            self.taken_ids.pop(job.id, None)
        return len(gone)

    def promote_one(self, job_id: str) -> bool:
        later = self._later(job_id)
        if later is None:
            return False
        self.delayed.remove(later)
        self._append(later.job)
        return True

    def reschedule(self, job_id: str, delay: int) -> bool:
        later = self._later(job_id)
        if later is None:
            return False
        later.due, later.run_at_ms = self.now + delay, None
        if self.is_taken(job_id):
            self.taken_ids[job_id] = self.now + delay + GRACE
        self.events.append(("delayed", job_id))
        return True

    def update(self, job_id: str, serial: int) -> bool:
        later, entry = self._later(job_id), self._entry(job_id)
        if later:
            later.job = replace(later.job, serial=serial)
            return True
        if entry is None or entry.held:
            return False
        self.stream.remove(entry)
        self.stream.append(Entry(replace(entry.job, serial=serial)))
        return True

    def set_paused(self, *, wanted: bool) -> bool:
        has_changed = self.is_paused != wanted
        self.is_paused = wanted
        if has_changed:
            self.events.append(("paused" if wanted else "resumed", ""))
        return has_changed

    def replay(self, letters: Sequence[Letter]) -> int:
        for letter in letters:
            self.dlq.remove(letter)
            self.ended.pop(letter.job.id, None)
            self._append(replace(letter.job, made=0))
        return len(letters)

    def discard(self, letters: Sequence[Letter]) -> int:
        for letter in letters:
            self.dlq.remove(letter)
        return len(letters)

    # --- roles

    def lead(self, holder: str) -> bool:
        """Whether a promoter leads; then it does for some time more."""
        if self.leader and self.leader[0] != holder and self.leader[1] > self.now:
            return False
        self.leader = holder, self.now + LOCK_TTL
        return True

    def due(self, batch: int) -> list[Later]:
        """What a promoter moves: the earliest of those that are due, as far as there is room."""
        room = min(batch, max(0, MAX_STREAM - len(self.stream)))
        due = [later for later in self.delayed if later.due <= self.now]
        return sorted(due, key=lambda later: later.run_at_ms or 0)[:room]

    def promote(self, moved: Sequence[Later]) -> None:
        for later in moved:
            self.delayed.remove(later)
            self._append(later.job)

    def take(self, consumer: str, entries: Sequence[Entry], hand: set[bytes]) -> list[Taken]:
        """`consumer` is given these: which run each of them is."""
        taken = []
        for entry in entries:
            before = entry.held.counted if entry.held else 0
            entry.held = Held(consumer, before + 1, self.now)
            is_in_hand = entry.entry_id in hand
            taken.append(Taken(entry, before, entry.job.made + before + 1, is_in_hand))
        return taken

    def put_back(self, consumer: str, taken: Sequence[Taken]) -> None:
        """Deliveries come while the queue is paused: they wait again, uncounted."""
        self._let_go(consumer, taken)
        # Those at the end of the stream that nobody began are unread again; an entry before one
        # that runs stays delivered, for whoever looks first.
        for entry in reversed(self.active):
            if entry.held and entry.held.counted:
                break
            entry.held = None

    def hand_back(self, consumer: str, taken: Sequence[Taken]) -> None:
        """A worker stops: what it did not begin goes to the next, who is woken if none would be."""
        is_backlog = bool(self.waiting)
        ours = [each for each in taken if self._is_ours(consumer, each.entry)]
        anew = [] if is_backlog else [each for each in ours if not each.before]
        self._let_go(consumer, [each for each in ours if each not in anew])
        for each in anew:
            self.stream.remove(each.entry)
            self.stream.append(Entry(each.entry.job))

    def renew(self, consumer: str, entries: Sequence[Entry]) -> list[bytes]:
        """Who still has them keeps them; the ids of those lost."""
        lost = []
        for entry in entries:
            if entry in self.stream and entry.held and entry.held.consumer == consumer:
                entry.held = replace(entry.held, since=self.now)
            else:
                lost.append(entry.entry_id)
        return lost

    def complete(self, entry: Entry, value: int | None) -> bool:
        if entry not in self.stream or entry.held is None:
            return False
        self.stream.remove(entry)
        kind = "n" if value is None else "v"
        self.ended[entry.job.id] = Ended(kind, value, self.now + 2 * RESULT_TTL)
        self.events.append(("completed", entry.job.id))
        return True

    def fail(self, consumer: str, entry: Entry, attempt: int) -> bool:
        """A handler raised: another run later, or the dead letters."""
        if attempt >= entry.job.budget:
            return self.bury(consumer, entry, "retries_exhausted", attempt)
        backoff = min(LONGEST_BACKOFF, 2 ** (attempt - 1))
        return self.retry(consumer, entry, made=attempt, backoff=backoff)

    def retry(self, consumer: str, entry: Entry, *, made: int, backoff: int) -> bool:
        if not self._is_ours(consumer, entry):
            return False
        self.stream.remove(entry)
        self.delayed.append(Later(replace(entry.job, made=made), self.now + backoff))
        self.events.append(("retry-scheduled", entry.job.id))
        return True

    def bury(self, consumer: str, entry: Entry, reason: str, attempts: int) -> bool:
        if not self._is_ours(consumer, entry):
            return False
        self.stream.remove(entry)
        self.dlq.append(Letter(entry.job, reason, attempts))
        self.ended[entry.job.id] = Ended("f", None, self.now + 2 * RESULT_TTL)
        self.events.append(("dlq", entry.job.id))
        return True

    def pass_time(self, units: int) -> None:
        self.now += units
        for later in self.delayed:
            if later.run_at_ms is not None:
                later.run_at_ms -= units * UNIT_MS
        self.ended = {key: end for key, end in self.ended.items() if end.until > self.now}

    # --- within

    def _append(self, job: Job) -> None:
        self._meet(job)
        self.stream.append(Entry(job))
        self.events.append(("waiting", job.id))

    def _meet(self, job: Job) -> None:
        if job.id not in self.known:
            self.known.append(job.id)

    def _later(self, job_id: str) -> Later | None:
        return next((each for each in self.delayed if each.job.id == job_id), None)

    def _entry(self, job_id: str) -> Entry | None:
        return next((each for each in self.stream if each.job.id == job_id), None)

    def _is_silent(self, entry: Entry) -> bool:
        held = entry.held
        return held is not None and (held.since is None or self.now - held.since >= LEASE)

    def _is_ours(self, consumer: str, entry: Entry) -> bool:
        held = entry.held
        return entry in self.stream and held is not None and held.consumer == consumer

    def _let_go(self, consumer: str, taken: Sequence[Taken]) -> None:
        for each in taken:
            if self._is_ours(consumer, each.entry):
                each.entry.held = Held(consumer, each.before, None)
