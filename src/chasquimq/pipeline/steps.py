"""Takes one batch of events through all tables: bronze, then what it touched of silver and gold."""

import logging
import zlib
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own habit

from chasquimq.pipeline import bronze, folders, instants, quality, sql
from chasquimq.pipeline.failures import failures, fallen
from chasquimq.pipeline.instants import OTHER_BUCKETS
from chasquimq.pipeline.jobs import jobs
from chasquimq.pipeline.keeping import kept
from chasquimq.pipeline.lake import Lake
from chasquimq.pipeline.periods import ROLL_UPS, facts, minutes, roll_ups, rows_of
from chasquimq.pipeline.runs import parts, runs
from chasquimq.pipeline.scope import EVERYTHING, Scope, day_before, stretch_before
from chasquimq.pipeline.settings import suited
from chasquimq.pipeline.slo import Slo
from chasquimq.pipeline.tables import (
    BATCHES,
    BRONZE,
    FAILURES,
    GAPS,
    JOBS,
    MINUTES,
    RUNS,
    TALLIES,
    Table,
)
from chasquimq.pipeline.tallies import tallies
from chasquimq.pipeline.width import narrowed

log = logging.getLogger("chasquimq.pipeline")

# Columns that gold is made of: they are read once, and kept while it is made.
_OF_BOTH = ("queue", "name", "outcome", "error", "error_fingerprint")
_OF_RUNS = ("job_id", "ended_at", "previous_ended_at", "then", "waited_ms", "ran_us")
_OF_JOBS = ("arrived_at", "finished_at", "total_ms", "dlq_reason")


@dataclass(frozen=True, slots=True)
class Done:
    """What one batch, or several together, came to."""

    batches: int = 0
    events: int = 0
    lost: int = 0
    """Events that are known to be missing."""
    buckets: int = 0
    """Parts of silver that were recomputed; 0 also stands for all of them."""
    stretches: int = 0
    """Ten minutes of gold that were recomputed; 0 also stands for all of them."""

    def __add__(self, other: "Done") -> "Done":
        """Both together."""
        return Done(
            self.batches + other.batches,
            self.events + other.events,
            self.lost + other.lost,
            self.buckets + other.buckets,
            self.stretches + other.stretches,
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
        log.info("batch %d: %d events, %d buckets and %d stretches recomputed",
                 number, done.events, done.buckets, done.stretches)  # fmt: skip
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
        return Done(1, told.events, told.lost, done.buckets, done.stretches)

    def write_bronze(self, lake: Lake, batch: DataFrame, key: str) -> tuple[Done, DataFrame]:
        """Keep the events of a batch, unless that is done; what it came to, and its rows."""
        if (known := lake.batch(key)) is not None:
            rows = _batch(lake, key, known["events"])
            return Done(events=known["events"], lost=known["lost"]), rows
        seen = Observation()
        day = F.expr(f"min({instants.day('entry_at')}) AS first_day")
        told = batch.observe(seen, F.expr("count(1) AS rows"), day)
        lake.replace(BRONZE, bronze.events(told, key))
        many = seen.get["rows"]
        rows = _batch(lake, key, many, first_day=seen.get["first_day"] or "")
        found = quality.check_bronze(rows, expected=many)
        if found.gaps:
            with kept(bronze.gaps(rows), found.gaps) as gaps:
                quality.check_gaps(gaps, found)
                lake.replace(GAPS, gaps)
        # Last: from here on the batch is in bronze, whole.
        lake.replace(
            BATCHES, bronze.whole_batch(lake.spark, key, found.events, found.lost), at_most=1
        )
        return Done(events=found.events, lost=found.lost), rows

    def rebuild(self, lake: Lake, scope: Scope, cause: DataFrame) -> Done:
        """Make the buckets of a scope anew, and the periods that `cause` may have changed."""
        # Without a bucket there is no job in `cause`, and nothing else to look at.
        events = _events(lake, scope) if scope else cause
        stretches: Scope
        many: int | None
        if scope == EVERYTHING:
            # A look at no column; known to be few, they are made in one task, without shuffles.
            stretches, many = EVERYTHING, events.count()
        else:
            stretches, many = self._silver_stretches(lake, events, cause, scope)
        if scope:
            self._on_step("making runs and jobs")
            self._silver(lake, narrowed(events, many, of_more=True), scope, many)
        if stretches:
            self._on_step("making minutes, hours, days and failures")
            self._gold(lake, stretches, many)
        return Done(buckets=len(scope), stretches=len(stretches))

    def _silver_stretches(
        self, lake: Lake, events: DataFrame, cause: DataFrame, scope: Scope
    ) -> tuple[Scope, int | None]:
        """The stretches that a cause may change, and how many events the scope has, if known."""
        seen = Observation()
        counted = events.observe(seen, F.expr("count(1) AS events"))
        changed = cause.where("job_id IS NOT NULL").select("queue", "job_id").distinct()
        of_changed = counted.join(changed, on=["queue", "job_id"], how="left_semi")
        # Where no batch has noted a gap, this one has none, and need not be looked through for it.
        gaps = None if lake.found(GAPS) is None else bronze.gaps(cause)
        stretches = touched_stretches(lake, of_changed, gaps)
        # Where nothing came of them, Spark may have left them out midway, and who counted, too: to
        # ask would be an error, in every try of the batch.
        return stretches, seen.get["events"] if scope and stretches else None

    def _silver(self, lake: Lake, bronze_events: DataFrame, scope: Scope, many: int | None) -> None:
        with kept(parts(bronze_events), many) as told, kept(jobs(told), many) as new_jobs:
            new_runs = runs(told)
            checked = quality.check(quality.of_runs(new_runs), quality.of_jobs(new_jobs, new_runs))
            _replace(lake, RUNS, new_runs, scope, checked)
            _replace(lake, JOBS, new_jobs, scope, checked)

    def _gold(self, lake: Lake, stretches: Scope, many: int | None) -> None:
        names, told_by = (
            (folders.EVERY, many) if stretches == EVERYTHING else buckets_of(lake, stretches)
        )
        all_runs, all_jobs = (lake.read(table, bucket=names) for table in (RUNS, JOBS))
        some_runs, some_jobs = within(all_runs, all_jobs, stretches)
        with (
            kept(narrowed(some_runs, told_by, of_more=True), told_by) as ended,
            kept(narrowed(some_jobs, told_by, of_more=True), told_by) as told,
        ):
            self._periods(lake, ended, told, stretches, told_by)

    def _periods(
        self,
        lake: Lake,
        ended: DataFrame,
        told: DataFrame,
        stretches: Scope,
        told_by: int | None,
    ) -> None:
        days, gaps = stretches.days(), lake.found(GAPS)
        in_stretches = stretches.holds(instants.stretch("at"))
        all_facts = facts(ended, told, self._slo).where(in_stretches)
        all_fallen = fallen(ended, told).where(in_stretches)
        with (
            kept(minutes(all_facts, gaps, slo=self._slo), told_by) as new_minutes,
            kept(tallies(all_facts), told_by) as new_tallies,
            kept(failures(all_fallen), told_by) as new_failures,
            # A day has some dozens of rows for each name: mostly few, whatever told of them.
            kept(
                roll_ups(_of_days(lake, TALLIES, new_tallies, stretches), gaps, slo=self._slo),
                told_by,
            ) as rolled_up,
        ):
            of_days = _of_days(lake, MINUTES, new_minutes, stretches)
            checked = quality.check(
                quality.of_minutes(new_minutes, new_tallies, new_failures, ended, told, stretches),
                quality.of_roll_ups(rolled_up, of_days, days),
            )
            _replace(lake, MINUTES, new_minutes, stretches, checked)
            _replace(lake, FAILURES, new_failures, stretches, checked)
            for table, _ in ROLL_UPS:
                _replace(lake, table, rows_of(table, rolled_up), days, checked)
            # Last: Spark drops what is kept of a table when that is written.
            _replace(lake, TALLIES, new_tallies, stretches, checked)


def touched(events: DataFrame) -> Scope:
    """The buckets of silver that events belong to."""
    of_jobs = events.where("bucket IS NOT NULL")
    found = of_jobs.groupBy("queue", "bucket").agg(F.expr("min(day) AS since")).collect()
    since = min((row["since"] for row in found), default=None)
    return Scope.of(((row["queue"], row["bucket"]) for row in found), since)


def touched_stretches(lake: Lake, events: DataFrame, gaps: DataFrame | None) -> Scope:
    """The stretches of gold in which jobs with these events may be counted, now or before.

    Every instant of silver is that of some event, or of the job's creation. So the stretches of all
    events of a job hold those it was in before and those it is in now, without a look at old rows.
    And all there are of the days that a gap is in, since periods say whether they are whole.
    """
    instants_of = f"array(event_at, created_at, {instants.ulid_time('job_id')})"
    of_jobs = events.selectExpr("queue", f"explode({instants_of}) AS at").where("at IS NOT NULL")
    stretch = f"{instants.stretch('at')} AS stretch"
    rows = of_jobs.selectExpr("queue", stretch, "'' AS last").distinct()
    if gaps is not None:
        first, last = instants.day("from_at"), instants.day("greatest(to_at, from_at)")
        rows = rows.unionAll(gaps.selectExpr("queue", f"{first} AS stretch", f"{last} AS last"))
    found = rows.collect()
    touched = {(row["queue"], row["stretch"]) for row in found if not row["last"]}
    return Scope.of(touched.union(*(_in_gap(lake, *row) for row in found if row["last"])))


def _in_gap(lake: Lake, queue: str, first_day: str, last_day: str) -> set[tuple[str, str]]:
    """Stretches of a queue that have rows, within some days."""
    in_days = f"{instants.DAY_OF_STRETCH} BETWEEN {sql.text(first_day)} AND {sql.text(last_day)}"
    rows = lake.read(MINUTES).where(f"queue = {sql.text(queue)} AND {in_days}")
    return {(queue, row["stretch"]) for row in rows.select("stretch").distinct().collect()}


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


def buckets_of(lake: Lake, stretches: Scope) -> tuple[str, int | None]:
    """A pattern of the buckets whose jobs may count in a scope's stretches, and of more.

    And how many events tell of these stretches, None if none: there are about as many runs, and as
    many jobs, at the most.

    What counts in a stretch is told by an event of that time, or by one that says that its job was
    made then, or by the job's id. Days of bronze are those of the server's clock, stretches those
    of whoever told: a day is allowed for. A producer's clock that is further ahead is that of the
    job's id, too, and so of its bucket, which is that of the stretch or the one before.
    """
    names = {stretch for _, stretch in stretches.folders or ()}
    since = day_before(min(names)[:10])
    told = lake.read(BRONZE, day=folders.since(since)).where(
        f"day >= {sql.text(since)} AND bucket IS NOT NULL "
        f"AND ({is_within('event_at', stretches)} OR {is_within('created_at', stretches)})"
    )
    rows = told.groupBy("bucket").count().collect()
    found = {row["bucket"] for row in rows} | names | {stretch_before(name) for name in names}
    return folders.one_of(found, OTHER_BUCKETS), sum(row["count"] for row in rows) or None


def within(
    all_runs: DataFrame, all_jobs: DataFrame, stretches: Scope
) -> tuple[DataFrame, DataFrame]:
    """The runs and jobs that may count in a scope's stretches, with what gold is made of."""
    came_or_ended = f"{is_within('arrived_at', stretches)} OR {is_within('finished_at', stretches)}"
    return (
        all_runs.where(is_within("ended_at", stretches)).select(*_OF_BOTH, *_OF_RUNS),
        all_jobs.where(came_or_ended).select(*_OF_BOTH, *_OF_JOBS),
    )


def is_within(at: str, stretches: Scope) -> str:
    """Whether an instant is in one of a scope's stretches, in SQL."""
    is_in, span = stretches.holds(instants.stretch(at)), stretches.span_ms()
    if span is None:
        return is_in
    first, end = (f"timestamp_millis({ms})" for ms in span)
    # Files say which instants they hold, so most of them need not be opened.
    return f"({at} >= {first} AND {at} < {end} AND {is_in})"


def _of_days(lake: Lake, table: Table, made: DataFrame, stretches: Scope) -> DataFrame:
    """What a table will hold of a scope's days, once its stretches are replaced by what is made."""
    if stretches == EVERYTHING:
        return made
    days = stretches.days()
    others = lake.read(table, stretch=folders.one_of((), *(day for _, day in days.folders or ())))
    of_days = f"{days.holds(instants.DAY_OF_STRETCH)} AND NOT {stretches.holds('stretch')}"
    return others.where(of_days).unionAll(made)


def _batch(lake: Lake, key: str, many: int, *, first_day: str = "") -> DataFrame:
    """The rows of bronze that the newest batch has brought, which no compaction gathers."""
    rows = lake.read_all(BRONZE, day=folders.since(first_day), batch=key)
    return narrowed(rows.where(f"batch = {sql.text(key)}"), many)


def _events(lake: Lake, scope: Scope) -> DataFrame:
    """What bronze holds of a scope's buckets."""
    return in_buckets(lake.read(BRONZE, day=folders.since(first_day(scope))), scope)


def _replace(
    lake: Lake, table: Table, rows: DataFrame, scope: Scope, checked: quality.Checked
) -> None:
    """Put rows in the place of a scope's; where there are none any more, nothing is left.

    As when a late event says that a job came at another time than it seemed. A kill before the last
    step is mended when the batch comes again.
    """
    if scope == EVERYTHING:
        lake.replace_all(table, rows, at_most=checked.rows)
        return
    lake.replace(table, rows, at_most=checked.rows)
    # Of silver nobody asks: events only come, and what they tell of stays.
    places = checked.places.get(table.name)
    if places is not None and (empty := scope.without(places)):
        column = table.partitions[1]
        names = {name for _, name in empty.folders or ()}
        lake.drop(table, empty.holds(column), **{column: folders.one_of(names)})
