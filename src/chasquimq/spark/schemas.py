"""The columns of every source, once: name, type and meaning."""

from dataclasses import dataclass

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from chasquimq.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Column:
    """One column; `is_free` where a user's schema may give it another type."""

    name: str
    type: DataType
    means: str
    is_free: bool = False


_TEXT, _WHOLE, _LONG, _FLAG, _TIME = (
    StringType(),
    IntegerType(),
    LongType(),
    BooleanType(),
    TimestampType(),
)

_QUEUE = Column("queue", _TEXT, "which queue")
_NAME = Column("name", _TEXT, "the job's name, null if it has none")
_JOB_ID = Column("job_id", _TEXT, "the job's id")
_PROBLEM = Column("problem", _TEXT, "why it could not be read, null if it could")
_PAYLOAD = Column("payload", _TEXT, "the job's data as JSON, or as your schema says", is_free=True)
_ENVELOPE = (
    Column("created_at", _TIME, "when the job was added, by its producer's clock"),
    Column("attempts_made", _WHOLE, "runs finished when it last came to the queue"),
    Column("max_attempts", _WHOLE, "the job's own limit of runs, null if it has none"),
    Column("backoff", _TEXT, "the job's own backoff as JSON, null if it has none"),
    _PAYLOAD,
    Column("size_bytes", _WHOLE, "what the job takes on the server"),
    _PROBLEM,
    Column(
        "raw", BinaryType(), "its bytes as they are on the server, where they could not be read"
    ),
)

EVENTS = (
    _QUEUE,
    Column("entry_id", _TEXT, "the event's id in its stream"),
    Column("entry_at", _TIME, "when the server got it: the time in the id"),
    Column("entry_seq", _LONG, "its place among those of the same millisecond"),
    Column("event", _TEXT, "which event; `data-loss` stands for events that are missing"),
    Column("event_at", _TIME, "when it happened, by the clock of who told it"),
    Column("job_id", _TEXT, "the job's id, null for events of the whole queue"),
    _NAME,
    Column("attempt", _WHOLE, "the number of the run, from 1"),
    Column("wait_ms", _LONG, "how long the job, or the reader, waited"),
    Column("created_at", _TIME, "when the job was added"),
    Column("duration_us", _LONG, "how long the handler ran; of a batch, the job's share"),
    Column("backoff_ms", _LONG, "the delay before the next run"),
    Column("delay_ms", _LONG, "the delay the job was added with"),
    Column("reason", _TEXT, "why it failed or was given up; what is missing"),
    Column("progress", _WHOLE, "how far the handler is, 0 to 100"),
    Column("prev", _TEXT, "the state before a stall"),
    Column("lost", _LONG, "of `data-loss`: how many events are missing, null if unknown"),
)
HEADERS = Column("headers", MapType(_TEXT, _TEXT), "fields of the event that have no column")

JOBS = (
    _QUEUE,
    Column("entry_id", _TEXT, "the entry's id in the stream"),
    Column("enqueued_at", _TIME, "when it came to the stream: the time in the id"),
    Column("state", _TEXT, "`waiting` or `active`"),
    _JOB_ID,
    _NAME,
    Column("consumer", _TEXT, "the worker that has it, null if none"),
    Column("idle_ms", _LONG, "how long that worker has been silent about it"),
    Column("deliveries", _WHOLE, "how often it was given to a worker"),
    *_ENVELOPE,
)

DELAYED = (_QUEUE, _JOB_ID, _NAME, Column("due_at", _TIME, "when it is due"), *_ENVELOPE)

DLQ = (
    _QUEUE,
    Column("dlq_id", _TEXT, "its id among the dead letters"),
    Column("source_id", _TEXT, "the id its entry had in the stream"),
    Column("reason", _TEXT, "why it was given up"),
    Column("detail", _TEXT, "what was wrong with an entry that is no job"),
    _JOB_ID,
    _NAME,
    Column("error", _TEXT, "type and message of the last error"),
    Column("traceback", _TEXT, "where it was raised"),
    Column("attempts", _WHOLE, "how often the job ran"),
    Column("failed_at", _TIME, "when it was given up"),
    Column("consumer", _TEXT, "who gave it up"),
    *_ENVELOPE,
)

SCHEDULES = (
    _QUEUE,
    Column("key", _TEXT, "the key of the recurring job"),
    _NAME,
    Column("kind", _TEXT, "`cron` or `every`"),
    Column("expression", _TEXT, "of cron"),
    Column("tz", _TEXT, "its time zone, null for UTC"),
    Column("interval_ms", _LONG, "of every"),
    Column("next_fire_at", _TIME, "when it fires next"),
    Column("fired", _LONG, "how often it has fired"),
    Column("limit", _LONG, "how often it fires at most, null for no limit"),
    Column("start_after", _TIME, "no fire before"),
    Column("end_before", _TIME, "no fire after"),
    Column("missed_fires", _TEXT, "`skip`, `fire-once` or `fire-all`"),
    Column("max_catchup", _LONG, "of fire-all"),
    Column("paused", _FLAG, "whether it is paused"),
    Column("max_attempts", _WHOLE, "the limit of runs of its jobs, null if it has none"),
    Column("backoff", _TEXT, "the backoff of its jobs as JSON, null if it has none"),
    _PAYLOAD,
    _PROBLEM,
)

RESULTS = (
    _QUEUE,
    _JOB_ID,
    Column("status", _TEXT, "`ok`, `failed`, or `expired`: completed, its value forgotten"),
    Column(
        "value", _TEXT, "what the handler returned as JSON, or as your schema says", is_free=True
    ),
    Column("reason", _TEXT, "why a failed job was given up"),
    Column("error", _TEXT, "its last error"),
    Column("expires_at", _TIME, "when this is forgotten, null for never"),
    _PROBLEM,
)

VECTORS = (
    _JOB_ID,
    _NAME,
    Column("attempt", _WHOLE, "the number of this run, from 1"),
    Column("created_at", _TIME, "when the job was added, by its producer's clock"),
)
"""Of the batches that a fleet's function gets, before the payload."""

STINTS = (
    _QUEUE,
    Column("consumer", _TEXT, "the slot's name in the group"),
    Column("completed", _LONG, "jobs that succeeded"),
    Column("failed", _LONG, "runs that failed"),
    Column("retried", _LONG, "jobs that will run again"),
    Column("dead", _LONG, "jobs that were given up"),
    Column("ended", _TEXT, "why the stint ended"),
)


def struct(columns: tuple[Column, ...]) -> StructType:
    """The schema of a source."""
    return StructType([StructField(each.name, each.type) for each in columns])


def checked(given: StructType, columns: tuple[Column, ...]) -> StructType:
    """A user's schema: some of our columns, in any order, of our types; else `ConfigError`.

    Columns that are left out are not made: this is how to read less.
    """
    known = {each.name: each for each in columns}
    for each in given.fields:
        if each.name not in known:
            msg = f"the schema names the column {each.name!r}: use {', '.join(known)}"
            raise ConfigError(msg)
        ours = known[each.name]
        if not ours.is_free and each.dataType != ours.type:
            msg = (
                f"the schema wants column {each.name!r} as {each.dataType.simpleString()}: "
                f"it is {ours.type.simpleString()}"
            )
            raise ConfigError(msg)
    return given
