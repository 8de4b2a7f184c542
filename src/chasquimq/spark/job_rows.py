"""Jobs, dead letters, recurring jobs and results to rows. Pure.

Nothing here raises on what the server holds: what cannot be read is a row whose `problem` says why.
"""

import json
from collections.abc import Callable
from typing import Any, TypeAlias

from chasquimq.broker.pages import Entry, Expiring, Held
from chasquimq.broker.repeats import StoredSpec
from chasquimq.broker.results import OUTCOME_VALUE, failure
from chasquimq.errors import DecodeError
from chasquimq.wire.codec import unpack
from chasquimq.wire.entry import parse_dead_letter, parse_job_fields
from chasquimq.wire.envelope import Envelope, Inline, decode
from chasquimq.wire.ids import StreamId
from chasquimq.wire.member import decode_member
from chasquimq.wire.retry import RetryOverride

Row: TypeAlias = dict[str, Any]
Shape: TypeAlias = Callable[[Any], Any] | None
"""Gives the user's data the type that its column has; None if nobody asks for them, nor for what
may be wrong with them: then they are not unpacked."""


def job_row(queue: str, entry: Entry, held: Held | None, shape: Shape) -> Row:
    """A job that waits or is in flight."""
    data, name = parse_job_fields(entry[1])
    return {
        "queue": queue,
        "entry_id": entry[0].decode(),
        "enqueued_at": StreamId.parse(entry[0]).ms,
        "state": "waiting" if held is None else "active",
        "name": name or None,
        "consumer": held and held.consumer,
        "idle_ms": held and held.idle_ms,
        "deliveries": held.deliveries if held else 0,
        **_envelope(data, shape),
    }


def delayed_row(queue: str, member: bytes, due_ms: int, shape: Shape) -> Row:
    """A job that waits for its time."""
    try:
        name, data = decode_member(member)
    except DecodeError as error:
        return {"queue": queue, "due_at": due_ms, "problem": error.message, "raw": member}
    return {"queue": queue, "due_at": due_ms, "name": name or None, **_envelope(data, shape)}


def dead_letter_row(queue: str, entry: Entry, shape: Shape) -> Row:
    """A job that was given up."""
    letter = parse_dead_letter(*entry)
    return {
        "queue": queue,
        "dlq_id": letter.dlq_id,
        "source_id": letter.source_id or None,
        "reason": letter.reason or None,
        "detail": letter.detail,
        "name": letter.name or None,
        "error": letter.error,
        "traceback": letter.traceback,
        "attempts": letter.attempts,
        "failed_at": letter.failed_at,
        "consumer": letter.consumer,
        **_envelope(letter.payload or None, shape),
    }


def schedule_row(queue: str, stored: StoredSpec, shape: Shape) -> Row:
    """A recurring job."""
    row: Row = {
        "queue": queue,
        "key": stored.key,
        "next_fire_at": stored.due_ms,
        "fired": stored.fired,
        "paused": stored.is_paused,
    }
    spec = stored.spec
    if spec is None:
        return row | {"problem": stored.problem}
    payload = spec.payload.packed if isinstance(spec.payload, Inline) else spec.payload
    return row | {
        "name": spec.job_name or None,
        "kind": spec.pattern.kind,
        "expression": spec.pattern.expression,
        "tz": spec.pattern.tz,
        "interval_ms": spec.pattern.interval_ms,
        "limit": spec.limit or None,
        "start_after": spec.start_after_ms,
        "end_before": spec.end_before_ms,
        "missed_fires": spec.missed_fires.kind,
        "max_catchup": spec.missed_fires.max_catchup,
        **_retry(spec.retry),
        **_data("payload", payload, shape),
    }


def result_row(queue: str, job_id: str, found: Expiring, now_ms: int, shape: Shape) -> Row | None:
    """How a job ended; None if that was forgotten while we looked."""
    value, outcome = found.kept.value, found.kept.outcome
    if value is None and outcome is None:
        return None
    row: Row = {
        "queue": queue,
        "job_id": job_id,
        "status": "ok",
        "expires_at": None if found.ttl_ms is None else now_ms + found.ttl_ms,
    }
    failed = None if value is not None or outcome is None else failure(outcome)
    if failed is not None:
        reason, error = failed
        return row | {"status": "failed", "reason": reason, "error": error or None}
    if value is None:
        return row | {"status": "expired"} if outcome == OUTCOME_VALUE else row
    return row | _data("value", value, shape)


def _envelope(data: bytes | None, shape: Shape) -> Row:
    if data is None:
        return {"problem": "the entry holds no job"}
    try:
        envelope = decode(data)
    except DecodeError as error:
        return {"size_bytes": len(data), "problem": error.message, "raw": data}
    read = _data("payload", envelope.packed_data, shape)
    kept = {"raw": data} if "problem" in read else {}
    return _facts(envelope) | {"size_bytes": len(data)} | read | kept


def _facts(envelope: Envelope) -> Row:
    return {
        "job_id": envelope.id,
        "created_at": envelope.created_at_ms,
        "attempts_made": envelope.attempt,
        **_retry(envelope.retry),
    }


def _retry(retry: RetryOverride | None) -> Row:
    if retry is None:
        return {}
    backoff = None if retry.backoff is None else json.dumps(retry.backoff.to_dict())
    return {"max_attempts": retry.max_attempts, "backoff": backoff}


def _data(column: str, packed: bytes, shape: Shape) -> Row:
    if shape is None:
        return {}
    try:
        return {column: shape(unpack(packed))}
    except DecodeError as error:
        return {"problem": error.message}
