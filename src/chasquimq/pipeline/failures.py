"""Failed runs and dead jobs, minute by minute, by what went wrong. Pure."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own habit

from chasquimq.pipeline import instants
from chasquimq.pipeline.tables import FAILURES, SCHEMA_VERSION


def fallen(runs: DataFrame, jobs: DataFrame) -> DataFrame:
    """Both kinds: a job that was given up is there as a job, and each of its runs as a run."""
    what_failed = ("queue", "name", "error", "error_fingerprint")
    of_runs = runs.where("outcome = 'failed' AND ended_at IS NOT NULL").selectExpr(
        *what_failed, "ended_at AS at", "'run' AS kind", "'error' AS reason"
    )
    of_jobs = jobs.where("outcome = 'dead'").selectExpr(
        *what_failed,
        "finished_at AS at",
        "'job' AS kind",
        "coalesce(dlq_reason, 'unknown') AS reason",
    )
    return of_runs.unionByName(of_jobs)


def failures(all_fallen: DataFrame) -> DataFrame:
    """What failed, counted by reason."""
    placed = all_fallen.selectExpr(
        *("queue", "name", "kind", "reason", "error"),
        f"{instants.period('at', instants.MINUTE_MS)} AS period",
        "coalesce(error_fingerprint, '') AS error_fingerprint",
    )
    counted = placed.groupBy("queue", "name", "period", "kind", "reason", "error_fingerprint").agg(
        F.expr("max(error) AS error"), F.expr("count(1) AS failures")
    )
    return FAILURES.select(
        counted.selectExpr(
            "*", f"{instants.stretch('period')} AS stretch", f"{SCHEMA_VERSION} AS schema_version"
        )
    )
