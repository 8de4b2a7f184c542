"""Facts counted by ten minutes, and such tallies added up to any longer time. Pure."""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own habit

from chasquimq.pipeline import instants
from chasquimq.pipeline.sql import text
from chasquimq.pipeline.tables import SCHEMA_VERSION, TALLIES

COUNTED = ("arrivals", "runs", "completed", "dead", "failures", "retries", "slo_good")
"""What is counted: a fact says of each whether it is one."""
VALUES = ("waited_ms", "ran_us", "total_ms")
"""What percentiles are taken of."""

_HANDLER_US = "handler_us"
# Jobs with a run that is their first to end in the period: so those of a day are no sum of hours'.
_JOBS_RUN = {"jobs_of_hour": instants.HOUR_MS, "jobs_of_day": instants.DAY_MS}
_SHARES = (0.5, 0.95, 0.99)
# Values from here on are rounded to three digits before percentiles are taken of them.
_EXACT_BELOW = 1_000
_BY = ("queue", "name", "period")


def tallies(all_facts: DataFrame) -> DataFrame:
    """How often each was counted in ten minutes, and how often each value was there."""
    placed = all_facts.selectExpr("*", f"{instants.period('at', instants.STRETCH_MS)} AS period")
    counted = placed.groupBy(*_BY).agg(
        *(F.expr(f"count_if({name}) AS {name}") for name in COUNTED),
        *(
            F.expr(f"count_if({is_first_of_job(unit)}) AS {name}")
            for name, unit in _JOBS_RUN.items()
        ),
        F.expr(f"coalesce(sum(ran_us), 0) AS {_HANDLER_US}"),
    )
    counts = _one_a_row(
        counted, "times", {name: name for name in (*COUNTED, *_JOBS_RUN, _HANDLER_US)}
    )
    each = _one_a_row(placed, "value", {name: rounded(name) for name in VALUES})
    values = each.where("value IS NOT NULL").groupBy(*_BY, "measure", "value").agg(
        F.expr("count(1) AS times")
    )  # fmt: skip
    both = counts.where("times > 0").selectExpr("*", "0.0D AS value").unionByName(values)
    return TALLIES.select(
        both.selectExpr(
            "*", f"{SCHEMA_VERSION} AS schema_version", f"{instants.stretch('period')} AS stretch"
        )
    )


def added_up(placed: DataFrame, by: Sequence[str]) -> DataFrame:
    """The same columns as of facts that are counted; `unit_ms` says how long each group lasts."""

    def times_of(measure: str) -> str:
        return f"sum(IF(measure = {measure}, times, 0))"

    jobs_run = " ".join(f"WHEN {unit} THEN '{name}'" for name, unit in _JOBS_RUN.items())
    return placed.groupBy(*by).agg(
        *(F.expr(f"{times_of(text(name))} AS {name}") for name in COUNTED),
        F.expr(f"{times_of(f'CASE unit_ms {jobs_run} END')} AS jobs_run"),
        F.expr(f"{times_of(text(_HANDLER_US))} AS ran_us"),
        *(
            F.expr(
                f"{percentiles(f'IF(measure = {text(name)}, value, NULL)', 'times')} AS {name}_at"
            )
            for name in VALUES
        ),
    )


def percentiles(value: str, times: str = "1") -> str:
    """The percentiles of values, each of which was there so many times."""
    shares = ", ".join(f"{each}D" for each in _SHARES)
    return f"percentile({value}, array({shares}), {times})"


def rounded(name: str) -> str:
    """A value as percentiles are taken of it: exact, or of three digits.

    So they are the same whichever order rows come in, and need little memory: there are at most
    some thousand different values.
    """
    step = f"pow(10.0D, floor(log10({name})) - 2)"
    return f"IF({name} < {_EXACT_BELOW}, CAST({name} AS DOUBLE), round({name} / {step}) * {step})"


def is_first_of_job(unit_ms: int) -> str:
    """Whether a run is the first of its job that ended in the period it ended in."""
    earlier = instants.period("previous_at", unit_ms)
    return f"runs AND NOT ({earlier} <=> {instants.period('at', unit_ms)})"


def _one_a_row(frame: DataFrame, column: str, measures: dict[str, str]) -> DataFrame:
    pairs = ", ".join(f"{text(name)}, {each}" for name, each in measures.items())
    return frame.selectExpr(*_BY, f"stack({len(measures)}, {pairs}) AS (measure, {column})")
