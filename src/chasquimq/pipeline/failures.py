"""Failed runs and dead jobs, minute by minute, by what went wrong. Pure."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own habit

from chasquimq.pipeline import instants
from chasquimq.pipeline.tables import FAILURES, SCHEMA_VERSION


def fallen(runs: DataFrame, jobs: DataFrame) -> DataFrame:
    """Both kinds: a job that was given up is there as a job, and each of its runs as a run."""
    what_failed = ("queue", "name", "error", "error_fingerprint")
    of_runs = runs.where((F.col("outcome") == "failed") & F.col("ended_at").isNotNull()).select(
        *what_failed,
        F.col("ended_at").alias("at"),
        F.lit("run").alias("kind"),
        F.lit("error").alias("reason"),
    )
    of_jobs = jobs.where(F.col("outcome") == "dead").select(
        *what_failed,
        F.col("finished_at").alias("at"),
        F.lit("job").alias("kind"),
        F.coalesce("dlq_reason", F.lit("unknown")).alias("reason"),
    )
    return of_runs.unionByName(of_jobs)


def failures(all_fallen: DataFrame) -> DataFrame:
    """What failed, counted by reason."""
    placed = all_fallen.withColumns(
        {
            "period": instants.period(F.col("at"), instants.MINUTE_MS),
            "error_fingerprint": F.coalesce("error_fingerprint", F.lit("")),
        }
    )
    counted = placed.groupBy("queue", "name", "period", "kind", "reason", "error_fingerprint").agg(
        F.max("error").alias("error"), F.count(F.lit(1)).alias("failures")
    )
    return FAILURES.select(
        counted.withColumns(
            {"hour": instants.hour(F.col("period")), "schema_version": F.lit(SCHEMA_VERSION)}
        )
    )
