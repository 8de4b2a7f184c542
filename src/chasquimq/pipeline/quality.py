"""Checks that a table keeps its promises; one that does not ends the run, before it is written.

Promises are written in SQL: the same as columns of Python would be a dozen calls to Java each, in
every batch.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

from pyspark.sql import DataFrame, GroupedData
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


@dataclass(frozen=True, slots=True)
class Look:
    """Questions about a table, for each group of its rows; each answer is a number."""

    groups: GroupedData
    questions: Mapping[str, str]
    by: str | None = None

    def frame(self, number: int) -> DataFrame:
        """The answers, in columns that every look has."""
        answers = ", ".join(f"CAST({each} AS BIGINT)" for each in self.questions.values())
        return self.groups.agg(F.expr(f"array({answers}) AS answers")).selectExpr(
            f"{number} AS look", f"CAST({self.by or 'NULL'} AS BIGINT) AS `group`", "answers"
        )


Answers: TypeAlias = dict[int | None, dict[str, int]]
"""What a look found in each group."""


@dataclass(frozen=True, slots=True)
class Check:
    """What has to be known of some tables, and who raises if it is not as it should be."""

    looks: tuple[Look, ...]
    judge: Callable[[Sequence[Answers]], None]


def check(*checks: Check) -> int:
    """How many rows the tables have together; Spark looks once for all.

    Raises `QualityError` for the first promise that is broken.
    """
    looks = [look for each in checks for look in each.looks]
    answers = _asked(looks)
    found = iter(answers)
    for each in checks:
        each.judge([next(found) for _ in each.looks])
    return sum(told.get("rows", 0) for groups in answers for told in groups.values())


def check_bronze(rows: DataFrame, expected: int) -> Batch:
    """What a batch holds; raises `QualityError` if it is not whole, or an event is in it twice."""
    promises = {
        "events of jobs, and no others, have a bucket": "(job_id IS NULL) != (bucket IS NULL)"
    }
    also = {"gaps": f"count_if(event = '{DATA_LOSS}')", "lost": "sum(lost)"}
    look = Look(rows.groupBy(), _questions(BRONZE, promises) | also)
    [found] = (answers[None] for answers in _asked([look]))
    _judge(BRONZE, rows, promises, found)
    _same_count(found["rows"], expected)
    return Batch(found["rows"], found["gaps"], found["lost"] or 0)


def check_count(rows: DataFrame, expected: int) -> None:
    """Raise `QualityError` if a copy of bronze is not whole.

    No more is asked of it. Each batch was checked when it came; an event that two of them brought,
    as after a checkpoint was lost, is told apart by who reads it, and is no reason not to copy it.
    """
    _same_count(rows.count(), expected)


def _same_count(written: int, read: int) -> None:
    if written != read:
        _fail(BRONZE, "counts add up", f"{read} rows were read, {written} written")


def of_runs(runs: DataFrame) -> Check:
    """Each run is there once, and no duration is below zero."""
    return _of_table(
        RUNS,
        runs,
        {
            "no negative durations": "waited_ms < 0 OR ran_us < 0",
            "attempts count from 1": "attempt < 1 OR life < 1",
            "only a failure has a sequel": "`then` IS NOT NULL AND outcome != 'failed'",
        },
    )


def of_jobs(jobs: DataFrame, runs: DataFrame) -> Check:
    """Jobs are whole, and agree with their runs."""
    own = _of_table(
        JOBS,
        jobs,
        {
            "no negative durations": "waited_ms < 0 OR ran_us < 0 OR total_ms < 0",
            "finished jobs have an end":
                "(outcome IN ('completed', 'dead')) != (finished_at IS NOT NULL)",
            "failures and retries are runs": "failures > attempts OR retries > failures",
        },
    )  # fmt: skip
    run = runs.groupBy("queue", "job_id").agg(F.expr("count(1) AS runs"))
    both = run.join(jobs.select(*JOBS.key, "attempts"), on=list(JOBS.key), how="full")
    apart = both.where("attempts IS NULL OR coalesce(runs, 0) != attempts")

    def judge(found: Sequence[Answers]) -> None:
        own.judge(found[:1])
        if found[1][None]["apart"]:
            _fail_apart(apart)

    return Check((*own.looks, Look(apart.groupBy(), {"apart": "count(1)"})), judge)


def _fail_apart(apart: DataFrame) -> NoReturn:
    row = apart.orderBy(*JOBS.key).limit(1).collect()[0]
    job = f"{row['queue']}/{row['job_id']}"
    if row["attempts"] is None:
        _fail(RUNS, "no orphan runs", f"{row['runs']} runs are of {job}, and no job is")
    told = f"{job} has {row['attempts']} attempts and {row['runs'] or 0} runs"
    _fail(JOBS, "counts add up", told)


_SUMS = ("arrivals", "runs", "failures", "completed", "dead")


def of_periods(rows: DataFrame, runs: DataFrame, jobs: DataFrame, hours: Scope) -> Check:
    """The periods of a scope count what `runs` and `jobs` hold."""
    durations = [name for name in MINUTES.names if name.endswith(("_ms", "_seconds", "_burn"))]
    promises = {
        "no negative durations": " OR ".join(f"{name} < 0" for name in durations),
        "rates are shares": "failure_rate > 1 OR retry_rate > 1",
    }
    sums = {name: f"sum({name})" for name in _SUMS}
    # The three tables have the same columns, and are asked in one look.
    asked = _questions(MINUTES, promises) | sums

    def judge(found: Sequence[Answers]) -> None:
        of_units, expected = found[0], found[1][None] | found[2][None]
        for table, unit_ms in UNITS:
            of_unit = of_units.get(unit_ms, dict.fromkeys(asked, 0))
            _judge(table, rows.where(f"unit_ms = {unit_ms}"), promises, of_unit)
            which = "hours" if unit_ms == instants.MINUTE_MS else "days"
            for name in _SUMS:
                there = expected[f"{name} in {which}"]
                if of_unit[name] != there:
                    told = f"{name} come to {of_unit[name]}, and there are {there}"
                    _fail(table, "counts add up", told)

    looks = (
        Look(rows.groupBy("unit_ms"), asked, by="unit_ms"),
        _expected(runs, _OF_RUNS, hours),
        _expected(jobs, _OF_JOBS, hours),
    )
    return Check(looks, judge)


def of_failures(rows: DataFrame) -> Check:
    """Each kind of failure is there once."""
    return _of_table(FAILURES, rows, {"what is counted is there": "failures < 1"})


# What counts at which instant, and when.
_OF_RUNS = {
    "runs": ("ended_at", "ended_at IS NOT NULL"),
    "failures": ("ended_at", "ended_at IS NOT NULL AND outcome = 'failed'"),
}
_OF_JOBS = {
    "arrivals": ("arrived_at", "true"),
    "completed": ("finished_at", "outcome = 'completed'"),
    "dead": ("finished_at", "outcome = 'dead'"),
}


def _expected(rows: DataFrame, wanted: Mapping[str, tuple[str, str]], hours: Scope) -> Look:
    """How many rows meet each condition at its instant, within the hours and within their days."""
    within = {"hours": (hours, instants.hour), "days": (hours.days(), instants.day)}
    placed = rows.selectExpr(
        "*",
        *(
            f"{scope.holds(folder(at))} AS {at}_in_{which}"
            for at in sorted({at for at, _ in wanted.values()})
            for which, (scope, folder) in within.items()
        ),
    )
    counts = {
        f"{name} in {which}": f"count_if({at}_in_{which} AND ({condition}))"
        for which in within
        for name, (at, condition) in wanted.items()
    }
    return Look(placed.groupBy(), counts)


def _of_table(table: Table, rows: DataFrame, broken_if: Mapping[str, str]) -> Check:
    look = Look(rows.groupBy(), _questions(table, broken_if))
    return Check((look,), lambda found: _judge(table, rows, broken_if, found[0][None]))


def _promises(table: Table, broken_if: Mapping[str, str]) -> dict[str, str]:
    return {
        **broken_if,
        "no row of a newer version": f"schema_version > {SCHEMA_VERSION}",
        "every row has its key": " OR ".join(f"{name} IS NULL" for name in table.key),
    }


def _questions(table: Table, broken_if: Mapping[str, str]) -> dict[str, str]:
    broken = _promises(table, broken_if)
    return {
        "rows": "count(1)",
        "keys": f"count(DISTINCT struct({', '.join(table.key)}))",
        **{promise: f"count_if({condition})" for promise, condition in broken.items()},
    }


def _judge(
    table: Table, rows: DataFrame, broken_if: Mapping[str, str], found: Mapping[str, int]
) -> None:
    for promise, condition in _promises(table, broken_if).items():
        if found[promise]:
            samples = _samples(table, rows.where(condition))
            _fail(table, promise, f"{found[promise]} rows break this, such as {samples}")
    if found["keys"] != found["rows"]:
        twice = rows.groupBy(*table.key).count().where("count > 1")
        _fail(table, "keys are unique", f"these are not: {_samples(table, twice)}")


def _asked(looks: Sequence[Look]) -> list[Answers]:
    """The answers of each look, in one job of Spark."""
    frames = [look.frame(number) for number, look in enumerate(looks)]
    found: list[Answers] = [{} for _ in looks]
    for number, group, answers in functools.reduce(DataFrame.unionAll, frames).collect():
        found[number][group] = dict(zip(looks[number].questions, answers, strict=True))
    return found


def _samples(table: Table, rows: DataFrame) -> str:
    some = rows.select(*table.key).limit(_SHOWN).collect()
    return ", ".join("/".join(str(value) for value in row) for row in some)


def _fail(table: Table, promise: str, what: str) -> NoReturn:
    msg = (
        f"table {table.name!r} breaks {promise!r}: {what}; nothing of it was written, the tables "
        "are as before: mend the source and run again, or rebuild the tables"
    )
    raise QualityError(msg)
