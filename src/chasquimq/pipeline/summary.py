"""What a report tells: gold read into plain values, once, for the page and for programs."""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own habit

from chasquimq.pipeline.instants import DAY_MS, HOUR_MS, MINUTE_MS

# Up to so many periods a line chart is read with ease; then the next longer period is taken.
_MOST_POINTS = 240
_NAMES = 12
_REASONS = 12
_UNITS = (("minutes", MINUTE_MS), ("hours", HOUR_MS), ("days", DAY_MS))


class Tables(Protocol):
    """Where tables are read from, by name."""

    def table(self, name: str) -> DataFrame:
        """One of them."""
        ...


@dataclass(frozen=True, slots=True)
class Point:
    """One period, all queues and names together; percentiles are of the worst of them."""

    at: datetime
    arrivals: int
    completed: int
    dead: int
    runs: int
    failures: int
    wait_p50_ms: float | None
    wait_p99_ms: float | None
    run_p50_ms: float | None
    run_p99_ms: float | None
    total_p50_ms: float | None
    total_p99_ms: float | None
    is_complete: bool


@dataclass(frozen=True, slots=True)
class Named:
    """All that jobs of one name came to, percentiles by the worst day."""

    queue: str
    name: str
    arrivals: int
    completed: int
    dead: int
    runs: int
    failures: int
    retries: int
    handler_seconds: float
    run_p95_ms: float | None
    total_p95_ms: float | None
    slo_good: int
    slo_burn: float | None


@dataclass(frozen=True, slots=True)
class Reason:
    """What went wrong, and how often."""

    kind: str
    reason: str
    error: str | None
    failures: int


@dataclass(frozen=True, slots=True)
class Summary:
    """All that a report shows."""

    unit: str
    points: tuple[Point, ...]
    names: tuple[Named, ...]
    reasons: tuple[Reason, ...]
    hours: tuple[tuple[datetime, int], ...]
    """Jobs that completed in each hour."""
    lost: int
    gaps: int
    slo_ms: int | None
    slo_target: float | None

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)


def summary(tables: Tables, queues: tuple[str, ...] = ()) -> Summary:
    """Read gold; of all queues if none is named."""

    def rows(name: str) -> DataFrame:
        frame = tables.table(name)
        return frame.where(F.col("queue").isin(*queues)) if queues else frame

    unit = _unit(rows("minutes"))
    [slo] = rows("days").agg(F.max("slo_ms").alias("ms"), F.max("slo_target").alias("t")).collect()
    [gaps] = rows("gaps").agg(F.count(F.lit(1)).alias("n"), F.sum("lost").alias("lost")).collect()
    hours = rows("hours").groupBy("period").agg(F.sum("completed").alias("n")).orderBy("period")
    return Summary(
        unit=unit,
        points=_points(rows(unit)),
        names=_names(rows("days"), slo["t"]),
        reasons=_reasons(rows("failures")),
        hours=tuple((_utc(row["at"]), row["n"]) for row in _dated(hours).collect()),
        lost=gaps["lost"] or 0,
        gaps=gaps["n"],
        slo_ms=slo["ms"],
        slo_target=slo["t"],
    )


def _unit(minutes: DataFrame) -> str:
    [span] = minutes.agg(
        (F.unix_millis(F.max("period")) - F.unix_millis(F.min("period"))).alias("ms")
    ).collect()
    return next(
        (name for name, ms in _UNITS if (span["ms"] or 0) // ms < _MOST_POINTS), _UNITS[-1][0]
    )


def _points(rows: DataFrame) -> tuple[Point, ...]:
    sums = ("arrivals", "completed", "dead", "runs", "failures")
    worst = [f"{what}_p{each}_ms" for what in ("wait", "run", "total") for each in (50, 99)]
    found = rows.groupBy("period").agg(
        *(F.sum(each).alias(each) for each in sums),
        *(F.max(each).alias(each) for each in worst),
        F.min("is_complete").alias("is_complete"),
    )
    return tuple(
        Point(_utc(row["at"]), *(row[each] for each in (*sums, *worst, "is_complete")))
        for row in _dated(found.orderBy("period")).collect()
    )


def _names(days: DataFrame, target: float | None) -> tuple[Named, ...]:
    sums = ("arrivals", "completed", "dead", "runs", "failures", "retries", "handler_seconds")
    finished = F.col("completed") + F.col("dead")
    burn = (finished - F.col("slo_good")) / finished / (1 - (target or 0))
    found = (
        days.groupBy("queue", "name")
        .agg(
            *(F.sum(each).alias(each) for each in sums),
            F.max("run_p95_ms").alias("run_p95_ms"),
            F.max("total_p95_ms").alias("total_p95_ms"),
            F.sum("slo_good").alias("slo_good"),
        )
        .withColumn("slo_burn", F.when(finished > 0, F.round(burn, 3)))
        .orderBy(F.desc("handler_seconds"), "queue", "name")
    )
    return tuple(Named(**row.asDict()) for row in found.limit(_NAMES).collect())


def _reasons(failures: DataFrame) -> tuple[Reason, ...]:
    found = (
        failures.groupBy("kind", "reason", "error_fingerprint")
        .agg(F.max("error").alias("error"), F.sum("failures").alias("failures"))
        .orderBy(F.desc("failures"), "kind", "error_fingerprint")
        .select("kind", "reason", "error", "failures")
    )
    return tuple(Reason(**row.asDict()) for row in found.limit(_REASONS).collect())


def _dated(rows: DataFrame) -> DataFrame:
    """With the period as a number: an instant would come in this machine's time zone."""
    return rows.withColumn("at", F.unix_millis("period"))


def _utc(ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
