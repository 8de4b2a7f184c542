"""Runs and jobs to what happened in a minute, an hour or a day, for each queue and name. Pure."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own habit

from chasquimq.pipeline import instants
from chasquimq.pipeline.scope import EVERYTHING, Scope
from chasquimq.pipeline.slo import Slo
from chasquimq.pipeline.tables import DAYS, HOURS, MINUTES, SCHEMA_VERSION, Table

_SHARES = (0.5, 0.95, 0.99)
# Values from here on are rounded to three digits before percentiles are taken of them.
_EXACT_BELOW = 1_000


UNITS = ((MINUTES, instants.MINUTE_MS), (HOURS, instants.HOUR_MS), (DAYS, instants.DAY_MS))
"""Every table of periods, and how long one is."""

_COUNTED = ("arrivals", "runs", "completed", "dead", "failures", "retries", "slo_good")


def periods(
    all_facts: DataFrame, gaps: DataFrame, *, slo: Slo, hours: Scope = EVERYTHING
) -> DataFrame:
    """A row for each queue, name and period of which there are facts, of all lengths at once.

    Minutes of the `hours` of a scope, hours and days of its days; `rows_of` tells them apart. A run
    counts when it ended, a job when it arrived and when it finished: so a job that is replayed
    leaves the period of its first end for that of its last.
    """
    units = F.array(*(F.lit(unit_ms) for _, unit_ms in UNITS))
    each = all_facts.withColumn("unit_ms", F.explode(units)).where(in_scope("at", hours))
    placed = each.withColumn("period", instants.period(F.col("at"), F.col("unit_ms")))
    figured = figures(placed, ("queue", "name", "unit_ms", "period"), slo)
    return _with_completeness(figured, gaps).withColumns(
        {
            "slo_ms": F.lit(slo.within_ms),
            "slo_target": F.lit(slo.target),
            "schema_version": F.lit(SCHEMA_VERSION),
            "hour": instants.hour(F.col("period")),
            "day": instants.day(F.col("period")),
        }
    )


def rows_of(table: Table, all_periods: DataFrame) -> DataFrame:
    """The rows of one table of periods."""
    [unit_ms] = [unit_ms for each, unit_ms in UNITS if each is table]
    return table.select(all_periods.where(F.col("unit_ms") == unit_ms))


def facts(runs: DataFrame, jobs: DataFrame, slo: Slo) -> DataFrame:
    """All that can be counted, each `at` its instant: runs that ended, jobs that came or ended."""
    return _of_runs(runs).unionByName(_of_jobs(jobs, slo), allowMissingColumns=True)


def figures(placed: DataFrame, by: Sequence[str], slo: Slo) -> DataFrame:
    """Facts counted, and every measure of them; `unit_ms` says how long each group lasts."""
    counted = placed.groupBy(*by).agg(
        *(F.count_if(F.col(name)).alias(name) for name in _COUNTED),
        F.count_distinct("run_of").alias("jobs_run"),
        F.sum("ran_us").alias("ran_us"),
        *(_percentiles(name).alias(f"{name}_at") for name in ("waited_ms", "ran_us", "total_ms")),
    )
    return counted.withColumns(_measures(slo))


def in_scope(at: str, hours: Scope) -> Column:
    """Whether a fact of an instant is in a scope: in its hours if for minutes, else its days."""
    instant, queue = F.col(at), F.col("queue")
    of_hour, of_day = (
        hours.holds(queue, instants.hour(instant)),
        hours.days().holds(queue, instants.day(instant)),
    )
    return F.when(F.col("unit_ms") == instants.MINUTE_MS, of_hour).otherwise(of_day)


def _of_runs(runs: DataFrame) -> DataFrame:
    return runs.where(F.col("ended_at").isNotNull()).select(
        "queue",
        "name",
        F.col("ended_at").alias("at"),
        F.expr("true").alias("runs"),
        (F.col("outcome") == "failed").alias("failures"),
        (F.col("then") == "retry").alias("retries"),
        F.col("job_id").alias("run_of"),
        "waited_ms",
        "ran_us",
    )


def _of_jobs(jobs: DataFrame, slo: Slo) -> DataFrame:
    """Two facts for each job that is done: that it came, and that it ended."""
    came = jobs.select(
        "queue", "name", F.col("arrived_at").alias("at"), F.expr("true").alias("arrivals")
    )
    is_completed = F.col("outcome") == "completed"
    ended = jobs.where(F.col("finished_at").isNotNull()).select(
        "queue",
        "name",
        F.col("finished_at").alias("at"),
        is_completed.alias("completed"),
        (F.col("outcome") == "dead").alias("dead"),
        (is_completed & (F.col("total_ms") <= slo.within_ms)).alias("slo_good"),
        "total_ms",
    )
    return came.unionByName(ended, allowMissingColumns=True)


def _measures(slo: Slo) -> dict[str, Column]:
    runs, finished = F.col("runs"), F.col("completed") + F.col("dead")
    bad_share = _ratio(finished - F.col("slo_good"), finished)
    at = {
        f"{what}_p{percent}_ms": F.col(f"{of}_at")[place] / per_ms
        for what, of, per_ms in (("wait", "waited_ms", 1), ("run", "ran_us", 1_000),
                                 ("total", "total_ms", 1))
        for place, percent in enumerate((50, 95, 99))
    }  # fmt: skip
    return at | {
        "throughput_per_s": F.col("completed") / (F.col("unit_ms") / 1_000),
        "failure_rate": _ratio(F.col("failures"), runs),
        "retry_rate": _ratio(F.col("retries"), runs),
        "retry_amplification": _ratio(runs, F.col("jobs_run")),
        "handler_seconds": F.coalesce(F.col("ran_us"), F.lit(0)) / 1_000_000,
        "slo_burn": F.round(bad_share / (1 - slo.target), 6),
    }


def _with_completeness(counted: DataFrame, gaps: DataFrame) -> DataFrame:
    period_ms = F.unix_millis("period")
    begins_before = F.unix_millis("from_at") < period_ms + F.col("unit_ms")
    ends_after = F.unix_millis(F.coalesce("to_at", "from_at")) >= period_ms
    gap = gaps.select(F.col("queue").alias("gap_queue"), "from_at", "to_at")
    is_hit = (F.col("queue") == F.col("gap_queue")) & begins_before & ends_after
    where = ["queue", "unit_ms", "period"]
    # Gaps are few; a period with several is in the one row that `distinct` leaves of it.
    hit = counted.select(*where).distinct().join(F.broadcast(gap), on=is_hit, how="left_semi")
    flagged = hit.withColumn("is_complete", F.expr("false"))
    return counted.join(flagged, on=where, how="left").withColumn(
        "is_complete", F.coalesce("is_complete", F.expr("true"))
    )


def _percentiles(name: str) -> Column:
    """Percentiles that are the same whichever order rows come in, and need little memory.

    Exact ones of values rounded to three digits: at most some thousand different ones.
    """
    value = F.col(name)
    step = F.pow(F.lit(10.0), F.floor(F.log10(value)) - 2)
    rounded = F.when(value < _EXACT_BELOW, value.cast("double")).otherwise(
        F.round(value / step) * step
    )
    return F.percentile(rounded, [float(each) for each in _SHARES])


def _ratio(part: Column, whole: Column) -> Column:
    """Null where there is nothing to have a share of."""
    return F.when(whole > 0, part / whole)
