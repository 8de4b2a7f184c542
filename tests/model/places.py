"""Where the model keeps what: the visible state of one queue, and how to look at it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.model.values import (
    LEASE,
    RESULT_TTL,
    START_MS,
    UNIT_MS,
    Ended,
    Entry,
    Held,
    Job,
    Later,
    Letter,
    Spec,
    Taken,
)


@dataclass
class Places:
    """The whole visible state of one queue."""

    now: int = 0
    stream: list[Entry] = field(default_factory=list)
    delayed: list[Later] = field(default_factory=list)
    dlq: list[Letter] = field(default_factory=list)
    ended: dict[str, Ended] = field(default_factory=dict)
    taken_ids: dict[str, int] = field(default_factory=dict)
    """When each unique id is free again."""
    is_paused: bool = False
    specs: dict[str, Spec] = field(default_factory=dict)
    leaders: dict[str, tuple[str, int]] = field(default_factory=dict)
    events: list[tuple[str, str]] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    """Every id there ever was, the oldest first."""

    # --- looking

    @property
    def clock_ms(self) -> int:
        """What producers and schedulers go by."""
        return START_MS + self.now * UNIT_MS

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

    # --- within

    def _append(self, job: Job) -> None:
        self._meet(job)
        self.stream.append(Entry(job))
        self.events.append(("waiting", job.id))

    def _meet(self, job: Job) -> None:
        if job.id and job.id not in self.known:
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
