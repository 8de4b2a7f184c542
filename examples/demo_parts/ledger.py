"""Keeps the books of the demo from nothing but the queue's own events."""

import asyncio
import statistics
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from chasquimq import QueueEvent

STATES = ("waiting", "active", "delayed", "completed", "dead")
_RECENT = 8


@dataclass
class Entry:
    """What the events have told of one job."""

    kind: str
    state: str = "waiting"
    waiting_since_ms: int = 0
    runs_ended: int = 0


@dataclass
class Totals:
    """What happened to the jobs of one kind."""

    seen: int = 0
    runs: int = 0
    retries: int = 0
    completed: int = 0
    dead_lettered: int = 0
    replayed: int = 0
    waits_ms: list[int] = field(default_factory=list)

    @property
    def p50_wait_ms(self) -> float:
        """Half of the runs began within this time after their job stood in the stream."""
        return statistics.median(self.waits_ms) if self.waits_ms else 0.0


class Ledger:
    """Follows every job from event to event.

    The events of a job come in order. If a connection breaks one may come late; so totals count
    events whatever their order, and only the state minds it.
    """

    def __init__(self) -> None:
        """Start with empty books."""
        self.jobs: dict[str, Entry] = {}
        self.kinds: dict[str, Totals] = {}
        self.recent: deque[tuple[QueueEvent, int]] = deque(maxlen=_RECENT)
        """The last events; alike ones in a row are one, with their number."""
        self._has_changed = asyncio.Event()

    async def follow(self, events: AsyncIterator[QueueEvent]) -> None:
        """Take in events for as long as they come."""
        async for event in events:
            self.take(event)

    def take(self, event: QueueEvent) -> None:
        """Note one event; those of the whole queue are of no interest here."""
        if event.job_id is None:
            return
        self._remember(event)
        totals = self.kinds.setdefault(event.job_name, Totals())
        job = self.jobs.get(event.job_id)
        if job is None:
            job = self.jobs[event.job_id] = Entry(event.job_name)
            totals.seen += 1
        _BOOKINGS.get(event.name, _ignore)(job, totals, event)
        self._has_changed.set()

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Return once the books say so; looked at after every event."""
        while not is_so():
            self._has_changed.clear()
            await self._has_changed.wait()

    def counts(self) -> Counter[str]:
        """How many jobs are in each state."""
        return Counter(job.state for job in self.jobs.values())

    def has_ended(self) -> bool:
        """Whether every job seen so far has completed, and no event of a run is outstanding."""
        return all(job.state == "completed" for job in self.jobs.values()) and all(
            each.runs == each.completed + each.retries + each.dead_lettered
            for each in self.kinds.values()
        )

    def _remember(self, event: QueueEvent) -> None:
        number = 1
        if self.recent:
            last, count = self.recent[-1]
            if (last.name, last.job_name) == (event.name, event.job_name):
                number += count
                self.recent.pop()
        self.recent.append((event, number))


def _waiting(job: Entry, totals: Totals, event: QueueEvent) -> None:
    if job.state == "dead":
        totals.replayed += 1
        job.runs_ended = 0
    job.state = "waiting"
    job.waiting_since_ms = event.fields["ts"]


def _delayed(job: Entry, _: Totals, __: QueueEvent) -> None:
    job.state = "delayed"


def _active(job: Entry, totals: Totals, event: QueueEvent) -> None:
    totals.runs += 1
    totals.waits_ms.append(max(0, event.fields["ts"] - job.waiting_since_ms))
    if event.fields["attempt"] > job.runs_ended:
        job.state = "active"


def _retry(job: Entry, totals: Totals, event: QueueEvent) -> None:
    totals.retries += 1
    job.state = "delayed"
    job.runs_ended = event.fields["attempt"] - 1


def _completed(job: Entry, totals: Totals, event: QueueEvent) -> None:
    totals.completed += 1
    job.state = "completed"
    job.runs_ended = event.fields["attempt"]


def _dead(job: Entry, totals: Totals, event: QueueEvent) -> None:
    totals.dead_lettered += 1
    job.state = "dead"
    job.runs_ended = event.fields["attempt"]


def _ignore(_: Entry, __: Totals, ___: QueueEvent) -> None:
    return


_BOOKINGS = {
    "waiting": _waiting,
    "delayed": _delayed,
    "active": _active,
    "retry-scheduled": _retry,
    "completed": _completed,
    "dlq": _dead,
}
