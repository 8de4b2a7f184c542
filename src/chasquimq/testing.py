"""Helpers for the tests of people who use this library; needs no pytest except for the fixture.

    from chasquimq.testing import RecordingSink, run_until_idle

The fixture `chasqui_url` is a real server, started for the test run: put
`pytest_plugins = ["chasquimq.testing"]` in the top `conftest.py`, or import it there. There is no
fake queue here on purpose: a test against the real thing takes milliseconds, and cannot lie.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from urllib.parse import quote

from chasquimq.broker import embedded
from chasquimq.broker.inspect import is_idle
from chasquimq.clock import ManualClock
from chasquimq.metrics import (
    DlqRouted,
    JobOutcome,
    LeasesRenewed,
    LockOutcome,
    MetricsSink,
    PromoterTick,
    QueueDepths,
    RateLimited,
    ReaderBatch,
    Reconnected,
    RetryScheduled,
    WorkerPulse,
)
from chasquimq.queue import Queue
from chasquimq.wire.keys import QueueKeys
from chasquimq.worker import Worker

__all__ = [
    "ManualClock",
    "RecordingSink",
    "chasqui_url",
    "run_until_idle",
    "running",
    "until_idle",
]

T = TypeVar("T")

_FIRST_PAUSE_S = 0.002
_LONGEST_PAUSE_S = 0.05


class RecordingSink(MetricsSink):
    """Keeps every report of a worker, in order: pass it as `Worker(..., metrics=sink)`.

    `await sink.next(JobOutcome)` is how a test waits for something to happen without sleeping. To
    be used on the worker's own event loop.
    """

    def __init__(self) -> None:
        """Nothing is recorded yet."""
        self.reports: list[object] = []
        self._read: dict[type, int] = {}
        self._news = asyncio.Event()

    def __repr__(self) -> str:
        """Show how much was recorded."""
        return f"<RecordingSink, {len(self.reports)} reports>"

    def of(self, kind: type[T]) -> list[T]:
        """All reports of one kind so far."""
        return [report for report in self.reports if isinstance(report, kind)]

    async def next(self, kind: type[T], *, timeout: float = 10.0) -> T:
        """The next report of a kind: each is given once, the earliest first, waited for if need be.

        Raises `TimeoutError`, with what was reported instead, after `timeout` seconds.
        """
        try:
            async with asyncio.timeout(timeout):
                while True:
                    for at in range(self._read.get(kind, 0), len(self.reports)):
                        report = self.reports[at]
                        if isinstance(report, kind):
                            self._read[kind] = at + 1
                            return report
                    self._read[kind] = len(self.reports)
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            msg = f"no {kind.__name__} within {timeout:g} s; the last reports: {self.reports[-5:]}"
            raise TimeoutError(msg) from None

    def promoter_tick(self, tick: PromoterTick) -> None:
        """Record a promote step."""
        self._record(tick)

    def promoter_lock_outcome(self, outcome: LockOutcome) -> None:
        """Record a change of leadership."""
        self._record(outcome)

    def reader_batch(self, batch: ReaderBatch) -> None:
        """Record a read."""
        self._record(batch)

    def job_outcome(self, outcome: JobOutcome) -> None:
        """Record a run."""
        self._record(outcome)

    def retry_scheduled(self, retry: RetryScheduled) -> None:
        """Record a retry."""
        self._record(retry)

    def dlq_routed(self, dlq: DlqRouted) -> None:
        """Record a dead letter."""
        self._record(dlq)

    def rate_limited(self, limited: RateLimited) -> None:
        """Record a throttle."""
        self._record(limited)

    def worker_pulse(self, pulse: WorkerPulse) -> None:
        """Record how a worker stands."""
        self._record(pulse)

    def leases_renewed(self, leases: LeasesRenewed) -> None:
        """Record renewed leases."""
        self._record(leases)

    def reconnected(self, reconnected: Reconnected) -> None:
        """Record connections that came back."""
        self._record(reconnected)

    def queue_depths(self, depths: QueueDepths) -> None:
        """Record a look at the queue."""
        self._record(depths)

    def _record(self, report: object) -> None:
        self.reports.append(report)
        self._news.set()


@asynccontextmanager
async def running(worker: Worker) -> AsyncIterator[Worker]:
    """Run a worker for as long as the block lasts, then close it and wait until it has drained."""
    work = asyncio.create_task(worker.run(), name=f"worker-{worker.name}")
    try:
        yield worker
    finally:
        await worker.close()
        await work


async def run_until_idle(
    worker: Worker, queue: Queue, *, timeout: float = 10.0, due_within_ms: int = 1_000
) -> None:
    """Run a worker until its queue has nothing left to do, as `until_idle` means it.

    The worker is closed in the end, and has written everything when this returns. Make another for
    more work. What `worker.run` raises is raised at once.
    """
    work = asyncio.create_task(worker.run(), name=f"worker-{worker.name}")
    idle = asyncio.create_task(
        until_idle(queue, timeout=timeout, due_within_ms=due_within_ms), name="until-idle"
    )
    try:
        await asyncio.wait((work, idle), return_when=asyncio.FIRST_COMPLETED)
    finally:
        idle.cancel()
        await worker.close()
        await asyncio.wait((work, idle))
    problem = None if idle.cancelled() else idle.exception()
    work.result()
    if problem is not None:
        raise problem


async def until_idle(queue: Queue, *, timeout: float = 10.0, due_within_ms: int = 1_000) -> None:
    """Return once nothing in the queue waits, runs, or is delayed and due within `due_within_ms`.

    Retries are delayed jobs too. Raises `TimeoutError`, with the queue's counts, when that is not
    so after `timeout` seconds.
    """
    pause_s = _FIRST_PAUSE_S
    look = is_idle(QueueKeys(queue.name), due_within_ms)
    try:
        async with asyncio.timeout(timeout):
            while not await queue._sender.run(look):  # noqa: SLF001 -- of the same package
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
    except TimeoutError:
        msg = f"queue {queue.name!r} is not idle after {timeout:g} s: {await queue.counts()}"
        raise TimeoutError(msg) from None


try:
    import pytest
except ModuleNotFoundError:

    def __getattr__(name: str) -> Any:  # noqa: ANN401 -- always raises
        """Say what is missing when the fixture is asked for."""
        if name == "chasqui_url":
            msg = "the fixture chasqui_url needs pytest: run python -m pip install pytest"
            raise ImportError(msg)
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)

else:

    @pytest.fixture(scope="session")
    def chasqui_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
        """The URL of a real server that lives as long as the test run.

        All tests of a process share it: use a queue name of its own in each test.
        """
        directory = str(tmp_path_factory.mktemp("chasqui"))
        embedded.acquire(directory)
        yield f"embedded://{quote(directory)}"
        embedded.stop(directory)
