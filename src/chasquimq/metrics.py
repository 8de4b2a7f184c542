"""The `MetricsSink` protocol, its event values, and the sink that drops everything.

A sink is called on the event loop, between jobs: it should note and return. An error in a sink is
logged and never reaches a job.
"""

# ruff: noqa: ARG002 -- a sink that drops a report does not look at it

import logging
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


class MetricsSink(Protocol):
    """Receives what the engine reports; every method may be left as it is."""

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


class NoopSink(MetricsSink):
    """Drops every report; derive from it to receive only some."""


NO_METRICS: MetricsSink = NoopSink()

E = TypeVar("E")


def report(receive: Callable[[E], None], event: E) -> None:
    """Give `event` to a sink's method; what the method raises is logged and goes no further."""
    try:
        receive(event)
    except Exception:
        log.exception("the metrics sink failed on %r; the job is not affected", event)
