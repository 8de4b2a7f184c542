"""Recurring jobs as they are stored: upsert, list, remove, find what is due, fire."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from chasquimq.broker import scripts
from chasquimq.broker.call import Call, Reply, Steps, all_checked, call, command
from chasquimq.broker.stream import NewJob, Telling
from chasquimq.errors import DecodeError
from chasquimq.wire.keys import QueueKeys
from chasquimq.wire.repeat import RepeatableSpec, decode_spec, encode_spec
from chasquimq.wire.retry import decode_retry, encode_retry


@dataclass(frozen=True, slots=True)
class StoredSpec:
    """A spec and what stands beside it; `spec` is None, and `problem` says why, if unreadable."""

    key: str
    due_ms: int
    spec: RepeatableSpec | None
    job_id: str | None = None
    fired: int = 0
    is_paused: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Fired:
    """What one fire did. Not fenced in means that the spec had moved on and nothing happened."""

    count: int
    has_ended: bool
    was_ours: bool


def upsert(
    keys: QueueKeys, spec: RepeatableSpec, *, next_ms: int, job_id: str | None
) -> Call[None]:
    """Store a spec, due at `next_ms`."""
    retry = b"" if spec.retry is None else encode_retry(spec.retry)
    return scripts.UPSERT_SPEC.call(
        {"repeat_set": keys.repeat, "spec": keys.repeat_spec(spec.key)},
        {
            "spec_key": spec.key,
            "next_ms": next_ms,
            "blob": encode_spec(spec),
            "retry": retry,
            "job_id": job_id or "",
        },
        read=lambda _: None,
        repeatable=True,
    )


def remove(keys: QueueKeys, spec_key: str) -> Call[bool]:
    """Forget a spec; True if there was one."""
    return scripts.REMOVE_SPEC.call(
        {"repeat_set": keys.repeat, "spec": keys.repeat_spec(spec_key)},
        {"spec_key": spec_key},
        read=bool,
    )


def listed(keys: QueueKeys, limit: int) -> Steps[list[StoredSpec]]:
    """Specs by their next fire, soonest first."""
    if limit == 0:
        return []
    rows = yield call("ZRANGE", keys.repeat, 0, limit - 1, "WITHSCORES", read=_pairs)
    return (yield from _with_specs(keys, rows))


def due(keys: QueueKeys, now_ms: int, limit: int) -> Steps[list[StoredSpec]]:
    """Specs whose window has come."""
    rows = yield call(
        "ZRANGEBYSCORE", keys.repeat, "-inf", now_ms, "WITHSCORES", "LIMIT", 0, limit, read=_pairs
    )
    return (yield from _with_specs(keys, rows))


def find(keys: QueueKeys, spec_key: str) -> Steps[StoredSpec | None]:
    """One spec by its key."""
    score = yield call("ZSCORE", keys.repeat, spec_key, read=lambda reply: reply)
    if score is None:
        return None
    [found] = yield from _with_specs(keys, [(spec_key.encode(), int(float(score)))])
    return found


def next_due(keys: QueueKeys) -> Call[int | None]:
    """When the soonest window comes, in epoch ms; None if there is no spec."""
    return call("ZRANGE", keys.repeat, 0, 0, "WITHSCORES", read=_first_score)


def fire(
    keys: QueueKeys,
    stored: StoredSpec,
    jobs: Sequence[NewJob],
    *,
    holder: str,
    next_ms: int | None,
    telling: Telling,
) -> Call[Fired]:
    """Add the jobs of a due spec and move it on, if it still stands where it was seen."""
    more: list[bytes] = []
    for job in jobs:
        more += (job.id.encode(), job.envelope, job.name.encode())
    return scripts.FIRE.call(
        {
            "lock": keys.scheduler_lock,
            "repeat_set": keys.repeat,
            "spec": keys.repeat_spec(stored.key),
            "stream": keys.stream,
            "events": keys.events,
        },
        {
            "holder": holder,
            "spec_key": stored.key,
            "due_ms": stored.due_ms,
            "next_ms": "" if next_ms is None else next_ms,
            "limit": (stored.spec.limit if stored.spec else None) or 0,
            "ts_ms": telling.ts_ms,
            "events_cap": telling.cap,
        },
        read=lambda reply: Fired(max(0, reply[0]), bool(reply[1]), reply[0] >= 0),
        repeatable=True,
        more_arguments=more,
    )


def set_paused(keys: QueueKeys, spec_key: str, *, paused: bool) -> Call[bool]:
    """Mark a spec as paused, or not; True if that changed anything."""
    spec = keys.repeat_spec(spec_key)
    if paused:
        return call("HSET", spec, "paused", "1", read=bool)
    return call("HDEL", spec, "paused", read=bool)


def move(keys: QueueKeys, spec_key: str, next_ms: int) -> Call[bool]:
    """Give a spec that exists another next window."""
    return call("ZADD", keys.repeat, "XX", "CH", next_ms, spec_key, read=bool)


def _with_specs(keys: QueueKeys, rows: list[tuple[bytes, int]]) -> Steps[list[StoredSpec]]:
    if not rows:
        return []
    requests = [
        command("HMGET", keys.repeat_spec(key), "spec", "retry", "job_id", "fired", "paused")
        for key, _ in rows
    ]
    answers = yield Call(requests, all_checked)
    return [
        _stored(key.decode("utf-8", "replace"), due_ms, *fields)
        for (key, due_ms), fields in zip(rows, answers, strict=True)
    ]


def _stored(  # noqa: PLR0913, PLR0917 -- the fields of the hash
    key: str,
    due_ms: int,
    blob: bytes | None,
    retry: bytes | None,
    job_id: bytes | None,
    fired: bytes | None,
    paused: bytes | None,
) -> StoredSpec:
    count = int(fired) if fired and fired.isdigit() else 0
    if blob is None:
        return StoredSpec(key, due_ms, None, fired=count, problem="its hash is gone")
    try:
        spec = decode_spec(blob)
        if retry is not None:
            spec = replace(spec, retry=decode_retry(retry))
    except DecodeError as error:
        return StoredSpec(key, due_ms, None, fired=count, problem=error.message)
    return StoredSpec(
        key, due_ms, spec, job_id.decode() if job_id else None, count, paused is not None
    )


def _pairs(reply: Reply) -> list[tuple[bytes, int]]:
    return [(key, int(float(score))) for key, score in zip(reply[::2], reply[1::2], strict=True)]


def _first_score(reply: Reply) -> int | None:
    return int(float(reply[1])) if reply else None
