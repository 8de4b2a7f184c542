"""What happened in a minute, an hour or a day, for each queue and name. Pure.

Minutes are made of runs and jobs. Hours and days are added up from tallies of ten minutes, so one
more event does not have all runs and jobs of its day read again.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own habit

from chasquimq.pipeline import instants
from chasquimq.pipeline.slo import Slo
from chasquimq.pipeline.sql import when
from chasquimq.pipeline.tables import DAYS, HOURS, MINUTES, SCHEMA_VERSION, Table
from chasquimq.pipeline.tallies import (
    COUNTED,
    VALUES,
    added_up,
    is_first_of_job,
    percentiles,
    rounded,
)

ROLL_UPS = ((HOURS, instants.HOUR_MS), (DAYS, instants.DAY_MS))
"""Tables of periods that are added up from shorter ones, and how long one is."""
_BY = ("queue", "name", "unit_ms", "period")


def minutes(all_facts: DataFrame, gaps: DataFrame | None, *, slo: Slo) -> DataFrame:
    """A row for each queue, name and minute of which there are facts.

    A run counts when it ended, a job when it arrived and when it finished: so a job that is
    replayed leaves the period of its first end for that of its last. `gaps` is None if nothing was
    ever missing, as in most lakes: then there is nothing to join.
    """
    unit_ms = instants.MINUTE_MS
    placed = all_facts.selectExpr(
        "*", f"{unit_ms} AS unit_ms", f"{instants.period('at', unit_ms)} AS period"
    )
    jobs_run = f"count_if({is_first_of_job(unit_ms)})"
    return MINUTES.select(_told(figures(placed, _BY, slo, jobs_run=jobs_run), gaps, slo))


def roll_ups(all_tallies: DataFrame, gaps: DataFrame | None, *, slo: Slo) -> DataFrame:
    """The same for each hour and day; `rows_of` tells them apart."""
    units = ", ".join(str(unit_ms) for _, unit_ms in ROLL_UPS)
    each = all_tallies.selectExpr("*", f"explode(array({units})) AS unit_ms")
    placed = each.withColumn("period", F.expr(instants.period("period", "unit_ms")))
    return _told(_measured(added_up(placed, _BY), slo), gaps, slo)


def rows_of(table: Table, rolled_up: DataFrame) -> DataFrame:
    """The rows of one table of periods."""
    [unit_ms] = [unit_ms for each, unit_ms in ROLL_UPS if each is table]
    return table.select(rolled_up.where(f"unit_ms = {unit_ms}"))


def facts(runs: DataFrame, jobs: DataFrame, slo: Slo) -> DataFrame:
    """All that can be counted, each `at` its instant: runs that ended, jobs that came or ended."""
    return _of_runs(runs).unionByName(_of_jobs(jobs, slo), allowMissingColumns=True)


def figures(
    placed: DataFrame, by: Sequence[str], slo: Slo, *, jobs_run: str = "count(DISTINCT run_of)"
) -> DataFrame:
    """Facts counted, and every measure of them; `unit_ms` says how long each group lasts."""
    counted = placed.groupBy(*by).agg(
        *(F.expr(f"count_if({name}) AS {name}") for name in COUNTED),
        F.expr(f"{jobs_run} AS jobs_run"),
        F.expr("sum(ran_us) AS ran_us"),
        *(F.expr(f"{percentiles(rounded(name))} AS {name}_at") for name in VALUES),
    )
    return _measured(counted, slo)


def _of_runs(runs: DataFrame) -> DataFrame:
    return runs.where("ended_at IS NOT NULL").selectExpr(
        "queue",
        "name",
        "ended_at AS at",
        "previous_ended_at AS previous_at",
        "true AS runs",
        "outcome = 'failed' AS failures",
        "`then` = 'retry' AS retries",
        "job_id AS run_of",
        "waited_ms",
        "ran_us",
    )


def _of_jobs(jobs: DataFrame, slo: Slo) -> DataFrame:
    """Two facts for each job that is done: that it came, and that it ended."""
    came = jobs.where("arrived_at IS NOT NULL").selectExpr(
        "queue", "name", "arrived_at AS at", "true AS arrivals"
    )
    ended = jobs.where("finished_at IS NOT NULL").selectExpr(
        "queue",
        "name",
        "finished_at AS at",
        "outcome = 'completed' AS completed",
        "outcome = 'dead' AS dead",
        f"outcome = 'completed' AND total_ms <= {slo.within_ms} AS slo_good",
        "total_ms",
    )
    return came.unionByName(ended, allowMissingColumns=True)


def _measured(counted: DataFrame, slo: Slo) -> DataFrame:
    measures = _measures(slo)
    return counted.selectExpr("*", *(f"{each} AS {name}" for name, each in measures.items()))


def _told(figured: DataFrame, gaps: DataFrame | None, slo: Slo) -> DataFrame:
    return _with_completeness(figured, gaps).selectExpr(
        "*",
        f"{slo.within_ms} AS slo_ms",
        f"CAST({slo.target} AS DOUBLE) AS slo_target",
        f"{SCHEMA_VERSION} AS schema_version",
        f"{instants.stretch('period')} AS stretch",
        f"{instants.day('period')} AS day",
    )


def _measures(slo: Slo) -> dict[str, str]:
    finished = "(completed + dead)"
    bad_share = _ratio(f"({finished} - slo_good)", finished)
    at = {
        f"{what}_p{percent}_ms": f"{of}_at[{place}] / {per_ms}"
        for what, of, per_ms in (("wait", "waited_ms", 1), ("run", "ran_us", 1_000),
                                 ("total", "total_ms", 1))
        for place, percent in enumerate((50, 95, 99))
    }  # fmt: skip
    return at | {
        "throughput_per_s": "completed / (unit_ms / 1000)",
        "failure_rate": _ratio("failures", "runs"),
        "retry_rate": _ratio("retries", "runs"),
        "retry_amplification": _ratio("runs", "jobs_run"),
        "handler_seconds": "coalesce(ran_us, 0) / 1000000",
        "slo_burn": f"round({bad_share} / CAST({1 - slo.target} AS DOUBLE), 6)",
    }


def _with_completeness(counted: DataFrame, gaps: DataFrame | None) -> DataFrame:
    if gaps is None:
        return counted.selectExpr("*", "true AS is_complete")
    gap = gaps.selectExpr("queue AS gap_queue", "from_at", "to_at")
    is_hit = F.expr("""
        queue = gap_queue AND unix_millis(from_at) < unix_millis(period) + unit_ms
        AND unix_millis(coalesce(to_at, from_at)) >= unix_millis(period)
    """)
    where = ["queue", "unit_ms", "period"]
    # Gaps are few; a period with several is in the one row that `distinct` leaves of it.
    hit = counted.select(*where).distinct().join(F.broadcast(gap), on=is_hit, how="left_semi")
    flagged = hit.selectExpr("*", "true AS has_gap")
    joined = counted.join(flagged, on=where, how="left")
    return joined.selectExpr("*", "has_gap IS NULL AS is_complete")


def _ratio(part: str, whole: str) -> str:
    """Null where there is nothing to have a share of."""
    return when(f"{whole} > 0", f"{part} / {whole}")
