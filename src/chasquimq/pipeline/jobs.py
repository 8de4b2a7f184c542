"""Events and runs to jobs: when each came, what it took, and how it stands. Pure."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own habit

from chasquimq.pipeline.instants import ulid_time
from chasquimq.pipeline.runs import is_any
from chasquimq.pipeline.tables import JOBS, SCHEMA_VERSION
from chasquimq.wire.event import EventName

_KEY = ("queue", "bucket", "job_id")


def jobs(lived_events: DataFrame, runs: DataFrame) -> DataFrame:
    """One row for each job that any event tells of.

    A job that was cancelled, drained or removed tells nobody: it stays as it was last told of.
    """
    lives = _lives(lived_events)
    last = {name: F.max_by(name, "life").alias(name) for name in _OF_LAST_LIFE}
    whole = lives.groupBy(*_KEY).agg(
        F.max("name").alias("name"),
        F.max("life").alias("lives"),
        F.min("created_at").alias("told_created_at"),
        F.min(F.when(F.col("life") == 1, F.col("began_at"))).alias("told_arrived_at"),
        F.min("first_at").alias("first_at"),
        *last.values(),
    )
    created_at = F.coalesce("told_created_at", ulid_time(F.col("job_id")))
    # A life after the first began when the job was replayed, or added anew.
    counted_from = F.when(F.col("lives") > 1, F.coalesce("began_at", "first_at_of_life")).otherwise(
        F.coalesce(created_at, F.col("told_arrived_at"))
    )
    total_ms = F.unix_millis("finished_at") - F.unix_millis(counted_from)
    # The rows of a job are together already, since its events were put in order: none moves.
    found = whole.join(_sums(runs).hint("merge"), on=["queue", "job_id"], how="left")
    return JOBS.select(
        found.withColumns(
            {
                "name": F.coalesce("name", F.lit("")),
                "arrived_at": F.coalesce(F.col("told_arrived_at"), created_at, F.col("first_at")),
                "created_at": created_at,
                # Two clocks may be at work.
                "total_ms": F.when(total_ms.isNotNull(), F.greatest(total_ms, F.lit(0))),
                **{
                    each: F.coalesce(each, F.lit(0)) for each in ("attempts", "failures", "retries")
                },
                "schema_version": F.lit(SCHEMA_VERSION),
            }
        )
    )


_OF_LAST_LIFE = ("began_at", "first_at_of_life", "outcome", "finished_at", "dlq_reason")


def _lives(lived_events: DataFrame) -> DataFrame:
    """One row for each life of a job."""
    at, order = F.col("event_at"), F.struct("entry_at", "entry_seq")
    is_completed, is_dead = is_any((EventName.COMPLETED,)), is_any((EventName.DLQ,))
    began = is_any((EventName.WAITING, EventName.DELAYED))
    found = lived_events.groupBy(*_KEY, "life").agg(
        F.max("name").alias("name"),
        F.min("created_at").alias("created_at"),
        F.min(F.when(began, at)).alias("began_at"),
        F.min(at).alias("first_at"),
        F.min(at).alias("first_at_of_life"),
        F.min(F.when(is_completed, at)).alias("completed_at"),
        F.min(F.when(is_dead, at)).alias("dead_at"),
        F.max(F.when(is_dead, F.col("reason"))).alias("dlq_reason"),
        F.max_by("event", order).alias("last_event"),
    )
    has_completed = F.col("completed_at").isNotNull()
    return found.withColumns(
        {
            "outcome": _outcome(),
            "finished_at": F.coalesce("completed_at", "dead_at"),
            "dlq_reason": F.when(~has_completed, F.col("dlq_reason")),
        }
    )


def _outcome() -> Column:
    """How a life stands: ended if any event says so, else as the last one says."""
    last = F.col("last_event")
    return (
        F.when(F.col("completed_at").isNotNull(), "completed")
        .when(F.col("dead_at").isNotNull(), "dead")
        .when(last == str(EventName.RETRY_SCHEDULED), "retrying")
        .otherwise(last)
    )


def _sums(runs: DataFrame) -> DataFrame:
    """What the runs of a job come to."""
    order = F.struct("life", "attempt")
    has_failed = F.col("outcome") == "failed"
    return runs.groupBy("queue", "job_id").agg(
        F.count(F.lit(1)).alias("attempts"),
        F.count_if(has_failed).alias("failures"),
        F.count_if(F.col("then") == "retry").alias("retries"),
        F.min_by("waited_ms", order).alias("waited_ms"),
        F.sum("ran_us").alias("ran_us"),
        F.max_by("error", F.when(has_failed, order)).alias("error"),
        F.max_by("error_fingerprint", F.when(has_failed, order)).alias("error_fingerprint"),
    )
