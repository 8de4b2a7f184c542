"""Events to runs: which life of its job a run belongs to, how it waited, ran and ended. Pure."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own habit

from chasquimq.pipeline.fingerprints import of_message
from chasquimq.pipeline.sql import is_in, when
from chasquimq.pipeline.tables import RUNS, SCHEMA_VERSION
from chasquimq.wire.event import EventName

_BEGINS = (EventName.WAITING, EventName.DELAYED)
_ENDS = (EventName.COMPLETED, EventName.DLQ)
_OF_RUNS = (
    EventName.ACTIVE,
    EventName.COMPLETED,
    EventName.FAILED,
    EventName.RETRY_SCHEDULED,
    EventName.DLQ,
)
# Events that say whether a job stands in the stream.
_MARKS = (EventName.WAITING, EventName.ACTIVE, EventName.RETRY_SCHEDULED)
STATES = (*_BEGINS, *_OF_RUNS)
"""Events that say how a job stands; the others only tell of it."""

# By the id first: Spark compares the first eight bytes of the first column before whole rows.
_OF_JOB = "PARTITION BY job_id, queue ORDER BY entry_at, entry_seq"
_SO_FAR = f"{_OF_JOB} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
_BEFORE = f"{_OF_JOB} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"


def is_any(*names: EventName) -> str:
    """Whether the event is one of these, in SQL."""
    return is_in("event", map(str, names))


_IS_ACTIVE, _IS_COMPLETED = is_any(EventName.ACTIVE), is_any(EventName.COMPLETED)
_IS_FAILED, _IS_DEAD = is_any(EventName.FAILED), is_any(EventName.DLQ)
_IS_RETRY = is_any(EventName.RETRY_SCHEDULED)


def parts(bronze: DataFrame) -> DataFrame:
    """What events tell of a job, one row for each life and run of it.

    Of run 0 is what tells of none: that the job came. All of silver is made of these rows, so that
    events, of which there are most, are put in order and counted once.
    """
    run = f"IF({_IS_RETRY}, attempt - 1, attempt)"  # it carries the number of the next one
    told = _lived(bronze).selectExpr(
        "*",
        f"IF({is_any(*_OF_RUNS)} AND {run} >= 1, {run}, 0) AS run",
        f"{_waited_ms()} AS waited_ms",
    )
    began = is_any(*_BEGINS)
    found = told.groupBy("job_id", "queue", "life", "run").agg(
        F.expr("any_value(bucket) AS bucket"),
        F.expr("max(name) AS name"),
        F.expr("min(created_at) AS created_at"),
        F.expr("min(event_at) AS first_at"),
        F.expr("max(struct(entry_at, entry_seq, event)) AS last"),
        F.expr(f"min({when(began, 'event_at')}) AS began_at"),
        F.expr(f"min({when(_IS_COMPLETED, 'event_at')}) AS completed_at"),
        F.expr(f"min({when(_IS_DEAD, 'event_at')}) AS dead_at"),
        F.expr(f"max({when(_IS_DEAD, 'reason')}) AS dlq_reason"),
        F.expr(f"min({when(_IS_ACTIVE, 'event_at')}) AS started_at"),
        F.expr(f"min({when(f'{_IS_FAILED} OR {_IS_COMPLETED}', 'event_at')}) AS told_at"),
        F.expr(f"min({when(f'{_IS_RETRY} OR {_IS_DEAD}', 'event_at')}) AS settled_at"),
        F.expr("min(waited_ms) AS waited_ms"),
        F.expr("max(duration_us) AS ran_us"),
        F.expr(f"max({_IS_COMPLETED}) AS has_completed"),
        F.expr(f"max({_IS_FAILED} OR {_IS_RETRY} OR {_IS_DEAD}) AS has_failed"),
        F.expr(f"max({_IS_RETRY}) AS has_retry"),
        F.expr(f"max({_IS_DEAD}) AS is_dead"),
        F.expr(f"max({when(_IS_RETRY, 'backoff_ms')}) AS backoff_ms"),
        F.expr(f"max({when(_IS_FAILED, 'reason')}) AS error"),
    )
    outcome = (
        "CASE WHEN has_completed THEN 'completed' WHEN has_failed THEN 'failed' ELSE 'open' END"
    )
    then = (
        "CASE WHEN has_completed THEN NULL WHEN has_retry THEN 'retry' WHEN is_dead THEN 'dead' END"
    )
    # A job may be given up without a run.
    ended_at = when("run >= 1", "coalesce(told_at, settled_at)")
    ended = found.selectExpr("*", f"{ended_at} AS ended_at")
    by_end = "PARTITION BY job_id, queue, coalesce(name, '') ORDER BY ended_at, life, run"
    return ended.select(
        "*",
        # What has no end comes first.
        F.expr(f"lag(ended_at) OVER ({by_end}) AS previous_ended_at"),
        F.expr(f"{outcome} AS outcome"),
        F.expr(f"{then} AS `then`"),
        of_message(F.col("error")).alias("error_fingerprint"),
    )


def runs(all_parts: DataFrame) -> DataFrame:
    """One row for each run that any event tells of; told twice, it is still one."""
    return RUNS.select(
        all_parts.where("run >= 1")
        .withColumnRenamed("run", "attempt")
        .withColumns(
            {"name": F.expr("coalesce(name, '')"), "schema_version": F.lit(SCHEMA_VERSION)}
        )
    )


def _lived(bronze: DataFrame) -> DataFrame:
    """The events of jobs, each once, with the `life` of the job they belong to.

    A life ends when the job completes or is given up, and a new one begins when it is in the queue
    after that: replayed, or added anew under the same id. Attempts are counted within a life.
    Order is that of the stream, so events may come to bronze in any order. And with the `mark`
    before each: what last said where the job stands, and when.
    """
    of_jobs = bronze.where(f"job_id IS NOT NULL AND {is_any(*STATES)}")
    entry = "struct(entry_at, entry_seq)"
    turn = when(is_any(*_BEGINS, *_ENDS), "event")
    mark = when(is_any(*_MARKS), "struct(event, event_at)")
    looked_back = of_jobs.selectExpr(
        "*",
        f"lag({entry}) OVER ({_OF_JOB}) AS previous",
        f"last({turn}, true) OVER ({_BEFORE}) AS turn",
        f"last({mark}, true) OVER ({_BEFORE}) AS mark",
    )
    # Of the same id, whatever batch brought it; a job's own events never share one.
    once = looked_back.where(f"NOT (previous <=> {entry})")
    begins_anew = f"{is_any(*_BEGINS)} AND {is_in('turn', map(str, _ENDS))}"
    lives_before = f"sum(IF({begins_anew}, 1, 0)) OVER ({_SO_FAR})"
    return once.selectExpr("*", f"CAST(1 + {lives_before} AS INT) AS life")


def _waited_ms() -> str:
    """From the last time the job came to the stream until its run began.

    Two clocks may be at work, so never less than 0. Where no event says when it came, as the
    reference engine does not for new jobs, the run's own word counts for the first run; for others
    it would hold the time of the runs before, so they have none.
    """
    waited_ms = f"""CASE
        WHEN mark.event = '{EventName.WAITING}'
        THEN unix_millis(event_at) - unix_millis(mark.event_at)
        WHEN attempt = 1 AND life = 1 THEN wait_ms
    END"""
    # Of a null and a number the greatest is the number.
    return when(f"{_IS_ACTIVE} AND ({waited_ms}) IS NOT NULL", f"greatest({waited_ms}, 0)")
