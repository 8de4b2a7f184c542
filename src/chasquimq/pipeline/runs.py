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
STATES = (*_BEGINS, *_OF_RUNS)
"""Events that say how a job stands; the others only tell of it."""

_IN_ORDER = (
    "PARTITION BY queue, job_id ORDER BY entry_at, entry_seq ROWS BETWEEN UNBOUNDED PRECEDING"
)
_BEFORE, _SO_FAR = f"{_IN_ORDER} AND 1 PRECEDING", f"{_IN_ORDER} AND CURRENT ROW"


def is_any(*names: EventName) -> str:
    """Whether the event is one of these, in SQL."""
    return is_in("event", map(str, names))


def lived(bronze: DataFrame) -> DataFrame:
    """The events of jobs, each once, with the `life` of the job they belong to.

    A life ends when the job completes or is given up, and a new one begins when it is in the queue
    after that: replayed, or added anew under the same id. Attempts are counted within a life.
    Order is that of the stream, so events may come to bronze in any order.
    """
    of_jobs = f"job_id IS NOT NULL AND {is_any(*STATES)}"
    # Of the same id, whatever batch brought it; a job's own events never share one.
    once = bronze.where(of_jobs).dropDuplicates(["queue", "entry_id"])
    turn = when(is_any(*_BEGINS, *_ENDS), "event")
    before = f"last({turn}, true) OVER ({_BEFORE})"
    begins_anew = f"{is_any(*_BEGINS)} AND {is_in(before, map(str, _ENDS))}"
    marked = once.selectExpr("*", f"coalesce({begins_anew}, false) AS begins_anew")
    before_this = f"sum(CAST(begins_anew AS INT)) OVER ({_SO_FAR})"
    return marked.selectExpr("*", f"CAST(1 + {before_this} AS INT) AS life")


_IS_ACTIVE, _IS_COMPLETED = is_any(EventName.ACTIVE), is_any(EventName.COMPLETED)
_IS_FAILED, _IS_DEAD = is_any(EventName.FAILED), is_any(EventName.DLQ)
_IS_RETRY = is_any(EventName.RETRY_SCHEDULED)
# The run an event tells of; `retry-scheduled` carries the number of the next one.
_ATTEMPT = f"IF({_IS_RETRY}, attempt - 1, attempt)"


def runs(lived_events: DataFrame) -> DataFrame:
    """One row for each run that any event tells of; told twice, it is still one."""
    told = lived_events.selectExpr("*", f"{_waited_ms()} AS waited_ms", f"{_ATTEMPT} AS run").where(
        f"{is_any(*_OF_RUNS)} AND run >= 1"
    )
    found = told.groupBy("queue", "bucket", "job_id", "life", "run").agg(
        F.expr("coalesce(max(name), '') AS name"),
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
    return RUNS.select(
        found.select(
            "*",
            F.expr("run AS attempt"),
            F.expr("coalesce(told_at, settled_at) AS ended_at"),
            F.expr(f"{outcome} AS outcome"),
            F.expr(f"{then} AS `then`"),
            of_message(F.col("error")).alias("error_fingerprint"),
            F.expr(f"{SCHEMA_VERSION} AS schema_version"),
        )
    )


def _waited_ms() -> str:
    """From the last time the job came to the stream until its run began.

    Two clocks may be at work, so never less than 0. Where no event says when it came, as the
    reference engine does not for new jobs, the run's own word counts for the first run; for others
    it would hold the time of the runs before, so they have none.
    """
    marks = is_any(EventName.WAITING, EventName.ACTIVE, EventName.RETRY_SCHEDULED)
    mark = f"last({when(marks, 'event')}, true) OVER ({_BEFORE})"
    mark_at = f"last({when(marks, 'event_at')}, true) OVER ({_BEFORE})"
    waited_ms = f"""CASE
        WHEN {mark} = '{EventName.WAITING}' THEN unix_millis(event_at) - unix_millis({mark_at})
        WHEN attempt = 1 AND life = 1 THEN wait_ms
    END"""
    return when(_IS_ACTIVE, f"greatest({waited_ms}, 0)")
