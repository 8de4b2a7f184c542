"""What a report tells: the tables read into plain values, once, for page, terminal and programs."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, date, datetime, timedelta
from typing import Any, Protocol

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own habit

from chasquimq.pipeline import instants
from chasquimq.pipeline.fingerprints import normalised
from chasquimq.pipeline.instants import DAY_MS, HOUR_MS, MINUTE_MS
from chasquimq.pipeline.periods import facts, figures
from chasquimq.pipeline.slo import Slo

# Up to so many steps a chart is read with ease; then a longer one is taken.
_MOST_POINTS = 96
_MOST_NAMES = 500
_MOST_REASONS = 30
_NAMES_OF_A_REASON = 3
_STEPS_MS = (
    *(minutes * MINUTE_MS for minutes in (1, 2, 5, 10, 15, 30)),
    *(hours * HOUR_MS for hours in (1, 2, 3, 6, 12)),
    *(days * DAY_MS for days in (1, 2, 7, 14, 28)),
)


class Tables(Protocol):
    """Where tables are read from, by name."""

    def table(self, name: str) -> DataFrame:
        """One of them."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What jobs came to in some time; each is told in `docs/pipeline.md`, at the table `minutes`.

    Percentiles are taken of the runs and jobs themselves, not of other percentiles. A figure that
    nothing was counted for is None.
    """

    arrivals: int = 0
    runs: int = 0
    completed: int = 0
    dead: int = 0
    failures: int = 0
    retries: int = 0
    throughput_per_s: float = 0.0
    wait_p50_ms: float | None = None
    wait_p95_ms: float | None = None
    wait_p99_ms: float | None = None
    run_p50_ms: float | None = None
    run_p95_ms: float | None = None
    run_p99_ms: float | None = None
    total_p50_ms: float | None = None
    total_p95_ms: float | None = None
    total_p99_ms: float | None = None
    failure_rate: float | None = None
    retry_amplification: float | None = None
    handler_seconds: float = 0.0
    slo_good: int = 0
    slo_burn: float | None = None

    @property
    def finished(self) -> int:
        """Jobs that completed or were given up."""
        return self.completed + self.dead


@dataclass(frozen=True, slots=True, kw_only=True)
class Point(Figures):
    """One step of time, all queues and names together."""

    at: datetime
    is_complete: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Named(Figures):
    """All that jobs of one name in one queue came to."""

    queue: str
    name: str


@dataclass(frozen=True, slots=True)
class Reason:
    """What went wrong, how often, and with which jobs (`queue/name`, some of them)."""

    kind: str
    reason: str
    error: str | None
    failures: int
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Summary:
    """All that a report shows."""

    step_ms: int
    """How long a point lasts."""
    points: tuple[Point, ...] = ()
    """Without holes: a step in which nothing happened is there, too."""
    total: Figures = field(default_factory=Figures)
    names: tuple[Named, ...] = ()
    """Those that cost most first, 500 at most."""
    reasons: tuple[Reason, ...] = ()
    """The most frequent first, 30 at most."""
    hours: tuple[tuple[datetime, int], ...] = ()
    """Jobs that completed in each hour."""
    lost: int = 0
    gaps: int = 0
    slo_ms: int | None = None
    slo_target: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)

    @property
    def span(self) -> tuple[datetime, datetime] | None:
        """From the first step to the end of the last; None if nothing happened."""
        if not self.points:
            return None
        return self.points[0].at, self.points[-1].at + timedelta(milliseconds=self.step_ms)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a report is about: some queues or all, some days or all."""

    queues: tuple[str, ...] = ()
    first_day: str = "0001-01-01"
    last_day: str = "9999-12-31"

    def of(self, rows: DataFrame, at: str) -> DataFrame:
        """The rows of these queues whose instant is in these days."""
        named = rows.where(F.col("queue").isin(*self.queues)) if self.queues else rows
        return named.where(
            (F.unix_millis(at) >= _midnight_ms(self.first_day))
            & (F.unix_millis(at) < _midnight_ms(self.last_day) + DAY_MS)
        )


def summary(
    tables: Tables, asked: Asked, on_step: Callable[[str], None] = lambda _: None
) -> Summary:
    """Read the tables: silver for percentiles, gold for the rest; tell in words what begins."""

    def rows(name: str, at: str = "period") -> DataFrame:
        return asked.of(tables.table(name), at)

    on_step("looking what the tables tell of")
    [span] = rows("minutes").agg(
        F.unix_millis(F.min("period")).alias("first"),
        F.unix_millis(F.max("period")).alias("last"),
        F.max_by("slo_ms", "period").alias("slo_ms"),
        F.max_by("slo_target", "period").alias("slo_target"),
    ).collect()  # fmt: skip
    [gaps] = rows("gaps", "from_at").agg(
        F.count(F.lit(1)).alias("n"), F.sum("lost").alias("lost")
    ).collect()  # fmt: skip
    if span["first"] is None:
        return Summary(MINUTE_MS, gaps=gaps["n"], lost=gaps["lost"] or 0)
    step_ms = step_of(span["last"] - span["first"] + MINUTE_MS)
    times = range(span["first"] - span["first"] % step_ms, span["last"] + 1, step_ms)
    slo = Slo(span["slo_ms"], span["slo_target"])
    every = asked.of(facts(tables.table("runs"), tables.table("jobs"), slo), "at")
    hours = rows("hours").groupBy("period").agg(F.sum("completed").alias("n")).orderBy("period")
    broken = _incomplete(rows("minutes"), step_ms) if gaps["n"] else frozenset()
    size = "a minute" if step_ms == MINUTE_MS else f"{step_ms // MINUTE_MS} minutes"
    on_step(f"computing figures of {len(times)} steps of {size}")
    points = _points(every, slo, times, broken)
    on_step("computing figures of all of it, and of each name")
    total = _total(every, slo, len(times) * step_ms)
    names = _names(every, slo, len(times) * step_ms)
    on_step("counting failures and hours")
    return Summary(
        step_ms=step_ms,
        points=points,
        total=total,
        names=names,
        reasons=_reasons(rows("failures")),
        hours=tuple((_utc(row["at"]), row["n"]) for row in _dated(hours).collect()),
        lost=gaps["lost"] or 0,
        gaps=gaps["n"],
        slo_ms=slo.within_ms,
        slo_target=slo.target,
    )


def step_of(span_ms: int) -> int:
    """The shortest step that leaves a chart of so long a time readable."""
    return next((ms for ms in _STEPS_MS if span_ms <= ms * _MOST_POINTS), _STEPS_MS[-1])


def _points(every: DataFrame, slo: Slo, times: range, broken: frozenset[int]) -> tuple[Point, ...]:
    step_ms = times.step
    placed = every.selectExpr("*", f"unix_millis({instants.period('at', step_ms)}) AS ms")
    found = figures(_lasting(placed, step_ms), ("ms", "unit_ms"), slo)
    told = {row["ms"]: row for row in found.collect()}
    return tuple(
        Point(at=_utc(ms), is_complete=ms not in broken, **_values(told[ms]) if ms in told else {})
        for ms in times
    )


def _total(every: DataFrame, slo: Slo, span_ms: int) -> Figures:
    rows = figures(_lasting(every, span_ms), ("unit_ms",), slo).collect()
    return Figures(**_values(rows[0])) if rows else Figures()


def _names(every: DataFrame, slo: Slo, span_ms: int) -> tuple[Named, ...]:
    found = figures(_lasting(every, span_ms), ("queue", "name", "unit_ms"), slo)
    ordered = found.orderBy(F.desc("handler_seconds"), "queue", "name").limit(_MOST_NAMES)
    return tuple(
        Named(queue=row["queue"], name=row["name"], **_values(row)) for row in ordered.collect()
    )


def _lasting(every: DataFrame, unit_ms: int) -> DataFrame:
    return every.withColumn("unit_ms", F.lit(unit_ms))


def _values(row: Row) -> dict[str, Any]:
    return {each.name: row[each.name] for each in fields(Figures)}


def _incomplete(minutes: DataFrame, step_ms: int) -> frozenset[int]:
    found = minutes.where("NOT is_complete").selectExpr(
        f"unix_millis({instants.period('period', step_ms)}) AS ms"
    )
    return frozenset(row["ms"] for row in found.distinct().collect())


def _reasons(failures: DataFrame) -> tuple[Reason, ...]:
    found = (
        failures.groupBy("kind", "reason", "error_fingerprint")
        .agg(
            # What all of them have in common: one as it was would pass for the others, too, and
            # may name somebody.
            normalised(F.max("error")).alias("error"),
            F.sum("failures").alias("failures"),
            F.array_sort(F.collect_set(F.concat_ws("/", "queue", "name"))).alias("names"),
        )
        .orderBy(F.desc("failures"), "kind", "error_fingerprint", "reason")
        .limit(_MOST_REASONS)
    )
    return tuple(
        Reason(row["kind"], row["reason"], row["error"], row["failures"],
               tuple(row["names"][:_NAMES_OF_A_REASON]))
        for row in found.collect()
    )  # fmt: skip


def _dated(rows: DataFrame) -> DataFrame:
    """With the period as a number: an instant would come in this machine's time zone."""
    return rows.withColumn("at", F.unix_millis("period"))


def _utc(ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


def _midnight_ms(day: str) -> int:
    return (date.fromisoformat(day) - date(1970, 1, 1)).days * DAY_MS
