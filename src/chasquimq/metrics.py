"""The `MetricsSink` protocol, its event values, and the sink that drops everything.

A sink is called on the event loop, between jobs: it should note and return. An error in a sink is
logged and never reaches a job; one that fails again and again is counted, not logged each time.
"""

# ruff: noqa: ARG002 -- a sink that drops a report does not look at it

import logging
import weakref
from asyncio import CancelledError
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeVar

from chasquimq.errors import DlqReason

log = logging.getLogger("chasquimq.metrics")


class LockOutcome(StrEnum):
    """A change of leadership: this process took the lock, or finds it held by another."""

    ACQUIRED = "acquired"
    HELD = "held"


class JobOutcomeKind(StrEnum):
    """How a run of a handler ended."""

    OK = "ok"
    ERR = "err"
    PANIC = "panic"


@dataclass(frozen=True, slots=True)
class PromoterTick:
    """One promote step of the leader."""

    promoted: int
    depth: int
    oldest_pending_lag_ms: int


@dataclass(frozen=True, slots=True)
class ReaderBatch:
    """One read that brought entries; `reclaimed` of them had been delivered before."""

    size: int
    reclaimed: int


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """One run of a handler; `attempt` counts from 1."""

    kind: JobOutcomeKind
    attempt: int
    handler_duration_us: int
    name: str
    job_id: str = ""
    """Ours."""


@dataclass(frozen=True, slots=True)
class RetryScheduled:
    """A failed delivery was moved to the delayed set."""

    attempt: int
    backoff_ms: int
    name: str


@dataclass(frozen=True, slots=True)
class DlqRouted:
    """A delivery was moved to the dead-letter stream."""

    reason: DlqReason
    attempt: int
    name: str


@dataclass(frozen=True, slots=True)
class RateLimited:
    """The rate limit began to keep a reader from reading; the first token is `wait_ms` away."""

    wait_ms: int


@dataclass(frozen=True, slots=True)
class WorkerPulse:
    """How a worker stands, about once a second and once more, with zeros, when it has stopped.

    `in_flight` counts deliveries that are read and not settled, `running` those whose handler runs.
    `last_read_ms` is the wall-clock time of the last read that the server answered, with jobs or
    without; None before the first. A blocked event loop sends no pulse.
    """

    consumer_id: str
    in_flight: int
    running: int
    last_read_ms: int | None


@dataclass(frozen=True, slots=True)
class LeasesRenewed:
    """Leases renewed since the last such report, and those found lost to another worker."""

    renewed: int
    lost: int


@dataclass(frozen=True, slots=True)
class Reconnected:
    """How many connections of a worker came back after a break since the last such report."""

    count: int


@dataclass(frozen=True, slots=True)
class QueueDepths:
    """How many jobs a queue holds, and how long the oldest that waits has waited.

    Reported only by a worker that serves metrics, to the `PrometheusSink` it serves, when that is
    scraped.
    """

    waiting: int
    active: int
    delayed: int
    dead: int
    lag_ms: int


class MetricsSink(Protocol):
    """Receives what the engine reports; every method may be left as it is.

    New methods come with an empty body, and a sink without them is not asked: whoever derives from
    the protocol, or only has its shape, goes on working with later releases.
    """

    def promoter_tick(self, tick: PromoterTick) -> None:
        """Take note of a promote step."""
        return

    def promoter_lock_outcome(self, outcome: LockOutcome) -> None:
        """Take note of a change of leadership."""
        return

    def reader_batch(self, batch: ReaderBatch) -> None:
        """Take note of a read."""
        return

    def job_outcome(self, outcome: JobOutcome) -> None:
        """Take note of a run."""
        return

    def retry_scheduled(self, retry: RetryScheduled) -> None:
        """Take note of a retry."""
        return

    def dlq_routed(self, dlq: DlqRouted) -> None:
        """Take note of a dead letter."""
        return

    def rate_limited(self, limited: RateLimited) -> None:
        """Take note of a throttle."""
        return

    def worker_pulse(self, pulse: WorkerPulse) -> None:
        """Take note of how a worker stands."""
        return

    def leases_renewed(self, leases: LeasesRenewed) -> None:
        """Take note of renewed leases."""
        return

    def reconnected(self, reconnected: Reconnected) -> None:
        """Take note of connections that came back."""
        return

    def queue_depths(self, depths: QueueDepths) -> None:
        """Take note of a look at the queue."""
        return


class NoopSink(MetricsSink):
    """Drops every report; derive from it to receive only some."""


class CompositeSink(MetricsSink):
    """Hands every report to several sinks, in order; one that fails does not keep it from others.

    Sinks may lack methods that later releases added.
    """

    def __init__(self, *sinks: MetricsSink) -> None:
        """At least one sink, or there is nothing to hand on to."""
        if not sinks:
            msg = "CompositeSink needs at least one sink: pass them one after the other"
            raise TypeError(msg)
        self.sinks = sinks

    def __repr__(self) -> str:
        """Show the sinks."""
        return f"<CompositeSink {', '.join(map(repr, self.sinks))}>"

    def promoter_tick(self, tick: PromoterTick) -> None:
        """Hand on a promote step."""
        self._hand_on("promoter_tick", tick)

    def promoter_lock_outcome(self, outcome: LockOutcome) -> None:
        """Hand on a change of leadership."""
        self._hand_on("promoter_lock_outcome", outcome)

    def reader_batch(self, batch: ReaderBatch) -> None:
        """Hand on a read."""
        self._hand_on("reader_batch", batch)

    def job_outcome(self, outcome: JobOutcome) -> None:
        """Hand on a run."""
        self._hand_on("job_outcome", outcome)

    def retry_scheduled(self, retry: RetryScheduled) -> None:
        """Hand on a retry."""
        self._hand_on("retry_scheduled", retry)

    def dlq_routed(self, dlq: DlqRouted) -> None:
        """Hand on a dead letter."""
        self._hand_on("dlq_routed", dlq)

    def rate_limited(self, limited: RateLimited) -> None:
        """Hand on a throttle."""
        self._hand_on("rate_limited", limited)

    def worker_pulse(self, pulse: WorkerPulse) -> None:
        """Hand on how a worker stands."""
        self._hand_on("worker_pulse", pulse)

    def leases_renewed(self, leases: LeasesRenewed) -> None:
        """Hand on renewed leases."""
        self._hand_on("leases_renewed", leases)

    def reconnected(self, reconnected: Reconnected) -> None:
        """Hand on connections that came back."""
        self._hand_on("reconnected", reconnected)

    def queue_depths(self, depths: QueueDepths) -> None:
        """Hand on a look at the queue."""
        self._hand_on("queue_depths", depths)

    def _hand_on(self, method: str, event: object) -> None:
        for sink in self.sinks:
            report_if_taken(sink, method, event)


NO_METRICS: MetricsSink = NoopSink()

E = TypeVar("E")

# How often which method of a sink has failed. A sink that cannot be a weak key counts by its class.
_failures: "weakref.WeakKeyDictionary[object, Counter[str]]" = weakref.WeakKeyDictionary()


def report(receive: Callable[[E], None], event: E) -> None:
    """Give `event` to a sink's method; what the method raises is logged and goes no further.

    The first failure of a method is logged as an error with its traceback. Later ones are counted,
    and the count is a warning at 10, 100, 1,000 and so on: a sink that fails for every job costs
    the log a few lines.
    """
    try:
        receive(event)
    except (Exception, CancelledError):  # it is called, not awaited: the cancellation is its own
        method = getattr(receive, "__name__", repr(receive))
        times = _count_failure(getattr(receive, "__self__", receive), method)
        if times == 1:
            log.exception("the metrics sink failed on %r; the job is not affected", event)
        elif str(times).strip("0") == "1":
            log.warning("the metrics sink has failed %d times in %s", times, method)


def report_if_taken(sink: MetricsSink, method: str, event: object) -> None:
    """`report` to a method that the sink may not have: it may be older than the method."""
    receive = getattr(sink, method, None)
    if receive is not None:
        report(receive, event)


def _count_failure(sink: object, method: str) -> int:
    try:
        counts = _failures.setdefault(sink, Counter())
    except TypeError:
        counts = _failures.setdefault(type(sink), Counter())
    counts[method] += 1
    return counts[method]
