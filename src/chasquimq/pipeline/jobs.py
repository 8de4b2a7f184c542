"""Events and runs to jobs: when each came, what it took, and how it stands. Pure."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own habit

from chasquimq.pipeline.instants import ulid_time
from chasquimq.pipeline.runs import is_any
from chasquimq.pipeline.sql import when
from chasquimq.pipeline.tables import JOBS, SCHEMA_VERSION
from chasquimq.wire.event import EventName

_KEY = ("queue", "bucket", "job_id")
_OF_LAST_LIFE = ("began_at", "first_at_of_life", "outcome", "finished_at", "dlq_reason")


def jobs(lived_events: DataFrame, runs: DataFrame) -> DataFrame:
    """One row for each job that any event tells of.

    A job that was cancelled, drained or removed tells nobody: it stays as it was last told of.
    """
    whole = (
        _lives(lived_events)
        .groupBy(*_KEY)
        .agg(
            F.expr("coalesce(max(name), '') AS name"),
            F.expr("max(life) AS lives"),
            F.expr(f"coalesce(min(created_at), {ulid_time('job_id')}) AS created_at"),
            F.expr(f"min({when('life = 1', 'began_at')}) AS told_arrived_at"),
            F.expr("min(first_at_of_life) AS first_at"),
            *(F.expr(f"max_by({name}, life) AS {name}") for name in _OF_LAST_LIFE),
        )
    )
    # A life after the first began when the job was replayed, or added anew.
    counted_from = (
        "IF(lives > 1, coalesce(began_at, first_at_of_life), coalesce(created_at, told_arrived_at))"
    )
    total_ms = f"unix_millis(finished_at) - unix_millis({counted_from})"
    # The rows of a job are together already, since its events were put in order: none moves.
    found = whole.join(_sums(runs).hint("merge"), on=["queue", "job_id"], how="left")
    return JOBS.select(
        found.selectExpr(
            "*",
            "coalesce(told_arrived_at, created_at, first_at) AS arrived_at",
            # Two clocks may be at work.
            f"{when(f'{total_ms} IS NOT NULL', f'greatest({total_ms}, 0)')} AS total_ms",
            "coalesce(its_runs, 0) AS attempts",
            "coalesce(its_failures, 0) AS failures",
            "coalesce(its_retries, 0) AS retries",
            f"{SCHEMA_VERSION} AS schema_version",
        )
    )


def _lives(lived_events: DataFrame) -> DataFrame:
    """One row for each life of a job."""
    is_completed, is_dead = is_any(EventName.COMPLETED), is_any(EventName.DLQ)
    began = is_any(EventName.WAITING, EventName.DELAYED)
    found = lived_events.groupBy(*_KEY, "life").agg(
        F.expr("max(name) AS name"),
        F.expr("min(created_at) AS created_at"),
        F.expr(f"min({when(began, 'event_at')}) AS began_at"),
        F.expr("min(event_at) AS first_at_of_life"),
        F.expr(f"min({when(is_completed, 'event_at')}) AS completed_at"),
        F.expr(f"min({when(is_dead, 'event_at')}) AS dead_at"),
        F.expr(f"max({when(is_dead, 'reason')}) AS told_reason"),
        F.expr("max_by(event, struct(entry_at, entry_seq)) AS last_event"),
    )
    # Ended if any event says so, else as the last one says.
    outcome = f"""CASE
        WHEN completed_at IS NOT NULL THEN 'completed'
        WHEN dead_at IS NOT NULL THEN 'dead'
        WHEN last_event = '{EventName.RETRY_SCHEDULED}' THEN 'retrying'
        ELSE last_event
    END"""
    return found.selectExpr(
        "*",
        f"{outcome} AS outcome",
        "coalesce(completed_at, dead_at) AS finished_at",
        f"{when('completed_at IS NULL', 'told_reason')} AS dlq_reason",
    )


def _sums(runs: DataFrame) -> DataFrame:
    """What the runs of a job come to."""
    order, has_failed = "struct(life, attempt)", "outcome = 'failed'"
    return runs.groupBy("queue", "job_id").agg(
        F.expr("count(1) AS its_runs"),
        F.expr(f"count_if({has_failed}) AS its_failures"),
        F.expr("count_if(`then` = 'retry') AS its_retries"),
        F.expr(f"min_by(waited_ms, {order}) AS waited_ms"),
        F.expr("sum(ran_us) AS ran_us"),
        *(
            F.expr(f"max_by({name}, {when(has_failed, order)}) AS {name}")
            for name in ("error", "error_fingerprint")
        ),
    )
