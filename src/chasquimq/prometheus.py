"""`PrometheusSink`: a worker's reports as Prometheus metrics. Needs the extra `metrics`.

    worker = Worker("emails", handler, metrics=PrometheusSink(queue="emails"))

Every metric has the label `queue`. Sinks of several queues may share one registry, and so may
several sinks of one queue. Counters begin at zero with the process, as Prometheus expects.
"""

import logging
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress

from chasquimq.metrics import (
    DlqRouted,
    JobOutcome,
    JobOutcomeKind,
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

try:
    from prometheus_client import (
        REGISTRY,
        CollectorRegistry,
        Counter,
        Gauge,
        Histogram,
        ProcessCollector,
    )
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.metrics import MetricWrapperBase
except ModuleNotFoundError as missing:
    message = (
        "Prometheus metrics need the extra 'metrics', which is not installed: run "
        "python -m pip install prometheus-client"
    )
    raise ModuleNotFoundError(message, name=missing.name) from None

__all__ = ["OTHER_NAMES", "PrometheusSink", "exposition", "own_registry"]

log = logging.getLogger("chasquimq.metrics")

# From handlers that only touch memory to imports of some minutes. 30 s is an edge because it is the
# default of the lease and of the time a stop waits: what lies beyond it is what a deploy cuts off.
DURATION_BUCKETS_S = (
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300,
)  # fmt: skip
# Doubling, as the default curve of delays does, from its start at 100 ms to its cap of 30 s; then
# what jobs with a backoff of their own may ask for.
BACKOFF_BUCKETS_S = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 30, 60, 300, 3_600)
# The first token of a limit: from those of many a second to those of a few an hour.
LIMIT_BUCKETS_S = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 3_600)
# A read brings at most the free slots and what is read ahead: 164 by default.
BATCH_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256)

OTHER_NAMES = "(other)"
"""The label `name` of jobs whose name came after the limit was reached."""

_PREFIX = "chasquimq_"
_MOST_NAMES = 200
_STATES = ("waiting", "active", "delayed", "dead")


class Families:
    """The metrics themselves, once per registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register all of them, so that they are scraped even before anything happens."""
        making = _Making(registry)
        self._make_documented(making)
        self._make_ours(making)
        # The last pulse of each worker, by queue: a gauge is one number for all of them.
        self.pulses: dict[str, dict[str, WorkerPulse]] = {}

    def __iter__(self) -> Iterator[MetricWrapperBase]:
        """All of them."""
        return (each for each in vars(self).values() if isinstance(each, MetricWrapperBase))

    def _make_documented(self, making: "_Making") -> None:
        """Those of the documented engine."""
        counter, gauge, histogram = making.counter, making.gauge, making.histogram
        self.promoted = counter("promoter_promoted_total", "Delayed jobs moved to the stream")
        self.delayed_depth = gauge("delayed_zset_depth", "Delayed jobs, at the last promotion")
        self.delayed_lag_ms = gauge(
            "promoter_oldest_pending_lag_ms", "How late the oldest due delayed job is, in ms"
        )
        self.lock_acquired = counter(
            "promoter_lock_acquired_total", "Times a promoter or scheduler came to lead"
        )
        self.lock_lost = counter(
            "promoter_lock_lost_total", "Times one found another leading, its start too"
        )
        self.batch_size = histogram(
            "consumer_batch_size", "Entries of a read that had any", BATCH_BUCKETS
        )
        self.reclaimed = counter(
            "consumer_reclaimed_total", "Entries that had been delivered before"
        )
        self.duration = histogram(
            "handler_duration_seconds", "How long handlers ran", DURATION_BUCKETS_S, "name"
        )
        self.completed = counter("jobs_completed_total", "Runs that succeeded", "name")
        self.failed = counter(
            "jobs_failed_total", "Runs that failed: kind is error or panic", "kind", "name"
        )
        self.retries = counter(
            "retries_scheduled_total", "Failed runs that will be repeated", "name"
        )
        self.backoff = histogram(
            "retry_backoff_seconds", "Delay before a repeated run", BACKOFF_BUCKETS_S, "name"
        )
        self.dead = counter("dlq_routed_total", "Jobs that became dead letters", "reason", "name")
        self.limited = counter("rate_limited_total", "Times the rate limit began to hold reads up")
        self.limit_wait = histogram(
            "rate_limit_wait_seconds", "How far the first token was away then", LIMIT_BUCKETS_S
        )

    def _make_ours(self, making: "_Making") -> None:
        """What a person on call asks next."""
        counter, gauge = making.counter, making.gauge
        self.depth = gauge("queue_depth", "Jobs by state: waiting, active, delayed, dead", "state")
        self.lag = gauge("queue_lag_seconds", "Age of the oldest job that waits")
        self.in_flight = gauge("jobs_in_flight", "Deliveries this process has not settled")
        self.running = gauge("handlers_running", "Handlers that run in this process")
        self.last_read = gauge(
            "consumer_last_read_timestamp_seconds", "When a read was last answered, Unix time"
        )
        self.renewed = counter("leases_renewed_total", "Leases renewed")
        self.lost = counter("leases_lost_total", "Leases lost to another worker")
        self.reconnects = counter("reconnects_total", "Connections that came back")


class _Making:
    """Makes metrics for one registry, all of them with our prefix and the label `queue`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def counter(self, name: str, means: str, *labels: str) -> Counter:
        return Counter(_PREFIX + name, means, ("queue", *labels), registry=self._registry)

    def gauge(self, name: str, means: str, *labels: str) -> Gauge:
        return Gauge(_PREFIX + name, means, ("queue", *labels), registry=self._registry)

    def histogram(self, name: str, means: str, buckets: Sequence[float], *labels: str) -> Histogram:
        labelled = ("queue", *labels)
        return Histogram(_PREFIX + name, means, labelled, registry=self._registry, buckets=buckets)


# Weak, so that a registry that nobody has any more goes with its metrics.
_families: "weakref.WeakKeyDictionary[CollectorRegistry, Families]" = weakref.WeakKeyDictionary()
_making = threading.Lock()


def families(registry: CollectorRegistry) -> Families:
    """The metrics of a registry, made when they are first asked for."""
    with _making:
        if registry not in _families:
            _families[registry] = Families(registry)
        return _families[registry]


def own_registry() -> CollectorRegistry:
    """A new registry that also tells of the process: memory, CPU time, open files."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return registry


def exposition(registry: CollectorRegistry, accept: str) -> tuple[str, bytes]:
    """All metrics of a registry as text, in the form that `accept` asks for, and its type."""
    encoder, content_type = choose_encoder(accept)
    return content_type, encoder(registry)


class PrometheusSink(MetricsSink):
    """Receives the reports of the workers of one queue. May be called from any thread.

    Names of jobs become labels, and whoever adds jobs chooses them: the first `max_names` names
    keep theirs, all later ones are counted together as `(other)`, and the log says so once.
    """

    def __init__(
        self,
        queue: str,
        *,
        registry: CollectorRegistry = REGISTRY,
        max_names: int = _MOST_NAMES,
    ) -> None:
        """`queue` is the label; give one sink to all workers of that queue, or each its own."""
        if not isinstance(queue, str) or not queue:
            msg = f"queue is {queue!r}: pass the queue's name, it becomes the label `queue`"
            raise TypeError(msg)
        if isinstance(max_names, bool) or not isinstance(max_names, int) or max_names < 0:
            msg = f"max_names is {max_names!r}: use a whole number from 0"
            raise ValueError(msg)
        self.queue = queue
        self.registry = registry
        self._max_names = max_names
        made = self._families = families(registry)
        self._promoted = made.promoted.labels(queue)
        self._delayed_depth = made.delayed_depth.labels(queue)
        self._delayed_lag_ms = made.delayed_lag_ms.labels(queue)
        self._locks = {
            LockOutcome.ACQUIRED: made.lock_acquired.labels(queue),
            LockOutcome.HELD: made.lock_lost.labels(queue),
        }
        self._batch_size = made.batch_size.labels(queue)
        self._reclaimed = made.reclaimed.labels(queue)
        self._in_flight = made.in_flight.labels(queue)
        self._running = made.running.labels(queue)
        self._renewed = made.renewed.labels(queue)
        self._lost = made.lost.labels(queue)
        self._reconnects = made.reconnects.labels(queue)
        # By name as it came, so that a known name costs one look; at most `max_names` and one more.
        self._known: dict[str, str] = {}
        self._ok: dict[str, tuple[Histogram, Counter]] = {}
        self._has_others = False
        self._pulses = made.pulses.setdefault(queue, {})

    def __repr__(self) -> str:
        """Show the queue and how many names it has seen."""
        return f"<PrometheusSink {self.queue}, {len(self._known)} names>"

    def promoter_tick(self, tick: PromoterTick) -> None:
        """Count promoted jobs, note depth and lag of the delayed set."""
        if tick.promoted:
            self._promoted.inc(tick.promoted)
        self._delayed_depth.set(tick.depth)
        self._delayed_lag_ms.set(tick.oldest_pending_lag_ms)

    def promoter_lock_outcome(self, outcome: LockOutcome) -> None:
        """Count changes of leadership, the scheduler's too."""
        self._locks[outcome].inc()

    def reader_batch(self, batch: ReaderBatch) -> None:
        """Note the size of a read."""
        self._batch_size.observe(batch.size)
        if batch.reclaimed:
            self._reclaimed.inc(batch.reclaimed)

    def job_outcome(self, outcome: JobOutcome) -> None:
        """Count a run and note how long it took."""
        name = self._label(outcome.name)
        metrics = self._ok.get(name)
        if metrics is None:
            made = self._families
            metrics = self._ok[name] = (
                made.duration.labels(self.queue, name),
                made.completed.labels(self.queue, name),
            )
        metrics[0].observe(outcome.handler_duration_us / 1_000_000)
        if outcome.kind is JobOutcomeKind.OK:
            metrics[1].inc()
        else:
            kind = "panic" if outcome.kind is JobOutcomeKind.PANIC else "error"
            self._families.failed.labels(self.queue, kind, name).inc()

    def retry_scheduled(self, retry: RetryScheduled) -> None:
        """Count a retry and note its delay."""
        name = self._label(retry.name)
        self._families.retries.labels(self.queue, name).inc()
        self._families.backoff.labels(self.queue, name).observe(retry.backoff_ms / 1_000)

    def dlq_routed(self, dlq: DlqRouted) -> None:
        """Count a dead letter."""
        self._families.dead.labels(self.queue, str(dlq.reason), self._label(dlq.name)).inc()

    def rate_limited(self, limited: RateLimited) -> None:
        """Count a throttle and note how long it begins with."""
        self._families.limited.labels(self.queue).inc()
        self._families.limit_wait.labels(self.queue).observe(limited.wait_ms / 1_000)

    def worker_pulse(self, pulse: WorkerPulse) -> None:
        """Note how a worker stands; of several that share this sink, the sum and the worst."""
        if pulse.last_read_ms is None and not pulse.in_flight:
            self._pulses.pop(pulse.consumer_id, None)  # not begun yet, or stopped
        else:
            self._pulses[pulse.consumer_id] = pulse
        pulses = list(self._pulses.values())
        self._in_flight.set(sum(each.in_flight for each in pulses))
        self._running.set(sum(each.running for each in pulses))
        reads = [each.last_read_ms for each in pulses if each.last_read_ms is not None]
        if reads:
            self._families.last_read.labels(self.queue).set(min(reads) / 1_000)

    def leases_renewed(self, leases: LeasesRenewed) -> None:
        """Count renewed and lost leases."""
        self._renewed.inc(leases.renewed)
        self._lost.inc(leases.lost)

    def reconnected(self, reconnected: Reconnected) -> None:
        """Count connections that came back."""
        self._reconnects.inc(reconnected.count)

    def queue_depths(self, depths: QueueDepths) -> None:
        """Note how deep the queue is, and its lag."""
        for state in _STATES:
            self._families.depth.labels(self.queue, state).set(getattr(depths, state))
        self._families.lag.labels(self.queue).set(depths.lag_ms / 1_000)

    def forget_depths(self) -> None:
        """Show no depth and no lag: the queue could not be looked at, and old numbers mislead."""
        with suppress(KeyError):
            self._families.lag.remove(self.queue)
            for state in _STATES:
                self._families.depth.remove(self.queue, state)

    def _label(self, name: str) -> str:
        label = self._known.get(name)
        if label is not None:
            return label
        if len(self._known) < self._max_names:
            self._known[name] = name
            return name
        if not self._has_others:
            self._has_others = True
            log.warning("queue %s has more than %d job names: further ones are counted as %s; put "
                        "what varies into the data", self.queue, self._max_names, OTHER_NAMES,
                        extra={"queue": self.queue})  # fmt: skip
        return OTHER_NAMES
