"""Frozen config values: each field's meaning, default and rule, written once.

Field names and defaults are those of the documented engine. What is ours is marked as such. A value
that cannot work is a `ConfigError` when the config is made, before anything is connected. A
duration may be given as a `timedelta`; it is kept in the unit that its name ends in.
"""

import math
import uuid
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Literal, TypeAlias

from chasquimq.errors import ConfigError
from chasquimq.given import Duration, in_unit_of, queue_name
from chasquimq.metrics import NO_METRICS, MetricsSink

Overflow: TypeAlias = Literal["reject", "wait", "trim"]
OVERFLOWS: tuple[Overflow, ...] = ("reject", "wait", "trim")
RateLimitScope: TypeAlias = Literal["queue", "worker"]
RATE_LIMIT_SCOPES: tuple[RateLimitScope, ...] = ("queue", "worker")

_ENDLESS_MS = 5_000

LEAST_LEASE_MS = 5_000
"""The shortest lease that is accepted, by how late a renewal may come.

One is due when half of the lease has passed at the latest, and must have come before all of it has:
its thread has half a lease to get hold of the interpreter and of a processor. On two cores at a
load of up to 12 renewals were late by 0.63 s at most, of 2,400, while pure Python blocked the event
loop; by 1.9 s while 16 plain functions computed in threads, by 4.6 s while 100 did.
"""

UNIQUE_GRACE_SECS = 3_600
"""How long an id stays taken after its job was due."""

TRACE_TTL_SECS = 7 * 24 * 3_600
"""How long what a job carries of its trace is kept after it was due, unless it succeeds sooner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryConfig:
    """The queue-wide curve of delays between attempts; a job's own rules go before it."""

    initial_backoff_ms: Duration[int] = Duration(100)
    """Delay after the first failure."""
    max_backoff_ms: Duration[int] = Duration(30_000)
    """No delay is longer."""
    multiplier: float = 2.0
    """Growth from one failure to the next."""
    jitter_ms: Duration[int] = Duration(100)
    """Random part, between minus and plus this much."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        _require_counts(self, "initial_backoff_ms", "max_backoff_ms", "jitter_ms")
        if not _is_number(self.multiplier) or not 0 < self.multiplier < math.inf:
            _refuse("multiplier", self.multiplier, "a finite number above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """How jobs are added to a queue."""

    queue_name: str = "default"
    """Which queue."""
    pool_size: int = 8
    """Accepted for compatibility. One pipelined connection serves any number of callers."""
    max_stream_len: int = 1_000_000
    """How many jobs may wait or be in flight; `overflow` says what happens beyond."""
    max_delay_secs: Duration[int] = Duration(30 * 24 * 3_600)
    """The longest delay that is accepted; 0 accepts any."""
    overflow: Overflow = "reject"
    """Ours. At the limit: `reject` the add, `wait` for room, or `trim` the oldest jobs away."""
    overflow_timeout_ms: Duration[int] = Duration(30_000)
    """Ours. How long `wait` waits."""
    max_payload_bytes: int = 1_048_576
    """Ours. Larger jobs are refused when added, where the caller can see it."""
    events_enabled: bool = True
    """Ours. Tell `waiting` and `delayed` to the events stream."""
    events_max_stream_len: int = 100_000
    """Ours. Cap of the events stream."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        queue_name(self.queue_name)
        _require_counts(self, "pool_size")
        if self.pool_size < 1:
            msg = f"pool_size must be > 0 (got {self.pool_size}): leave it out"
            raise ConfigError(msg)
        _require_counts(self, "max_delay_secs", "overflow_timeout_ms")
        _require_counts(
            self, "max_stream_len", "max_payload_bytes", "events_max_stream_len", least=1
        )
        if self.overflow not in OVERFLOWS:
            _refuse("overflow", self.overflow, "one of " + ", ".join(OVERFLOWS))


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """How recurring jobs are fired."""

    queue_name: str = "default"
    """Which queue."""
    tick_interval_ms: Duration[int] = Duration(1_000)
    """The longest sleep; a window that comes sooner ends it."""
    batch: int = 256
    """Specs looked at in one step, at most."""
    max_stream_len: int = 1_000_000
    """Firing pauses while the stream holds this many; windows are then late, not lost."""
    lock_ttl_secs: Duration[int] = Duration(5)
    """How long a silent leader keeps the lock."""
    holder_id: str = field(default_factory=lambda: f"s-{uuid.uuid4()}")
    """This scheduler's token, unique among live ones."""
    events_enabled: bool = True
    """Ours. Tell `waiting` for each fired job."""
    events_max_stream_len: int = 100_000
    """Ours. Cap of the events stream."""
    metrics: MetricsSink = NO_METRICS
    """Receiver of in-process reports."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        queue_name(self.queue_name)
        _require_text(self, "holder_id")
        _require_sink(self.metrics)
        _require_counts(
            self,
            "tick_interval_ms", "batch", "max_stream_len", "lock_ttl_secs", "events_max_stream_len",
            least=1,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """How a worker reads, runs and settles jobs."""

    queue_name: str = "default"
    """Which queue."""
    group: str = "default"
    """The consumer group; a queue has one."""
    consumer_id: str = field(default_factory=lambda: f"c-{uuid.uuid4()}")
    """This worker's name in the group, unique among live workers."""
    batch: int = 64
    """Most entries read ahead of free slots; eight times as many if they are done within 10 ms."""
    block_ms: Duration[int] = Duration(5_000)
    """How long a read waits for a job."""
    claim_min_idle_ms: Duration[int] = Duration(30_000)
    """The lease: how long a delivery may be silent before another worker takes it over;
    `LEAST_LEASE_MS` or more."""
    concurrency: int = 100
    """Handlers that run at the same time."""
    max_attempts: int = 3
    """Runs a job may have in all, unless it brings its own number."""
    ack_batch: int = 256
    """Acknowledgements that are flushed together, at most."""
    ack_idle_ms: Duration[int] = Duration(5)
    """Accepted for compatibility: acknowledgements leave at once, together with this turn's."""
    shutdown_deadline_secs: Duration[float] = Duration(30.0)
    """How long a stop waits for running handlers."""
    max_payload_bytes: int = 1_048_576
    """Larger entries go to the DLQ unrun."""
    dlq_inflight: int = 32
    """Dead letters on their way at the same time, at most."""
    dlq_max_stream_len: int = 100_000
    """Cap of the dead-letter stream."""
    retry: RetryConfig = field(default_factory=RetryConfig)
    """The queue-wide curve of delays."""
    retry_inflight: int = 64
    """Retries on their way at the same time, at most."""
    delayed_enabled: bool = True
    """Run a promoter in this worker."""
    delayed_poll_interval_ms: Duration[int] = Duration(100)
    """The longest a promoter sleeps."""
    delayed_promote_batch: int = 256
    """Jobs promoted in one step, at most."""
    delayed_max_stream_len: int = 1_000_000
    """Promotion pauses while the stream holds this many; nothing is dropped."""
    delayed_lock_ttl_secs: Duration[int] = Duration(5)
    """How long a silent leader keeps the promoter's lock."""
    events_enabled: bool = True
    """Tell the events stream what happens."""
    events_max_stream_len: int = 100_000
    """Cap of the events stream."""
    run_scheduler: bool = True
    """Run a scheduler in this worker."""
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    """How it works; its queue is always this worker's."""
    store_results: bool = False
    """Keep what handlers return."""
    result_ttl_secs: Duration[int] = Duration(3_600)
    """For how long; progress and logs too."""
    rate_limit_max: int | None = None
    """Jobs that may be taken in `rate_limit_duration_ms`, after a burst of as many."""
    rate_limit_duration_ms: Duration[int] = Duration(1_000)
    """The time over which the limit refills; a `RateLimitError` without a time postpones for it."""
    rate_limit_scope: RateLimitScope = "queue"
    """Ours. Whose limit it is: shared by the workers of the queue, or this worker's own."""
    log_max_stream_len: int = 1_000
    """Lines kept of a job's log, about."""
    log_max_line_bytes: int = 8_192
    """Longer lines are cut, with a mark."""
    events_progress_enabled: bool = True
    """Tell `progress` to the events stream."""
    metrics: MetricsSink = NO_METRICS
    """Receiver of in-process reports."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        _require_counts(self, "max_attempts", "block_ms", "ack_idle_ms")
        _require_counts(
            self,
            "batch", "concurrency", "ack_batch", "max_payload_bytes", "dlq_inflight",
            "dlq_max_stream_len", "retry_inflight", "delayed_poll_interval_ms",
            "delayed_promote_batch", "delayed_max_stream_len", "delayed_lock_ttl_secs",
            "events_max_stream_len", "result_ttl_secs", "rate_limit_duration_ms",
            "log_max_stream_len",
            least=1,
        )  # fmt: skip
        _require_counts(self, "log_max_line_bytes", least=16)
        _require_counts(self, "claim_min_idle_ms")
        if self.claim_min_idle_ms < LEAST_LEASE_MS:
            msg = (
                f"claim_min_idle_ms must be {LEAST_LEASE_MS} or more; got {self.claim_min_idle_ms}:"
                " a shorter lease runs out before a busy worker can renew it, and its jobs are"
                " taken from it while they run; leave it out for 30000"
            )
            raise ConfigError(msg)
        if self.rate_limit_max is not None:
            _require_counts(self, "rate_limit_max", least=1)
        if self.rate_limit_scope not in RATE_LIMIT_SCOPES:
            _refuse("rate_limit_scope", self.rate_limit_scope, "one of queue, worker")
        _require_text(self, "queue_name", "group", "consumer_id")
        queue_name(self.queue_name)
        _require_sink(self.metrics)
        _require_kind(self, "retry", RetryConfig)
        _require_kind(self, "scheduler", SchedulerConfig)
        if isinstance(self.shutdown_deadline_secs, timedelta):
            deadline_s = self.shutdown_deadline_secs.total_seconds()
            object.__setattr__(self, "shutdown_deadline_secs", deadline_s)
        if not _is_number(self.shutdown_deadline_secs) or not self.shutdown_deadline_secs >= 0:
            _refuse("shutdown_deadline_secs", self.shutdown_deadline_secs, "0 or more")

    @property
    def longest_read_ms(self) -> int:
        """How long one read may block: one without a limit is asked again and again."""
        return self.block_ms or _ENDLESS_MS

    def promoter(self) -> "PromoterConfig":
        """The config of the promoter that runs inside this worker."""
        return PromoterConfig(
            queue_name=self.queue_name,
            poll_interval_ms=self.delayed_poll_interval_ms,
            promote_batch=self.delayed_promote_batch,
            max_stream_len=self.delayed_max_stream_len,
            lock_ttl_secs=self.delayed_lock_ttl_secs,
            holder_id=self.consumer_id,
            events_enabled=self.events_enabled,
            events_max_stream_len=self.events_max_stream_len,
            dlq_max_stream_len=self.dlq_max_stream_len,
            metrics=self.metrics,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PromoterConfig:
    """How due jobs are moved to the stream."""

    queue_name: str = "default"
    """Which queue."""
    poll_interval_ms: Duration[int] = Duration(100)
    """The longest sleep; a job that is due sooner ends it."""
    promote_batch: int = 256
    """Jobs moved in one step, at most."""
    max_stream_len: int = 1_000_000
    """Promotion pauses while the stream holds this many; nothing is dropped."""
    lock_ttl_secs: Duration[int] = Duration(5)
    """How long a silent leader keeps the lock."""
    holder_id: str = field(default_factory=lambda: f"p-{uuid.uuid4()}")
    """This promoter's token, unique among live ones."""
    events_enabled: bool = True
    """Tell `waiting` for each promoted job."""
    events_max_stream_len: int = 100_000
    """Cap of the events stream."""
    dlq_max_stream_len: int = 100_000
    """Ours. Cap of the dead-letter stream, where members that are not jobs are set aside."""
    metrics: MetricsSink = NO_METRICS
    """Receiver of in-process reports."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        queue_name(self.queue_name)
        _require_text(self, "holder_id")
        _require_sink(self.metrics)
        _require_counts(
            self,
            "poll_interval_ms", "promote_batch", "max_stream_len", "lock_ttl_secs",
            "events_max_stream_len", "dlq_max_stream_len",
            least=1,
        )  # fmt: skip


def ttl_secs(result_ttl_ms: int | timedelta | None) -> int | None:
    """How long results are kept, in whole seconds, rounded up; None for the default."""
    if isinstance(result_ttl_ms, timedelta):
        result_ttl_ms = in_unit_of("result_ttl_ms", result_ttl_ms)
    if result_ttl_ms is None:
        return None
    if isinstance(result_ttl_ms, bool) or result_ttl_ms <= 0:
        msg = f"result_ttl_ms must be positive; got {result_ttl_ms}"
        raise ConfigError(msg)
    return -(-result_ttl_ms // 1_000)


def _require_counts(config: object, *names: str, least: int = 0) -> None:
    known = {each.name for each in fields(config)}  # type: ignore[arg-type]
    for name in names:
        assert name in known, name  # noqa: S101 -- a slip in this module
        value = getattr(config, name)
        if isinstance(value, timedelta) and name.endswith(("_ms", "_secs")):
            value = in_unit_of(name, value)
            object.__setattr__(config, name, value)
        if isinstance(value, bool) or not isinstance(value, int):
            _refuse(name, value, "a whole number")
        elif value < 0:
            _refuse(name, value, "non-negative")
        elif value < least:
            _refuse(name, value, f"{least} or more")


def _require_text(config: object, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if not isinstance(value, str) or not value:
            _refuse(name, value, "non-empty text")


def _require_kind(config: object, name: str, kind: type) -> None:
    value = getattr(config, name)
    if not isinstance(value, kind):
        _refuse(name, value, f"a {kind.__name__}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _require_sink(metrics: object) -> None:
    # One of its methods stands for all: a sink may have the shape without the base.
    if not callable(getattr(metrics, "job_outcome", None)):
        _refuse("metrics", metrics, "a sink, with the methods of MetricsSink")


def _refuse(name: str, value: object, rule: str) -> None:
    msg = f"{name} must be {rule}; got {value!r}"
    raise ConfigError(msg)
