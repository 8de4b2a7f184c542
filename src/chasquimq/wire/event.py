"""Event names and fields to and from `QueueEvent`, with a table of every event."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class EventName(StrEnum):
    """Every event a queue can report.

    All carry `ts` (epoch ms); all but the queue-wide ones the job's id, and its name if it has one.
    `attempt` is the number of a run, from 1. Extra fields are written in the order given here.

        event            extra fields                   means
        waiting                                         in the stream: added, or promoted
        delayed          delay_ms                       in the delayed set, due in delay_ms
        active           attempt wait_ms created_at_ms  the handler is about to run; the job was
                                                        created wait_ms ago
        completed        attempt duration_us            acknowledged, and its result readable
        failed           attempt reason duration_us     one run failed; a retry may follow
        retry-scheduled  attempt backoff_ms             run number attempt is due in backoff_ms
        dlq              attempt reason                 given up; attempt is 0 if it never ran, and
                                                        there is no id if it could not be read
        progress         progress                       the handler is so far, 0 to 100
        stalled          attempt prev                   found stalled for the attempt-th time
        drained                                         queue-wide: nothing more to read
        rate-limited     wait_ms                        queue-wide: no reading for wait_ms
        paused                                          queue-wide: workers take no more jobs
        resumed                                         queue-wide: they do again

    The reference engine differs: `waiting` only for promoted jobs and without their name, never
    `delayed`, `active` with `attempt` alone, `completed` before the acknowledgement.
    """

    WAITING = "waiting"
    DELAYED = "delayed"
    ACTIVE = "active"
    COMPLETED = "completed"
    FAILED = "failed"
    RETRY_SCHEDULED = "retry-scheduled"
    DLQ = "dlq"
    PROGRESS = "progress"
    STALLED = "stalled"
    DRAINED = "drained"
    RATE_LIMITED = "rate-limited"
    PAUSED = "paused"
    RESUMED = "resumed"


_NUMBERS = frozenset(
    b"attempt backoff_ms created_at_ms delay_ms duration_us progress ts wait_ms".split()
)


@dataclass(frozen=True, slots=True)
class QueueEvent:
    """One event of a queue.

    `name` is usually one of `EventName`, but a newer writer may know more. `job_id` is None for
    events of the whole queue. `fields` holds the rest: the documented numbers as `int`, or as the
    text they came as if that is not a number; everything else as text.
    """

    name: str
    job_id: str | None
    job_name: str
    fields: dict[str, Any]
    event_id: str = field(default="", compare=False)
    """The id in the events stream, to go on reading after it."""


def event_fields(
    name: str,
    job_id: str | bytes,
    ts_ms: int,
    job_name: str,
    extras: Mapping[str, str | int] | None = None,
) -> list[bytes]:
    """The fields of an event's entry, in the documented order: `e id ts [n]`, then `extras`.

    Queue-wide events have an empty `job_id`. No text makes it raise: what UTF-8 cannot carry is
    escaped.
    """
    raw_id = job_id if isinstance(job_id, bytes) else _encode(job_id)
    fields = [b"e", name.encode(), b"id", raw_id, b"ts", b"%d" % ts_ms]
    if job_name:
        fields += (b"n", _encode(job_name))
    if extras:
        for key, value in extras.items():
            fields += (key.encode(), _encode(value) if isinstance(value, str) else b"%d" % value)
    return fields


def parse_event(entry_id: str | bytes, fields: Sequence[bytes]) -> QueueEvent:
    """The event in an entry, of a kind we know or not; the first of equal fields counts.

    Never raises: bytes that are not UTF-8 are replaced.
    """
    found: dict[bytes, bytes] = {}
    for key, value in zip(fields[::2], fields[1::2], strict=False):
        found.setdefault(key, value)
    name = _decode(found.pop(b"e", b""))
    job_id = _decode(found.pop(b"id", b""))
    job_name = _decode(found.pop(b"n", b""))
    rest = {
        _decode(key): _number(value) if key in _NUMBERS else _decode(value)
        for key, value in found.items()
    }
    shown_id = _decode(entry_id) if isinstance(entry_id, bytes) else entry_id
    return QueueEvent(name, job_id or None, job_name, rest, shown_id)


def _number(raw: bytes) -> int | str:
    try:
        return int(raw)
    except ValueError:
        return _decode(raw)


def _encode(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace")


def _decode(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
