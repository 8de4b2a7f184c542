"""Checks that a table keeps its promises; one that does not ends the run, before it is written.

Promises are written in SQL: the same as columns of Python would be a dozen calls to Java each, in
every batch.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NoReturn, TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own habit

from chasquimq.errors import QualityError
from chasquimq.pipeline import instants
from chasquimq.pipeline.periods import ROLL_UPS
from chasquimq.pipeline.scope import Scope
from chasquimq.pipeline.tables import (
    BRONZE,
    DAYS,
    FAILURES,
    GAPS,
    HOURS,
    JOBS,
    MINUTES,
    RUNS,
    SCHEMA_VERSION,
    TALLIES,
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

    rows: DataFrame
    questions: Mapping[str, str]
    by: str | None = None
    places_of: tuple[Table, ...] = ()
    """Tables that have rows in those places of a scope which rows are grouped by."""

    def frame(self, number: int) -> DataFrame:
        """The answers, in columns that every look has."""
        answers = ", ".join(f"CAST({each} AS BIGINT)" for each in self.questions.values())
        groups = self.rows.groupBy(*([] if self.by is None else [F.expr(f"{self.by} AS `group`")]))
        group = "NULL" if self.by is None else "`group`"
        return groups.agg(F.expr(f"array({answers}) AS answers")).selectExpr(
            f"{number} AS look", f"CAST({group} AS BIGINT) AS `group`", "answers"
        )

    def whole(self, answers: "Answers") -> dict[str, int]:
        """The answers of all groups together."""
        told = answers.values()
        return {each: sum(group[each] or 0 for group in told) for each in self.questions}


Answers: TypeAlias = dict[int | None, dict[str, int]]
"""What a look found in each group."""


@dataclass(frozen=True, slots=True)
class Check:
    """What has to be known of some tables, and who raises if it is not as it should be."""

    looks: tuple[Look, ...]
    judge: Callable[[Sequence[Answers]], None]


@dataclass(frozen=True, slots=True)
class Checked:
    """What is known of tables that keep their promises."""

    rows: int
    """How many they have together."""
    places: Mapping[str, frozenset[int | None]]
    """In which places of a scope a table has rows, by its name."""


def check(*checks: Check) -> Checked:
    """Raise `QualityError` for the first promise that is broken; Spark looks once for all."""
    looks = [look for each in checks for look in each.looks]
    answers = _asked(looks)
    found = iter(answers)
    for each in checks:
        each.judge([next(found) for _ in each.looks])
    return Checked(
        sum(told.get("rows", 0) for groups in answers for told in groups.values()),
        {
            table.name: frozenset(groups)
            for look, groups in zip(looks, answers, strict=True)
            for table in look.places_of
        },
    )


def check_bronze(rows: DataFrame, expected: int) -> Batch:
    """What a batch holds; raises `QualityError` if it is not whole, or an event is in it twice."""
    promises = {
        "events of jobs, and no others, have a bucket": "(job_id IS NULL) != (bucket IS NULL)"
    }
    also = {"gaps": f"count_if(event = '{DATA_LOSS}')", "lost": "sum(lost)"}
    look = Look(rows, _questions(BRONZE, promises) | also)
    [found] = map(look.whole, _asked([look]))
    _judge(BRONZE, rows, promises, found)
    _same_count(found["rows"], expected)
    return Batch(found["rows"], found["gaps"], found["lost"])


def check_gaps(rows: DataFrame, batch: Batch) -> None:
    """Raise `QualityError` unless every event that stands for missing ones is a gap, once."""
    look = Look(rows, _questions(GAPS, {}) | {"lost": "sum(lost)"})
    [found] = map(look.whole, _asked([look]))
    _judge(GAPS, rows, {}, found)
    _adds_up(GAPS, found, {"rows": batch.gaps, "lost": batch.lost})


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
    # In the order in which both are sorted, if they were made of the same parts.
    key = ["job_id", "queue"]
    run = runs.groupBy(*key).agg(F.expr("count(1) AS runs"))
    both = run.join(jobs.select(*key, "attempts"), on=key, how="full")
    apart = both.where("attempts IS NULL OR coalesce(runs, 0) != attempts")

    def judge(found: Sequence[Answers]) -> None:
        own.judge(found[:1])
        if found[1][None]["apart"]:
            _fail_apart(apart)

    return Check((*own.looks, Look(apart, {"apart": "count(1)"})), judge)


def _fail_apart(apart: DataFrame) -> NoReturn:
    row = apart.orderBy(*JOBS.key).limit(1).collect()[0]
    job = f"{row['queue']}/{row['job_id']}"
    if row["attempts"] is None:
        _fail(RUNS, "no orphan runs", f"{row['runs']} runs are of {job}, and no job is")
    told = f"{job} has {row['attempts']} attempts and {row['runs'] or 0} runs"
    _fail(JOBS, "counts add up", told)


_SUMS = {name: f"sum({name})" for name in ("arrivals", "runs", "failures", "completed", "dead")}
# What each kind of failures comes to in minutes.
_KINDS = {"run": "failures", "job": "dead"}
_DURATIONS = [name for name in MINUTES.names if name.endswith(("_ms", "_seconds", "_burn"))]
_OF_PERIODS = {
    "no negative durations": " OR ".join(f"{name} < 0" for name in _DURATIONS),
    "rates are shares": "failure_rate > 1 OR retry_rate > 1",
}


def of_minutes(
    rows: DataFrame,
    tallied: DataFrame,
    failed: DataFrame,
    runs: DataFrame,
    jobs: DataFrame,
    stretches: Scope,
) -> Check:
    """Minutes, tallies and failures of a scope count what `runs` and `jobs` hold."""
    by = stretches.place("stretch")
    own = _of_table(MINUTES, rows, _OF_PERIODS, _SUMS, by)
    sums = {name: f"sum(IF(measure = '{name}', times, 0))" for name in _SUMS}
    tallies = _of_table(TALLIES, tallied, {"what is counted is there": "times < 1"}, sums, by)
    of_kinds = {kind: f"sum(IF(kind = '{kind}', failures, 0))" for kind in _KINDS}
    fallen = _of_table(FAILURES, failed, {"what is counted is there": "failures < 1"}, of_kinds, by)
    looks = (
        *(*own.looks, *tallies.looks, *fallen.looks),
        _expected(runs, _OF_RUNS, stretches),
        _expected(jobs, _OF_JOBS, stretches),
    )

    def judge(found: Sequence[Answers]) -> None:
        own.judge(found[:1])
        tallies.judge(found[1:2])
        fallen.judge(found[2:3])
        minutes, counted, by_kind, of_runs, of_jobs = map(Look.whole, looks, found)
        _adds_up(MINUTES, minutes, of_runs | of_jobs)
        _adds_up(TALLIES, counted, of_runs | of_jobs)
        for kind, name in _KINDS.items():
            _adds_up(FAILURES, {name: by_kind[kind]}, {name: minutes[name]})

    return Check(looks, judge)


def of_roll_ups(rows: DataFrame, minutes: DataFrame, days: Scope) -> Check:
    """Hours and days count what their minutes do."""
    # Both tables have the same columns, and are asked in one look.
    sums = _SUMS | {name: f"sum({name})" for name in ("retries", "slo_good")}
    asked = _questions(HOURS, _OF_PERIODS) | sums
    of_day = days.place(instants.DAY_OF_STRETCH)
    expected = Look(minutes, sums, of_day, (HOURS, DAYS))

    def judge(found: Sequence[Answers]) -> None:
        for table, unit_ms in ROLL_UPS:
            of_unit = found[0].get(unit_ms, dict.fromkeys(asked, 0))
            _judge(table, rows.where(f"unit_ms = {unit_ms}"), _OF_PERIODS, of_unit)
            _adds_up(table, of_unit, expected.whole(found[1]))

    return Check((Look(rows, asked, "unit_ms"), expected), judge)


# What counts at which instant, and when.
_OF_RUNS = {
    "runs": ("ended_at", "ended_at IS NOT NULL"),
    "failures": ("ended_at", "ended_at IS NOT NULL AND outcome = 'failed'"),
}
_OF_JOBS = {
    "arrivals": ("arrived_at", "arrived_at IS NOT NULL"),
    "completed": ("finished_at", "outcome = 'completed'"),
    "dead": ("finished_at", "outcome = 'dead'"),
}


def _expected(rows: DataFrame, wanted: Mapping[str, tuple[str, str]], stretches: Scope) -> Look:
    """How many rows meet each condition at an instant that is within the stretches."""
    counts = {
        name: f"count_if({stretches.holds(instants.stretch(at))} AND ({condition}))"
        for name, (at, condition) in wanted.items()
    }
    return Look(rows, counts)


def _adds_up(table: Table, there: Mapping[str, int], expected: Mapping[str, int]) -> None:
    for name, many in expected.items():
        if there[name] != many:
            told = f"{name} come to {there[name]}, and there are {many}"
            _fail(table, "counts add up", told)


def _of_table(
    table: Table,
    rows: DataFrame,
    broken_if: Mapping[str, str],
    also: Mapping[str, str] = MappingProxyType({}),
    by: str | None = None,
) -> Check:
    look = Look(rows, {**_questions(table, broken_if), **also}, by, (table,) if by else ())
    return Check((look,), lambda found: _judge(table, rows, broken_if, look.whole(found[0])))


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
