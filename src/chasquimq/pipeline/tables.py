"""Names, columns, keys and partitions of the pipeline's tables, once."""

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql.types import (
    BooleanType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from chasquimq.errors import QualityError
from chasquimq.spark import schemas
from chasquimq.spark.schemas import Column, struct

SCHEMA_VERSION = 1
"""Of all tables; each row says by which it was written."""

_TEXT, _WHOLE, _LONG, _REAL, _FLAG, _TIME = (
    StringType(),
    IntegerType(),
    LongType(),
    DoubleType(),
    BooleanType(),
    TimestampType(),
)


@dataclass(frozen=True, slots=True)
class Table:
    """One table: `key` tells its rows apart, `partitions` are the folders it is kept in."""

    name: str
    means: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    partitions: tuple[str, ...]

    @property
    def schema(self) -> StructType:
        """Its columns as Spark knows them."""
        return struct(self.columns)

    @property
    def names(self) -> list[str]:
        """The names of its columns, in order."""
        return [each.name for each in self.columns]

    def select(self, frame: DataFrame) -> DataFrame:
        """The frame as this table: its columns, in its order, of its types, and no other.

        By one call: one for each column would be a third of all calls to Java of a batch. `to`
        makes a column of nulls of one that is missing, which is right only for what an older
        version wrote: see `padded`.
        """
        missing = [name for name in self.names if name not in frame.columns]
        if missing:
            msg = f"a frame for table {self.name!r} lacks the columns {', '.join(missing)}"
            raise QualityError(msg)
        return self.padded(frame)

    def padded(self, frame: DataFrame) -> DataFrame:
        """The same, with nulls for columns that are missing."""
        return frame.to(self.schema)


_VERSION = Column("schema_version", _WHOLE, "the version of these tables that wrote the row")
_QUEUE = Column("queue", _TEXT, "which queue")
_JOB_ID = Column("job_id", _TEXT, "the job's id")
_NAME = Column("name", _TEXT, "the job's name, empty if it has none")
_BUCKET = Column(
    "bucket",
    _TEXT,
    "the part of the table that the job is in: ten minutes of its creation by its ULID, in UTC; "
    "one of 64 for ids of your own",
)
_DAY = Column("day", _TEXT, "the day in UTC, such as 2026-01-31")
_ERROR = Column("error", _TEXT, "the message of the last error")
_FINGERPRINT = Column(
    "error_fingerprint", _TEXT, "the same for messages that differ only in numbers, ids and quotes"
)

BATCHES = Table(
    "batches",
    "One row for each batch of events that bronze holds whole.",
    (
        Column("batch", _TEXT, "the batch: the query's id and its number"),
        Column("events", _LONG, "how many rows it has in bronze"),
        Column("lost", _LONG, "how many events are known to be missing before or in it"),
        _VERSION,
    ),
    key=("batch",),
    partitions=("batch",),
)

BRONZE = Table(
    "bronze",
    "Every event, once; `data-loss` rows stand for those that are missing.",
    (
        *schemas.EVENTS,
        _BUCKET,
        _VERSION,
        _DAY,
        Column("batch", _TEXT, "the batch it came with, or `compacted-` and a number"),
    ),
    key=("queue", "entry_id", "event"),
    partitions=("day", "queue", "batch"),
)

COMPACTIONS = Table(
    "compactions",
    "Which folders of bronze count, as the last compaction left them; only the newest is heeded.",
    (
        Column("at", _TIME, "when it was made"),
        _DAY,
        _QUEUE,
        Column("batch", _TEXT, "the folder: of a batch, or of what was gathered from several"),
        Column("state", _TEXT, "`live`, or `replaced`: not read any more, and deleted in a while"),
        Column("replaced_at", _TIME, "of `replaced`: since when"),
        _VERSION,
        Column("compaction", _TEXT, "its number, such as 00000001"),
    ),
    key=("compaction", "day", "queue", "batch"),
    partitions=("compaction",),
)

GAPS = Table(
    "gaps",
    "One row for each time events were missing.",
    (
        _QUEUE,
        Column("after_id", _TEXT, "the id of the last event before them"),
        Column("from_at", _TIME, "its time"),
        Column("to_at", _TIME, "the time of the next event of the same batch, null if none came"),
        Column("lost", _LONG, "how many are missing, null if unknown"),
        Column("reason", _TEXT, "what is missing, and why"),
        _VERSION,
        Column("batch", _TEXT, "the batch in which it was noticed"),
    ),
    key=("queue", "after_id", "batch"),
    partitions=("queue", "batch"),
)

RUNS = Table(
    "runs",
    "One row for each run of a handler.",
    (
        _JOB_ID,
        Column("life", _WHOLE, "1, and one more each time the job was replayed or added anew"),
        Column("attempt", _WHOLE, "the number of the run within the life, from 1"),
        _NAME,
        Column("started_at", _TIME, "when the handler began, null if nobody told"),
        Column("ended_at", _TIME, "when it was done, null while it runs or if nobody told"),
        Column(
            "previous_ended_at",
            _TIME,
            "when the job's run of this name ended that ended before, if any",
        ),
        Column("waited_ms", _LONG, "how long the job stood in the stream before; see below"),
        Column("ran_us", _LONG, "how long the handler ran"),
        Column("outcome", _TEXT, "`completed`, `failed`, or `open`: not ended as far as is known"),
        Column("then", _TEXT, "after a failure: `retry` or `dead`, null if not known yet"),
        Column("backoff_ms", _LONG, "the delay before the retry"),
        _ERROR,
        _FINGERPRINT,
        _VERSION,
        _QUEUE,
        _BUCKET,
    ),
    key=("queue", "job_id", "life", "attempt"),
    partitions=("queue", "bucket"),
)

JOBS = Table(
    "jobs",
    "One row for each job.",
    (
        _JOB_ID,
        _NAME,
        Column("created_at", _TIME, "when it was added; of ids of your own, as far as it was told"),
        Column("arrived_at", _TIME, "when it was first told of; what arrivals are counted by"),
        Column("finished_at", _TIME, "when it completed or was given up, null while it is open"),
        Column("outcome", _TEXT, "`completed`, `dead`, or the last that is known: `waiting`, "
               "`delayed`, `active`, `failed`, `retrying`"),
        Column("lives", _WHOLE, "1, and one more each time it was replayed or added anew"),
        Column("attempts", _LONG, "runs of its handler, in all lives"),
        Column("failures", _LONG, "how many of them failed"),
        Column("retries", _LONG, "how many of those were followed by a retry"),
        Column("waited_ms", _LONG, "how long it stood in the stream before its first run"),
        Column("ran_us", _LONG, "what its handler took in all runs together"),
        Column("total_ms", _LONG, "from being added to being finished"),
        Column("dlq_reason", _TEXT, "of `dead`: why it was given up"),
        _ERROR,
        _FINGERPRINT,
        _VERSION,
        _QUEUE,
        _BUCKET,
    ),
    key=("queue", "job_id"),
    partitions=("queue", "bucket"),
)  # fmt: skip


def _percentiles(what: str, unit: str, means: str) -> tuple[Column, ...]:
    return tuple(
        Column(f"{what}_p{each}_{unit}", _REAL, f"{each} of 100 {means}") for each in (50, 95, 99)
    )


_MEASURES = (
    Column("arrivals", _LONG, "jobs that came"),
    Column("runs", _LONG, "runs that ended"),
    Column("completed", _LONG, "jobs that completed"),
    Column("dead", _LONG, "jobs that were given up"),
    Column("failures", _LONG, "runs that failed"),
    Column("retries", _LONG, "runs that were followed by a retry"),
    Column("throughput_per_s", _REAL, "jobs completed in a second, over the whole period"),
    *_percentiles("wait", "ms", "runs that ended had waited at most so long"),
    *_percentiles("run", "ms", "runs that ended took at most so long"),
    *_percentiles("total", "ms", "finished jobs took at most so long since they were added"),
    Column("failure_rate", _REAL, "failures of all runs that ended"),
    Column("retry_rate", _REAL, "retries of all runs that ended"),
    Column("retry_amplification", _REAL, "runs that ended for each job they were of; 1 is none"),
    Column("handler_seconds", _REAL, "what the runs cost: time in handlers"),
    Column("slo_ms", _LONG, "the promised time"),
    Column("slo_target", _REAL, "the promised share"),
    Column("slo_good", _LONG, "finished jobs that completed within the time"),
    Column("slo_burn", _REAL, "share that was not good over the share that may be"),
    Column("is_complete", _FLAG, "false if events of the queue are missing from this time"),
    _VERSION,
    _QUEUE,
)


def _gold(name: str, unit: str, folder: Column) -> Table:
    first = Column("period", _TIME, f"the beginning of the {unit}")
    return Table(
        name,
        f"What happened in each {unit}, for each queue and name of jobs.",
        (first, _NAME, *_MEASURES, folder),
        key=("queue", "name", "period"),
        partitions=("queue", folder.name),
    )


_STRETCH = Column("stretch", _TEXT, "the ten minutes in UTC, such as 2026-01-31T09-10")
MINUTES = _gold("minutes", "minute", _STRETCH)
HOURS = _gold("hours", "hour", _DAY)
DAYS = _gold("days", "day", _DAY)

FAILURES = Table(
    "failures",
    "Failed runs and dead jobs of a minute, by reason.",
    (
        Column("period", _TIME, "the beginning of the minute"),
        _NAME,
        Column("kind", _TEXT, "`run` for a run that failed, `job` for a job that was given up"),
        Column("reason", _TEXT, "of `job`: the reason of the dead letter; of `run`: `error`"),
        _FINGERPRINT,
        Column("error", _TEXT, "one of the messages"),
        Column("failures", _LONG, "how many"),
        _VERSION,
        _QUEUE,
        _STRETCH,
    ),
    key=("queue", "name", "period", "kind", "reason", "error_fingerprint"),
    partitions=("queue", "stretch"),
)

TALLIES = Table(
    "tallies",
    "What was counted in ten minutes; `hours` and `days` are added up from these rows.",
    (
        Column("period", _TIME, "the beginning of the ten minutes"),
        _NAME,
        Column("measure", _TEXT, "what was counted, such as `runs`; or of what values were counted:"
               " `waited_ms`, `ran_us`, `total_ms`"),
        Column("value", _REAL, "the value, rounded as for percentiles; 0 where there is none"),
        Column("times", _LONG, "how often; of `handler_us` the sum"),
        _VERSION,
        _QUEUE,
        _STRETCH,
    ),
    key=("queue", "name", "period", "measure", "value"),
    partitions=("queue", "stretch"),
)  # fmt: skip

TABLES = (
    *(BATCHES, BRONZE, COMPACTIONS, GAPS),
    *(RUNS, JOBS),
    *(MINUTES, FAILURES, TALLIES, HOURS, DAYS),
)
"""All of them, in the order they are made."""
