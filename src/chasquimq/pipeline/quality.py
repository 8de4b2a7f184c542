"""Checks that a table keeps its promises; one that does not ends the run, before it is written."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own habit

from chasquimq.errors import QualityError
from chasquimq.pipeline import instants
from chasquimq.pipeline.periods import UNITS
from chasquimq.pipeline.scope import Scope
from chasquimq.pipeline.tables import (
    BRONZE,
    FAILURES,
    JOBS,
    MINUTES,
    RUNS,
    SCHEMA_VERSION,
    Table,
)
from chasquimq.spark.event_rows import DATA_LOSS

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Batch:
    """What a batch of bronze holds."""

    events: int
    gaps: int
    lost: int


def check_bronze(rows: DataFrame, expected: int) -> Batch:
    """What a batch holds; raises `QualityError` if it is not whole, or an event is in it twice."""
    has_job, has_bucket = F.col("job_id").isNotNull(), F.col("bucket").isNotNull()
    found = _check(
        BRONZE,
        rows,
        {"events of jobs, and no others, have a bucket": has_job != has_bucket},
        {"gaps": F.count_if(F.col("event") == DATA_LOSS), "lost": F.sum("lost")},
    )
    if found["rows"] != expected:
        _fail(BRONZE, "counts add up", f"{expected} rows were read, {found['rows']} written")
    return Batch(found["rows"], found["gaps"], found["lost"] or 0)


def check_runs(runs: DataFrame) -> None:
    """Raise `QualityError` unless each run is there once and no duration is below zero."""
    _check(
        RUNS,
        runs,
        {
            "no negative durations": (F.col("waited_ms") < 0) | (F.col("ran_us") < 0),
            "attempts count from 1": (F.col("attempt") < 1) | (F.col("life") < 1),
            "only a failure has a sequel": F.col("then").isNotNull()
            & (F.col("outcome") != "failed"),
        },
    )


def check_jobs(jobs: DataFrame, runs: DataFrame) -> None:
    """Raise `QualityError` unless jobs and runs agree."""
    is_finished = F.col("outcome").isin("completed", "dead")
    _check(
        JOBS,
        jobs,
        {
            "no negative durations": (F.col("waited_ms") < 0) | (F.col("ran_us") < 0)
            | (F.col("total_ms") < 0),
            "finished jobs have an end": is_finished != F.col("finished_at").isNotNull(),
            "failures and retries are runs": (F.col("failures") > F.col("attempts"))
            | (F.col("retries") > F.col("failures")),
        },
    )  # fmt: skip
    of_jobs = runs.groupBy("queue", "job_id").agg(F.count(F.lit(1)).alias("runs"))
    both = of_jobs.join(jobs.select(*JOBS.key, "attempts"), on=list(JOBS.key), how="full")
    is_orphan = F.col("attempts").isNull()
    differs = F.coalesce("runs", F.lit(0)) != F.col("attempts")
    wrong = both.where(is_orphan | differs).withColumn("is_orphan", is_orphan)
    for row in wrong.limit(1).collect():
        job = f"{row['queue']}/{row['job_id']}"
        if row["is_orphan"]:
            _fail(RUNS, "no orphan runs", f"{row['runs']} runs are of {job}, and no job is")
        told = f"{job} has {row['attempts']} attempts and {row['runs'] or 0} runs"
        _fail(JOBS, "counts add up", told)


def check_periods(rows: DataFrame, runs: DataFrame, jobs: DataFrame, hours: Scope) -> None:
    """Raise `QualityError` unless the periods of a scope count what `runs` and `jobs` hold."""
    durations = [name for name in MINUTES.names if name.endswith(("_ms", "_seconds", "_burn"))]
    sums = ("arrivals", "runs", "failures", "completed", "dead")
    ended, told = _expected_runs(runs, hours), _expected_jobs(jobs, hours)
    for table, unit_ms in UNITS:
        found = _check(
            table,
            rows.where(F.col("unit_ms") == unit_ms),
            {
                "no negative durations": _any([F.col(each) < 0 for each in durations]),
                "rates are shares": (F.col("failure_rate") > 1) | (F.col("retry_rate") > 1),
            },
            {each: F.coalesce(F.sum(each), F.lit(0)) for each in sums},
        )
        for name in sums:
            wanted = (ended[unit_ms] | told[unit_ms])[name]
            if found[name] != wanted:
                told_of = f"{name} come to {found[name]}, and there are {wanted}"
                _fail(table, "counts add up", told_of)


def check_failures(rows: DataFrame) -> None:
    """Raise `QualityError` unless each kind of failure is there once."""
    _check(FAILURES, rows, {"what is counted is there": F.col("failures") < 1})


def _expected_runs(runs: DataFrame, hours: Scope) -> dict[int, dict[str, int]]:
    ended, has_failed = F.col("ended_at").isNotNull(), F.col("outcome") == "failed"
    wanted = {"runs": ended, "failures": ended & has_failed}
    return _by_unit(runs, {name: ("ended_at", each) for name, each in wanted.items()}, hours)


def _expected_jobs(jobs: DataFrame, hours: Scope) -> dict[int, dict[str, int]]:
    outcome = F.col("outcome")
    wanted = {
        "arrivals": ("arrived_at", F.expr("true")),
        "completed": ("finished_at", outcome == "completed"),
        "dead": ("finished_at", outcome == "dead"),
    }
    return _by_unit(jobs, wanted, hours)


def _by_unit(
    rows: DataFrame, wanted: Mapping[str, tuple[str, Column]], hours: Scope
) -> dict[int, dict[str, int]]:
    """How many rows meet each condition at its instant, for each length of period."""
    queue = F.col("queue")
    counts = {}
    for _, unit_ms in UNITS:
        is_minute = unit_ms == instants.MINUTE_MS
        scope, folder = (hours, instants.hour) if is_minute else (hours.days(), instants.day)
        for name, (at, condition) in wanted.items():
            is_in = condition & scope.holds(queue, folder(F.col(at)))
            counts[unit_ms, name] = F.count_if(is_in)
    found = _asked(rows, {f"{unit_ms} {name}": each for (unit_ms, name), each in counts.items()})
    return {unit_ms: {name: found[f"{unit_ms} {name}"] for name in wanted} for _, unit_ms in UNITS}


def _check(
    table: Table,
    rows: DataFrame,
    broken_if: Mapping[str, Column],
    also: Mapping[str, Column] | None = None,
) -> dict[str, int]:
    """How many `rows` there are, and what was `also` asked; raises for the first broken promise."""
    promises = {
        **broken_if,
        "no row of a newer version": F.col("schema_version") > SCHEMA_VERSION,
        "every row has its key": _any([F.col(each).isNull() for each in table.key]),
    }
    found = _asked(
        rows,
        {
            "rows": F.count(F.lit(1)),
            "keys": F.count_distinct(F.struct(*table.key)),
            **{name: F.count_if(broken) for name, broken in promises.items()},
            **(also or {}),
        },
    )
    for promise, broken in promises.items():
        if found[promise]:
            samples = _samples(table, rows.where(broken))
            _fail(table, promise, f"{found[promise]} rows break this, such as {samples}")
    if found["keys"] != found["rows"]:
        twice = rows.groupBy(*table.key).count().where(F.col("count") > 1)
        _fail(table, "keys are unique", f"these are not: {_samples(table, twice)}")
    return found


def _asked(rows: DataFrame, questions: Mapping[str, Column]) -> dict[str, int]:
    """The answer to each question, in one look."""
    [found] = rows.agg(
        *(each.alias(str(at)) for at, each in enumerate(questions.values()))
    ).collect()
    return {name: found[str(at)] for at, name in enumerate(questions)}


def _any(conditions: list[Column]) -> Column:
    return functools.reduce(Column.__or__, conditions)


def _samples(table: Table, rows: DataFrame) -> str:
    some = rows.select(*table.key).limit(_SHOWN).collect()
    return ", ".join("/".join(str(value) for value in row) for row in some)


def _fail(table: Table, promise: str, what: str) -> NoReturn:
    msg = (
        f"table {table.name!r} breaks {promise!r}: {what}; nothing of it was written, the tables "
        "are as before: mend the source and run again, or rebuild the tables"
    )
    raise QualityError(msg)
