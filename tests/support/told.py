"""Events by hand, as rows of `chasquimq_events`, for the transforms of the pipeline."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from chasquimq.spark import schemas
from chasquimq.spark.schemas import struct

START = datetime(2026, 1, 31, 9, 59, 59, tzinfo=UTC)
"""When all stories begin: a second before the hour."""
START_MS = int(START.timestamp() * 1_000)


def at(ms: int) -> datetime:
    """So many ms after the beginning."""
    return START + timedelta(milliseconds=ms)


def told(ms: int, event: str, job_id: str | None = "a", **fields: Any) -> dict[str, Any]:
    """An event; its stream id is as late as it is, unless `entry_ms` says otherwise."""
    entry_ms = fields.pop("entry_ms", ms)
    # No two events of a stream share an id.
    entry_seq = 10 * (ord(job_id[0]) if job_id else 0) + fields.pop("entry_seq", 0)
    return {
        "queue": fields.pop("queue", "q"),
        "entry_id": f"{START_MS + entry_ms}-{entry_seq}",
        "entry_at": at(entry_ms),
        "entry_seq": entry_seq,
        "event": event,
        "event_at": at(ms),
        "job_id": job_id,
        "name": fields.pop("name", "work" if job_id else None),
        **fields,
    }


def frame(spark: SparkSession, events: Iterable[dict[str, Any]]) -> DataFrame:
    """Those events as the source gives them."""
    names = [each.name for each in schemas.EVENTS]
    rows = [tuple(each.get(name) for name in names) for each in events]
    return spark.createDataFrame(rows, struct(schemas.EVENTS))


def computed(rows: DataFrame) -> DataFrame:
    """The same rows, computed once and not by each query over them."""
    return rows.sparkSession.createDataFrame(rows.collect(), rows.schema)


def a_run(
    ms: int, job_id: str, attempt: int = 1, *, fails: str = "", us: int = 2_000
) -> list[dict[str, Any]]:
    """`active`, and how the run ended after `us`."""
    end = {"reason": fails} if fails else {}
    return [
        told(ms, "active", job_id, attempt=attempt, wait_ms=ms, created_at=at(0), entry_seq=1),
        told(ms + us // 1_000, "failed" if fails else "completed", job_id, attempt=attempt,
             duration_us=us, entry_seq=2, **end),
    ]  # fmt: skip
