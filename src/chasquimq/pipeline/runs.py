"""Events to runs: which life of its job a run belongs to, how it waited, ran and ended. Pure."""

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own habit

from chasquimq.pipeline.fingerprints import of_message
from chasquimq.pipeline.tables import RUNS, SCHEMA_VERSION
from chasquimq.wire.event import EventName

_BEGINS = (EventName.WAITING, EventName.DELAYED)
_ENDS = (EventName.COMPLETED, EventName.DLQ)
_OF_RUNS = (
    EventName.ACTIVE,
    EventName.COMPLETED,
    EventName.FAILED,
    EventName.RETRY_SCHEDULED,
    EventName.DLQ,
)
STATES = (*_BEGINS, *_OF_RUNS)
"""Events that say how a job stands; the others only tell of it."""


def lived(bronze: DataFrame) -> DataFrame:
    """The events of jobs, each once, with the `life` of the job they belong to.

    A life ends when the job completes or is given up, and a new one begins when it is in the queue
    after that: replayed, or added anew under the same id. Attempts are counted within a life.
    Order is that of the stream, so events may come to bronze in any order.
    """
    of_jobs = F.col("job_id").isNotNull() & is_any(STATES)
    # Of the same id, whatever batch brought it; a job's own events never share one.
    once = bronze.where(of_jobs).dropDuplicates(["queue", "entry_id"])
    turn = F.when(is_any((*_BEGINS, *_ENDS)), F.col("event"))
    before = F.last(turn, ignorenulls=True).over(_before())
    begins_anew = is_any(_BEGINS) & before.isin(*map(str, _ENDS))
    so_far = _in_order().rowsBetween(Window.unboundedPreceding, Window.currentRow)
    marked = once.withColumn("begins_anew", F.coalesce(begins_anew, F.expr("false")))
    life = F.lit(1) + F.sum(F.col("begins_anew").cast("int")).over(so_far)
    return marked.withColumn("life", life.cast("int"))


def runs(lived_events: DataFrame) -> DataFrame:
    """One row for each run that any event tells of; told twice, it is still one."""
    told = (
        lived_events.withColumn("waited_ms", _waited_ms())
        .where(is_any(_OF_RUNS))
        .withColumn("attempt", _attempt())
        .where(F.col("attempt") >= 1)
    )
    is_retry, is_dead = is_any((EventName.RETRY_SCHEDULED,)), is_any((EventName.DLQ,))
    is_failed, is_completed = is_any((EventName.FAILED,)), is_any((EventName.COMPLETED,))
    at = F.col("event_at")
    found = told.groupBy("queue", "bucket", "job_id", "life", "attempt").agg(
        F.max("name").alias("name"),
        F.min(F.when(is_any((EventName.ACTIVE,)), at)).alias("started_at"),
        F.min(F.when(is_failed | is_completed, at)).alias("told_at"),
        F.min(F.when(is_retry | is_dead, at)).alias("settled_at"),
        F.min("waited_ms").alias("waited_ms"),
        F.max("duration_us").alias("ran_us"),
        F.max(is_completed).alias("has_completed"),
        F.max(is_failed | is_retry | is_dead).alias("has_failed"),
        F.max(is_retry).alias("has_retry"),
        F.max(is_dead).alias("is_dead"),
        F.max(F.when(is_retry, F.col("backoff_ms"))).alias("backoff_ms"),
        F.max(F.when(is_failed, F.col("reason"))).alias("error"),
    )
    outcome = (
        F.when(F.col("has_completed"), "completed")
        .when(F.col("has_failed"), "failed")
        .otherwise("open")
    )
    then = F.when(~F.col("has_completed") & F.col("has_retry"), "retry").when(
        ~F.col("has_completed") & F.col("is_dead"), "dead"
    )
    return RUNS.select(
        found.withColumns(
            {
                "name": F.coalesce("name", F.lit("")),
                "ended_at": F.coalesce("told_at", "settled_at"),
                "outcome": outcome,
                "then": then,
                "error_fingerprint": of_message(F.col("error")),
                "schema_version": F.lit(SCHEMA_VERSION),
            }
        )
    )


def is_any(names: tuple[EventName, ...]) -> Column:
    """Whether the event is one of these."""
    return F.col("event").isin(*map(str, names))


def _waited_ms() -> Column:
    """From the last time the job came to the stream until its run began.

    Two clocks may be at work, so never less than 0. Where no event says when it came, as the
    reference engine does not for new jobs, the run's own word counts for the first run; for others
    it would hold the time of the runs before, so they have none.
    """
    marks = is_any((EventName.WAITING, EventName.ACTIVE, EventName.RETRY_SCHEDULED))
    mark = F.last(F.when(marks, F.col("event")), ignorenulls=True).over(_before())
    mark_at = F.last(F.when(marks, F.col("event_at")), ignorenulls=True).over(_before())
    stood_ms = F.unix_millis("event_at") - F.unix_millis(mark_at)
    is_first = (F.col("attempt") == 1) & (F.col("life") == 1)
    waited_ms = F.when(mark == str(EventName.WAITING), stood_ms).when(is_first, F.col("wait_ms"))
    return F.when(is_any((EventName.ACTIVE,)), F.greatest(waited_ms, F.lit(0)))


def _attempt() -> Column:
    """The run an event tells of; `retry-scheduled` carries the number of the next one."""
    is_retry = is_any((EventName.RETRY_SCHEDULED,))
    return F.when(is_retry, F.col("attempt") - 1).otherwise(F.col("attempt"))


def _in_order() -> WindowSpec:
    return Window.partitionBy("queue", "job_id").orderBy("entry_at", "entry_seq")


def _before() -> WindowSpec:
    return _in_order().rowsBetween(Window.unboundedPreceding, -1)
