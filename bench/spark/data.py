"""What is read and worked on: events of many jobs as a busy queue tells them, and waiting jobs."""

from collections.abc import Iterator

from bench.raw import RawClient, packed
from chasquimq import SyncQueue
from chasquimq.wire.event import EventName, event_fields
from chasquimq.wire.keys import QueueKeys

FIRST_MS = 1_767_225_600_000
"""When the first job came: the first instant of 2026."""
ARRIVAL_MS = 4
"""A job every so often: 250 a second, some 900 events a second."""

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_NAMES = ("welcome", "invoice", "reminder", "export", "thumbnail")
_FAILS_EVERY = 20
_STARTS_AFTER, _RUNS_FOR, _BACKOFF = 2, 3, 250  # in arrivals
_PIPELINE = 2_000
_BULK = 1_000


def fill_events(client: RawClient, queue: str, count: int) -> None:
    """Write so many events, with ids of their own: the same ones every time."""
    stream = QueueKeys(queue).events
    requests: list[bytes] = []
    for entry_id, fields in events(count):
        requests.append(packed(b"XADD", stream, entry_id, *fields))
        if len(requests) == _PIPELINE:
            client.exchange(requests)
            requests = []
    if requests:
        client.exchange(requests)


def events(count: int) -> Iterator[tuple[bytes, list[bytes]]]:
    """So many events in the order of the stream, each with its id.

    Every job waits, runs and completes; one in twenty fails first and is retried a second later.
    """
    told, turn = 0, 0
    while True:
        at_ms = FIRST_MS + turn * ARRIVAL_MS
        for seq, fields in enumerate(_told_at(turn, at_ms)):
            if told == count:
                return
            yield b"%d-%d" % (at_ms, seq), fields
            told += 1
        turn += 1


def _told_at(turn: int, at_ms: int) -> Iterator[list[bytes]]:
    """What is told when job number `turn` comes: of it, and of those before it."""
    ended = _STARTS_AFTER + _RUNS_FOR
    run_ms, wait_ms = _RUNS_FOR * ARRIVAL_MS, _STARTS_AFTER * ARRIVAL_MS
    yield _told(EventName.WAITING, turn, at_ms)
    yield from _started(turn - _STARTS_AFTER, at_ms, 1, wait_ms)
    job = turn - ended
    if job >= 0 and job % _FAILS_EVERY:
        yield _told(EventName.COMPLETED, job, at_ms, attempt=1, duration_us=run_ms * 1_000)
    elif job >= 0:
        reason = f"TimeoutError: mail host {job % 7} did not answer"
        yield _told(
            EventName.FAILED, job, at_ms, attempt=1, reason=reason, duration_us=run_ms * 1_000
        )
        yield _told(
            EventName.RETRY_SCHEDULED, job, at_ms, attempt=2, backoff_ms=_BACKOFF * ARRIVAL_MS
        )
    again = turn - ended - _BACKOFF
    if again >= 0 and again % _FAILS_EVERY == 0:
        yield _told(EventName.WAITING, again, at_ms)
    again -= _STARTS_AFTER
    if again >= 0 and again % _FAILS_EVERY == 0:
        yield from _started(again, at_ms, 2, (ended + _BACKOFF + _STARTS_AFTER) * ARRIVAL_MS)
    again -= _RUNS_FOR
    if again >= 0 and again % _FAILS_EVERY == 0:
        yield _told(EventName.COMPLETED, again, at_ms, attempt=2, duration_us=run_ms * 1_000)


def _started(job: int, at_ms: int, attempt: int, wait_ms: int) -> Iterator[list[bytes]]:
    if job >= 0:
        created_at_ms = FIRST_MS + job * ARRIVAL_MS
        yield _told(EventName.ACTIVE, job, at_ms, attempt=attempt, wait_ms=wait_ms,
                    created_at_ms=created_at_ms)  # fmt: skip


def _told(event: EventName, job: int, at_ms: int, **extras: str | int) -> list[bytes]:
    return event_fields(event, job_id(job), at_ms, _NAMES[job % len(_NAMES)], extras)


def job_id(job: int) -> str:
    """A ULID of when that job came, the same every time."""
    ms, digits = FIRST_MS + job * ARRIVAL_MS, []
    for _ in range(10):
        ms, digit = divmod(ms, 32)
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits)) + f"{job:016d}"


def fill_jobs(url: str, queue: str, count: int) -> None:
    """Add so many jobs to a queue."""
    with SyncQueue(queue, redis_url=url, max_stream_len=count + 1) as opened:
        for first in range(0, count, _BULK):
            numbers = range(first, min(count, first + _BULK))
            opened.add_bulk([{"name": "welcome", "data": {"number": each}} for each in numbers])
