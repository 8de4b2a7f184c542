"""The pipeline as its users know it: run, streamed, rebuilt, read.

One streaming query takes the events in batches. For each batch it writes bronze, then recomputes
from bronze the buckets of silver that the batch has touched, then from silver the stretches of gold
that those jobs are in. No state is kept but the tables: whatever is done twice, after a crash
or by hand, is done to the same result.
"""

import json
from collections.abc import Callable, Sequence
from datetime import date, timedelta

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own habit
from pyspark.sql.streaming.query import StreamingQuery

from chasquimq.clock import SYSTEM_CLOCK
from chasquimq.errors import ChasquiError, ConfigError
from chasquimq.pipeline.compaction import Compacted, compact
from chasquimq.pipeline.lake import Lake
from chasquimq.pipeline.problems import SPARKS, noted, ours
from chasquimq.pipeline.report import TITLE, page
from chasquimq.pipeline.scope import EVERYTHING
from chasquimq.pipeline.slo import Slo
from chasquimq.pipeline.steps import Done, Steps, touched
from chasquimq.pipeline.summary import Asked, Summary, summary
from chasquimq.pipeline.tables import BRONZE, TABLES
from chasquimq.spark import session
from chasquimq.spark.source import server_of

_FIRST_DAY, _LAST_DAY = "0001-01-01", "9999-12-31"


class Pipeline:
    """The tables of some queues in one place, and the ways to bring them up to date.

    One at a time may write to a place: a second would fail on the first one's checkpoint.

        Pipeline("lake").run(["emails"])
    """

    def __init__(
        self,
        path: str,
        *,
        spark: SparkSession | None = None,
        file_format: str = "parquet",
        slo: Slo | None = None,
    ) -> None:
        """Tables below `path`, a folder or any URL that Spark can write; nothing is written yet.

        Raises `ConfigError` if `file_format` is neither `parquet` nor `delta`, or if the session
        does not have it, or is one of Spark Connect.
        """
        spark = spark or session()
        if type(spark).__module__.startswith("pyspark.sql.connect"):
            # Its batches are made in a process of the server, where nobody tells what became of
            # them, and what is not there yet is an error when it is read.
            msg = (
                "the session is one of Spark Connect, over which tables cannot be made: use one "
                "whose driver is in this process, without spark.remote and SPARK_REMOTE; backfill "
                "and triage work over both"
            )
            raise ConfigError(msg)
        self._lake = Lake(spark, path, file_format)
        if file_format != "parquet":
            self._lake.check_format()
        self._format = file_format
        self._slo = slo or Slo()

    def __repr__(self) -> str:
        """Show where it is."""
        return f"<Pipeline {self._lake!r}>"

    def table(self, name: str) -> DataFrame:
        """One of the tables, by its name; none of its rows if it was never written."""
        known = {each.name: each for each in TABLES}
        if name not in known:
            msg = f"there is no table {name!r}: use {', '.join(known)}"
            raise ConfigError(msg)
        return self._lake.read(known[name])

    def run(
        self,
        queues: Sequence[str],
        *,
        redis_url: str | None = None,
        max_events: int = 200_000,
        fail_on_data_loss: bool = True,
        on_batch: Callable[[Done], None] | None = None,
        on_step: Callable[[str], None] | None = None,
    ) -> Done:
        """Take in all events there are now, and return; what was taken in before is not read again.

        `on_step` is told, in words, what begins within a batch, `on_batch` what a batch has done.
        In batches of `max_events` at most, each of them whole or not at all. Raises `QualityError`
        before a table would be written that breaks its promises, and `DataLossError` if events were
        trimmed before they were read, or notes that in `gaps` and goes on without
        `fail_on_data_loss`. Either way the next run begins with the batch that broke off.
        """
        steps = self._steps(on_batch, on_step)
        options = self._options(queues, redis_url, max_events, fail_on_data_loss=fail_on_data_loss)
        query = self._start(options, steps)
        _await(query, steps)
        return steps.total

    def stream(  # noqa: PLR0913 -- the documented arguments
        self,
        queues: Sequence[str],
        *,
        every: str = "10 seconds",
        redis_url: str | None = None,
        max_events: int = 200_000,
        fail_on_data_loss: bool = True,
        on_batch: Callable[[Done], None] | None = None,
        on_step: Callable[[str], None] | None = None,
    ) -> "Streaming":
        """The same for ever, looking for new events `every` so often; returns at once."""
        steps = self._steps(on_batch, on_step)
        options = self._options(queues, redis_url, max_events, fail_on_data_loss=fail_on_data_loss)
        return Streaming(self._start(options, steps, every), steps)

    def rebuild(
        self,
        first_day: str | None = None,
        last_day: str | None = None,
        *,
        on_step: Callable[[str], None] | None = None,
    ) -> Done:
        """Make silver and gold anew from bronze; the server is not asked.

        Of every job that has an event in these days, both included (`2026-01-31`, in UTC); of all
        jobs if neither is given, and then nothing else is left of the tables. For a new version of
        the transforms, another SLO, or tables that somebody has damaged.
        """
        steps = self._steps(on_step=on_step)
        all_events = self._lake.read(BRONZE)
        if first_day is None and last_day is None:
            return steps.rebuild(self._lake, EVERYTHING, all_events)
        chosen = all_events.where(
            F.col("day").between(_a_day(first_day, _FIRST_DAY), _a_day(last_day, _LAST_DAY))
        )
        return steps.rebuild(self._lake, touched(chosen), chosen)

    def compact(
        self,
        *,
        keep: timedelta = timedelta(hours=1),
        on_step: Callable[[str], None] = lambda _: None,
    ) -> Compacted:
        """Gather the folders that batches left in bronze into one file for each day and queue.

        Changes no row of any table. Killed at any moment, it leaves what there was; done again, it
        does nothing. A run may go on beside it, and so may readers that take less long than `keep`:
        what was replaced is deleted by a later call, after that time. `on_step` is told, in words,
        what begins.
        """
        if self._format != "parquet":
            msg = f"tables of {self._format!r} are not compacted here: use what the format has"
            raise ConfigError(msg)
        if keep < timedelta(0):
            msg = f"keep is {keep}: use 0 or more"
            raise ConfigError(msg)
        keep_ms = keep // timedelta(milliseconds=1)
        now_ms = SYSTEM_CLOCK.now_ms()
        return compact(self._lake, now_ms=now_ms, keep_ms=keep_ms, on_step=on_step)

    def summary(
        self,
        queues: Sequence[str] = (),
        *,
        first_day: str | None = None,
        last_day: str | None = None,
        on_step: Callable[[str], None] = lambda _: None,
    ) -> Summary:
        """What a report tells, as plain values; of all queues and days unless some are named.

        `on_step` is told, in words, what begins.
        """
        days = _a_day(first_day, _FIRST_DAY), _a_day(last_day, _LAST_DAY)
        return summary(self, Asked(tuple(queues), *days), on_step)

    def report(
        self,
        queues: Sequence[str] = (),
        *,
        title: str = TITLE,
        first_day: str | None = None,
        last_day: str | None = None,
    ) -> str:
        """The report: one page of HTML that loads nothing."""
        found = self.summary(queues, first_day=first_day, last_day=last_day)
        return page(found, title=title, made_at_ms=SYSTEM_CLOCK.now_ms())

    def _steps(
        self,
        on_batch: Callable[[Done], None] | None = None,
        on_step: Callable[[str], None] | None = None,
    ) -> Steps:
        where = self._lake.path, self._format, self._slo
        return Steps(*where, on_batch=on_batch, on_step=on_step)

    def _options(
        self,
        queues: Sequence[str],
        redis_url: str | None,
        max_events: int,
        *,
        fail_on_data_loss: bool,
    ) -> dict[str, str]:
        if not queues or isinstance(queues, str):
            msg = f"queues is {queues!r}: use a list of names, one or more"
            raise ConfigError(msg)
        options = {
            "queue": ",".join(queues),
            "startingOffsets": self._beginnings(queues),
            "maxOffsetsPerTrigger": str(max_events),
            "failOnDataLoss": str(fail_on_data_loss).lower(),
        }
        url = server_of(self._lake.spark, redis_url)
        return options if url is None else options | {"redis_url": url}

    def _beginnings(self, queues: Sequence[str]) -> str:
        """Where a new query begins: behind what bronze has, should its checkpoint be lost."""
        if self._lake.query_id():
            return "earliest"  # not heeded: the checkpoint says where
        last = self._lake.read(BRONZE).groupBy("queue").agg(
            F.max(F.struct(F.unix_millis("entry_at").alias("ms"), "entry_seq")).alias("last")
        )  # fmt: skip
        try:
            rows = last.collect()
        except SPARKS as error:
            raise noted(error) from None
        behind = {row["queue"]: f"{row['last'][0]}-{row['last'][1] + 1}" for row in rows}
        return json.dumps({queue: behind.get(queue, "earliest") for queue in queues})

    def _start(
        self, options: dict[str, str], steps: Steps, every: str | None = None
    ) -> StreamingQuery:
        frame = self._lake.spark.readStream.format("chasquimq_events").options(**options).load()
        writer = (
            frame.writeStream.foreachBatch(steps.take)
            .queryName(steps.query_name)
            .option("checkpointLocation", self._lake.checkpoint)
        )
        timed = (
            writer.trigger(availableNow=True)
            if every is None
            else writer.trigger(processingTime=every)
        )
        return timed.start()


class Streaming:
    """A pipeline that runs until it is stopped."""

    def __init__(self, query: StreamingQuery, steps: Steps) -> None:
        """It has begun."""
        self._query = query
        self._steps = steps

    @property
    def total(self) -> Done:
        """What it has come to so far."""
        return self._steps.total

    @property
    def is_active(self) -> bool:
        """Whether it still runs."""
        return self._query.isActive

    def wait(self, timeout_s: int | None = None) -> bool:
        """Wait for it to end; whether it has. Raises what ended it."""
        return _await(self._query, self._steps, timeout_s)

    def catch_up(self) -> None:
        """Wait until all that is in the streams now is in the tables."""
        try:
            self._query.processAllAvailable()
        except StreamingQueryException as error:
            raise _ours(error, self._steps) from error

    def stop(self) -> None:
        """End it; a batch that is under way comes again next time."""
        self._query.stop()


def _await(query: StreamingQuery, steps: Steps, timeout_s: int | None = None) -> bool:
    try:
        if timeout_s is None:
            query.awaitTermination()
            return True
        return bool(query.awaitTermination(timeout_s))
    except StreamingQueryException as error:
        raise _ours(error, steps) from error


def _ours(error: StreamingQueryException, steps: Steps) -> Exception:
    """What really ended a query, rather than Spark's account of it."""
    if isinstance(steps.failure, ChasquiError):
        return steps.failure
    return ours(error) or noted(error)


def _a_day(text: str | None, otherwise: str) -> str:
    if text is None:
        return otherwise
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        msg = f"{text!r} is not a day: use one such as 2026-01-31"
        raise ConfigError(msg) from None
