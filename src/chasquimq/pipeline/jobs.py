"""What is told of jobs to one row for each: when it came, what it took, how it stands. Pure."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own habit

from chasquimq.pipeline.instants import ulid_time
from chasquimq.pipeline.sql import when
from chasquimq.pipeline.tables import JOBS, SCHEMA_VERSION
from chasquimq.wire.event import EventName

# By the id first, as in `runs.py`.
_KEY = ("job_id", "queue")
_OF_LAST_LIFE = ("began_at", "first_at_of_life", "outcome", "finished_at", "dlq_reason")
_ERRORS = ("error", "error_fingerprint")


def jobs(all_parts: DataFrame) -> DataFrame:
    """One row for each job that any event tells of.

    A job that was cancelled, drained or removed tells nobody: it stays as it was last told of.
    """
    found = (
        _lives(all_parts)
        .groupBy(*_KEY)
        .agg(
            F.expr("any_value(bucket) AS bucket"),
            F.expr("coalesce(max(name), '') AS name"),
            F.expr("max(life) AS lives"),
            F.expr(f"coalesce(min(created_at), {ulid_time('job_id')}) AS created_at"),
            F.expr(f"min({when('life = 1', 'began_at')}) AS told_arrived_at"),
            F.expr("min(first_at_of_life) AS first_at"),
            *(F.expr(f"max_by({name}, life) AS {name}") for name in _OF_LAST_LIFE),
            *(F.expr(f"sum({name}) AS {name}") for name in ("attempts", "failures", "retries")),
            F.expr(f"min_by(waited_ms, {when('attempts > 0', 'life')}) AS waited_ms"),
            F.expr("sum(ran_us) AS ran_us"),
            *(
                F.expr(f"max_by({name}, {when('failures > 0', 'life')}) AS {name}")
                for name in _ERRORS
            ),
        )
    )
    # A life after the first began when the job was replayed, or added anew.
    counted_from = (
        "IF(lives > 1, coalesce(began_at, first_at_of_life), coalesce(created_at, told_arrived_at))"
    )
    total_ms = f"unix_millis(finished_at) - unix_millis({counted_from})"
    return JOBS.select(
        found.selectExpr(
            "*",
            "coalesce(told_arrived_at, created_at, first_at) AS arrived_at",
            # Two clocks may be at work.
            f"{when(f'{total_ms} IS NOT NULL', f'greatest({total_ms}, 0)')} AS total_ms",
            f"{SCHEMA_VERSION} AS schema_version",
        )
    )


def _lives(all_parts: DataFrame) -> DataFrame:
    """One row for each life of a job."""
    is_run, has_failed = "run >= 1", "run >= 1 AND outcome = 'failed'"
    found = all_parts.groupBy(*_KEY, "life").agg(
        F.expr("any_value(bucket) AS bucket"),
        F.expr("max(name) AS name"),
        F.expr("min(created_at) AS created_at"),
        F.expr("min(began_at) AS began_at"),
        F.expr("min(first_at) AS first_at_of_life"),
        F.expr("min(completed_at) AS completed_at"),
        F.expr("min(dead_at) AS dead_at"),
        F.expr("max(dlq_reason) AS told_reason"),
        F.expr("max(last).event AS last_event"),
        F.expr(f"count_if({is_run}) AS attempts"),
        F.expr(f"count_if({has_failed}) AS failures"),
        F.expr(f"count_if({is_run} AND `then` = 'retry') AS retries"),
        F.expr(f"min_by(waited_ms, {when(is_run, 'run')}) AS waited_ms"),
        F.expr(f"sum({when(is_run, 'ran_us')}) AS ran_us"),
        *(F.expr(f"max_by({name}, {when(has_failed, 'run')}) AS {name}") for name in _ERRORS),
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
