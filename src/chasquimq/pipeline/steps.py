"""Takes one batch of events through all tables: bronze, then what it touched of silver and gold."""

import logging
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own habit

from chasquimq.pipeline import bronze, folders, instants, quality, sql
from chasquimq.pipeline.failures import failures, fallen
from chasquimq.pipeline.instants import OTHER_BUCKETS
from chasquimq.pipeline.jobs import jobs
from chasquimq.pipeline.lake import Lake
from chasquimq.pipeline.periods import UNITS, facts, periods, rows_of
from chasquimq.pipeline.runs import lived, runs
from chasquimq.pipeline.scope import EVERYTHING, Scope, day_before
from chasquimq.pipeline.settings import suited
from chasquimq.pipeline.slo import Slo
from chasquimq.pipeline.tables import (
    BATCHES,
    BRONZE,
    FAILURES,
    GAPS,
    JOBS,
    RUNS,
    Table,
)
from chasquimq.pipeline.width import narrowed

log = logging.getLogger("chasquimq.pipeline")


@dataclass(frozen=True, slots=True)
class Done:
    """What one batch, or several together, came to."""

    batches: int = 0
    events: int = 0
    lost: int = 0
    """Events that are known to be missing."""
    buckets: int = 0
    """Parts of silver that were recomputed; 0 also stands for all of them."""
    hours: int = 0
    """Parts of gold that were recomputed; 0 also stands for all of them."""

    def __add__(self, other: "Done") -> "Done":
        """Both together."""
        return Done(
            self.batches + other.batches,
            self.events + other.events,
            self.lost + other.lost,
            self.buckets + other.buckets,
            self.hours + other.hours,
        )


class Steps:
    """What a query does with each batch.

    A crash may leave any prefix of the steps done. The batch then comes again: bronze that was
    written whole is kept as it is, since the stream may have been trimmed meanwhile, and the rest
    is recomputed from it.
    """

    def __init__(
        self,
        path: str,
        file_format: str,
        slo: Slo,
        *,
        on_batch: Callable[[Done], None] | None = None,
        on_step: Callable[[str], None] | None = None,
    ) -> None:
        """Nothing is done yet. `on_step` is told in words what begins, `on_batch` what was done."""
        self._path = path
        self._format = file_format
        self._slo = slo
        self._on_batch = on_batch
        self._on_step = on_step or (lambda _: None)
        self.query_name = f"chasquimq-pipeline-{zlib.crc32(path.encode()):08x}"
        self._query = ""  # the id of the one query that these steps are of, once it is known
        self.total = Done()
        self.failure: Exception | None = None
        """What ended the query; Spark itself keeps only the text of it."""

    def take(self, batch: DataFrame, number: int) -> None:
        """Take in one batch, as `foreachBatch` calls it."""
        try:
            # The batch's own session: the one that started the query may be in another process.
            lake = Lake(batch.sparkSession, self._path, self._format)
            self._query = self._query or lake.query_id()[:8]
            key = f"{self._query}-{number:08d}"
            done = self.take_in(lake, batch, key, may_set=True)
        except Exception as error:
            self.failure = error
            raise
        self.total += done
        log.info("batch %d: %d events, %d buckets and %d hours recomputed",
                 number, done.events, done.buckets, done.hours)  # fmt: skip
        if self._on_batch is not None:
            self._on_batch(done)

    def take_in(self, lake: Lake, batch: DataFrame, key: str, *, may_set: bool = False) -> Done:
        """Take a batch with this key through all tables.

        `may_set` says that the session is the batch's own, and its settings may suit the batch.
        """
        self._on_step("reading events into bronze")
        told, rows = self.write_bronze(lake, batch, key)
        if not told.events:
            return Done(1, lost=told.lost)
        with suited(lake.spark, told.events) if may_set else nullcontext():
            done = self.rebuild(lake, touched(rows), rows)
        return Done(1, told.events, told.lost, done.buckets, done.hours)

    def write_bronze(self, lake: Lake, batch: DataFrame, key: str) -> tuple[Done, DataFrame]:
        """Keep the events of a batch, unless that is done; what it came to, and its rows."""
        if (known := lake.batch(key)) is not None:
            rows = narrowed(_batch(lake, key), known["events"])
            return Done(events=known["events"], lost=known["lost"]), rows
        seen = Observation()
        day = F.expr(f"min({instants.day('entry_at')}) AS first_day")
        told = batch.observe(seen, F.expr("count(1) AS rows"), day)
        lake.replace(BRONZE, bronze.events(told, key))
        many = seen.get["rows"]
        rows = narrowed(_batch(lake, key, first_day=seen.get["first_day"] or ""), many)
        found = quality.check_bronze(rows, expected=many)
        if found.gaps:
            lake.replace(GAPS, bronze.gaps(rows))
        # Last: from here on the batch is in bronze, whole.
        lake.replace(
            BATCHES, bronze.whole_batch(lake.spark, key, found.events, found.lost), at_most=1
        )
        return Done(events=found.events, lost=found.lost), rows

    def rebuild(self, lake: Lake, scope: Scope, cause: DataFrame) -> Done:
        """Make the buckets of a scope anew, and the periods that `cause` may have changed."""
        # Without a bucket there is no job in `cause`, and nothing else to look at.
        events = _events(lake, scope) if scope else cause
        if scope == EVERYTHING:
            hours, many = EVERYTHING, None
        else:
            hours, many = self._silver_hours(events, cause, scope)
        if scope:
            self._on_step("making runs and jobs")
            self._silver(lake, narrowed(events, many, of_more=True), scope)
        if hours:
            self._on_step("making minutes, hours, days and failures")
            self._gold(lake, hours)
        return Done(buckets=len(scope), hours=len(hours))

    def _silver_hours(
        self, events: DataFrame, cause: DataFrame, scope: Scope
    ) -> tuple[Scope, int | None]:
        """The hours that a cause may change, and how many events the scope has, if known."""
        seen = Observation()
        counted = events.observe(seen, F.expr("count(1) AS events"))
        changed = cause.where("job_id IS NOT NULL").select("queue", "job_id").distinct()
        of_changed = counted.join(changed, on=["queue", "job_id"], how="left_semi")
        hours = touched_hours(of_changed, bronze.gaps(cause))
        # Where nothing came of them, Spark may have left them out midway, and who counted, too: to
        # ask would be an error, in every try of the batch.
        return hours, seen.get["events"] if scope and hours else None

    def _silver(self, lake: Lake, bronze_events: DataFrame, scope: Scope) -> None:
        events = lived(bronze_events)
        with _kept(runs(events)) as new_runs, _kept(jobs(events, new_runs)) as new_jobs:
            many = quality.check(quality.of_runs(new_runs), quality.of_jobs(new_jobs, new_runs))
            _replace(lake, RUNS, new_runs, scope, many)
            _replace(lake, JOBS, new_jobs, scope, many)

    def _gold(self, lake: Lake, hours: Scope) -> None:
        days = hours.days()
        names, told_by = buckets_of(lake, days)
        all_runs, all_jobs = (lake.read(table, bucket=names) for table in (RUNS, JOBS))
        ended, told = (
            narrowed(rows, told_by, of_more=True) for rows in within(all_runs, all_jobs, days)
        )
        all_facts = narrowed(facts(ended, told, self._slo), told_by)
        all_periods = periods(all_facts, lake.read(GAPS), slo=self._slo, hours=hours)
        all_failures = in_hours(failures(narrowed(fallen(ended, told), told_by)), hours)
        with _kept(all_periods) as new_rows, _kept(all_failures) as new_failures:
            many = quality.check(
                quality.of_periods(new_rows, ended, told, hours), quality.of_failures(new_failures)
            )
            for table, unit_ms in UNITS:
                scope = hours if unit_ms == instants.MINUTE_MS else days
                _replace(lake, table, rows_of(table, new_rows), scope, many)
            _replace(lake, FAILURES, new_failures, hours, many)


def touched(events: DataFrame) -> Scope:
    """The buckets of silver that events belong to."""
    of_jobs = events.where("bucket IS NOT NULL")
    found = of_jobs.groupBy("queue", "bucket").agg(F.expr("min(day) AS since")).collect()
    since = min((row["since"] for row in found), default=None)
    return Scope.of(((row["queue"], row["bucket"]) for row in found), since)


def touched_hours(events: DataFrame, gaps: DataFrame) -> Scope:
    """The hours of gold in which jobs with these events may be counted, now or before.

    Every instant of silver is that of some event, or of the job's creation. So the hours of all
    events of a job hold those it was in before and those it is in now, without a look at old rows.
    """
    instants_of = f"array(event_at, created_at, {instants.ulid_time('job_id')})"
    of_jobs = events.selectExpr("queue", f"explode({instants_of}) AS at")
    first, last = instants.period("from_at", instants.HOUR_MS), "greatest(to_at, from_at)"
    within_gap = f"sequence({first}, {last}, interval 1 hour)"
    of_gaps = gaps.selectExpr("queue", f"explode({within_gap}) AS at")
    found = (
        of_jobs.unionByName(of_gaps)
        .where("at IS NOT NULL")
        .selectExpr("queue", f"{instants.hour('at')} AS hour")
        .distinct()
    )
    return Scope.of((row["queue"], row["hour"]) for row in found.collect())


def in_buckets(events: DataFrame, scope: Scope) -> DataFrame:
    """The events of a scope's buckets, without a look at days before the first of them."""
    if scope.folders is None:
        return events
    return events.where(f"{scope.holds('bucket')} AND day >= {sql.text(first_day(scope))}")


def first_day(scope: Scope) -> str:
    """The first day of which bronze may hold events of a scope's buckets; empty if of any.

    A day is allowed for, since two clocks are at work: the producer's in the id of the job, the
    server's in that of the event. Where the producer's is known to be further ahead, days begin
    with the earliest event that is known.
    """
    names = [bucket for _, bucket in scope.folders or ()]
    if not names or any(name.startswith(OTHER_BUCKETS) for name in names):
        return ""
    return day_before(min(min(names)[:10], scope.since or names[0]))


def buckets_of(lake: Lake, days: Scope) -> tuple[str, int | None]:
    """A pattern of the buckets whose jobs may count in a scope's days, and of more.

    And how many events the scope's queues have told since, None if none: there are about as many
    runs, and as many jobs, at the most.

    What counts in a day is told by an event of that day, or by a later one that says when its job
    was made; a day is allowed for, since two clocks are at work, that of who told and the server's.
    A producer's that is further ahead is that of the job's id, too, and so of its bucket.
    """
    if not days.folders:
        return folders.EVERY, None
    names = {day for _, day in days.folders}
    since = day_before(min(names))
    queues = sorted({queue for queue, _ in days.folders})
    told = lake.read(BRONZE, day=folders.since(since)).where(
        f"day >= {sql.text(since)} AND {sql.is_in('queue', queues)} AND bucket IS NOT NULL"
    )
    rows = told.groupBy("bucket").count().collect()
    found = folders.one_of({row["bucket"] for row in rows}, *names, OTHER_BUCKETS)
    return found, sum(row["count"] for row in rows) or None


def within(all_runs: DataFrame, all_jobs: DataFrame, days: Scope) -> tuple[DataFrame, DataFrame]:
    """The runs and jobs that may count in a scope's days."""
    span = days.span_ms()

    def holds(at: str) -> str:
        is_in = days.holds(instants.day(at))
        if span is None:
            return is_in
        first, end = (f"timestamp_millis({ms})" for ms in span)
        # Files say which instants they hold, so most of them need not be opened.
        return f"({at} >= {first} AND {at} < {end} AND {is_in})"

    return all_runs.where(holds("ended_at")), all_jobs.where(
        f"{holds('arrived_at')} OR {holds('finished_at')}"
    )


def in_hours(rows: DataFrame, hours: Scope) -> DataFrame:
    """The rows of a scope's hours."""
    return rows.where(hours.holds("hour"))


def _batch(lake: Lake, key: str, *, first_day: str = "") -> DataFrame:
    """The rows of bronze that the newest batch has brought, which no compaction gathers."""
    rows = lake.read_all(BRONZE, day=folders.since(first_day), batch=key)
    return rows.where(f"batch = {sql.text(key)}")


def _events(lake: Lake, scope: Scope) -> DataFrame:
    """What bronze holds of a scope's buckets."""
    return in_buckets(lake.read(BRONZE, day=folders.since(first_day(scope))), scope)


def _replace(lake: Lake, table: Table, rows: DataFrame, scope: Scope, at_most: int) -> None:
    if scope == EVERYTHING:
        lake.replace_all(table, rows, at_most=at_most)
    else:
        lake.replace(table, rows, at_most=at_most)


@contextmanager
def _kept(frame: DataFrame) -> Iterator[DataFrame]:
    """Computed once, for the checks and the write alike."""
    kept = frame.persist()
    try:
        yield kept
    finally:
        kept.unpersist()
