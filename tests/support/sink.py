"""A metrics sink that remembers every report, and lets a test wait for the next one of a kind.

The metrics sink is the engine's public seam, so it is also the signal that tests wait for.
"""

import asyncio
from collections import Counter, defaultdict
from typing import TypeVar

from chasquimq.metrics import (
    DlqRouted,
    JobOutcome,
    LeasesRenewed,
    LockOutcome,
    NoopSink,
    PromoterTick,
    QueueDepths,
    RateLimited,
    ReaderBatch,
    Reconnected,
    RetryScheduled,
    WorkerPulse,
)

R = TypeVar("R")

PATIENCE_SECS = 15.0


class RecordingSink(NoopSink):
    """Belongs to one event loop: that of the worker it is given to."""

    def __init__(self) -> None:
        """Nothing is seen yet."""
        self.reports: list[object] = []
        self._taken: defaultdict[type, int] = defaultdict(int)
        self._news = asyncio.Event()

    def seen(self, kind: type[R]) -> list[R]:
        """Every report of a kind so far, in order."""
        return [report for report in self.reports if isinstance(report, kind)]

    async def next(self, kind: type[R]) -> R:
        """The next report of a kind: each is returned once. Fails if none comes in good time."""
        (report,) = await self.take(kind, 1)
        return report

    async def take(self, kind: type[R], count: int) -> list[R]:
        """The next `count` reports of a kind."""
        begin = self._taken[kind]
        end = self._taken[kind] = begin + count
        try:
            async with asyncio.timeout(PATIENCE_SECS):
                while len(self.seen(kind)) < end:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            counts = dict(Counter(type(report).__name__ for report in self.reports))
            message = f"waited for {count} more of {kind.__name__}; saw {counts}"
            raise AssertionError(message) from None
        return self.seen(kind)[begin:end]

    def promoter_tick(self, tick: PromoterTick) -> None:
        """Take note of a promote step."""
        self._note(tick)

    def promoter_lock_outcome(self, outcome: LockOutcome) -> None:
        """Take note of a change of leadership."""
        self._note(outcome)

    def reader_batch(self, batch: ReaderBatch) -> None:
        """Take note of a read."""
        self._note(batch)

    def job_outcome(self, outcome: JobOutcome) -> None:
        """Take note of a run."""
        self._note(outcome)

    def retry_scheduled(self, retry: RetryScheduled) -> None:
        """Take note of a retry."""
        self._note(retry)

    def dlq_routed(self, dlq: DlqRouted) -> None:
        """Take note of a dead letter."""
        self._note(dlq)

    def rate_limited(self, limited: RateLimited) -> None:
        """Take note of a throttle."""
        self._note(limited)

    def worker_pulse(self, pulse: WorkerPulse) -> None:
        """Take note of how a worker stands."""
        self._note(pulse)

    def leases_renewed(self, leases: LeasesRenewed) -> None:
        """Take note of renewed leases."""
        self._note(leases)

    def reconnected(self, reconnected: Reconnected) -> None:
        """Take note of connections that came back."""
        self._note(reconnected)

    def queue_depths(self, depths: QueueDepths) -> None:
        """Take note of a look at the queue."""
        self._note(depths)

    def _note(self, report: object) -> None:
        self.reports.append(report)
        self._news.set()
