"""Recurring jobs as they are stored: upsert, list, remove, find what is due, fire."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hiredis import ReplyError

from chasquimq.broker import scripts
from chasquimq.broker.call import Call, Reply, Steps, call, command, told
from chasquimq.broker.stream import NewJob, Telling
from chasquimq.errors import DecodeError
from chasquimq.wire.keys import QueueKeys
from chasquimq.wire.repeat import RepeatableSpec, decode_spec, encode_spec
from chasquimq.wire.retry import decode_retry, encode_retry

# Times from here on fit no envelope, and infinity is among them.
_NO_EPOCH_MS = 2**63
# Longer counts are none of ours, and a script could not count on from them.
_COUNT_DIGITS = 15


@dataclass(frozen=True, slots=True)
class StoredSpec:
    """A spec and what stands beside it; `spec` is None, and `problem` says why, if unreadable."""

    key: str
    due_ms: int
    """Epoch ms; 0 if the stored time is none."""
    spec: RepeatableSpec | None
    job_id: str | None = None
    fired: int = 0
    is_paused: bool = False
    problem: str = ""
    is_refused: bool = False
    """Whether the server does not tell it: it may be sound."""
    raw_key: bytes = field(default=b"", compare=False)
    """The key as it is stored, which need not be text."""
    raw_due: bytes = field(default=b"", compare=False)
    """The time as it is stored, which need not be whole: a fire is fenced by it."""


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
        {
            "repeat_set": keys.repeat,
            "spec": keys.repeat_spec(spec.key),
            "wake": keys.repeat_wake,
        },
        {
            "spec_key": spec.key,
            "next_ms": next_ms,
            "blob": encode_spec(spec),
            "retry": retry,
            "job_id": job_id or "",
        },
        read=lambda _: None,
        repeatable=True,
        insistent=True,
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
    [found] = yield from _with_specs(keys, [(spec_key.encode(), score)])
    return found


def next_due(keys: QueueKeys, *, skip: int = 0) -> Call[int | None]:
    """When the soonest window comes, but for the first `skip`, in epoch ms; None if never."""
    return call("ZRANGE", keys.repeat, skip, skip, "WITHSCORES", read=_next_ms)


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
            "spec": keys.repeat_spec(stored.raw_key or stored.key),
            "stream": keys.stream,
            "events": keys.events,
        },
        {
            "holder": holder,
            "spec_key": stored.raw_key or stored.key,
            "due": stored.raw_due or stored.due_ms,
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


def move(keys: QueueKeys, spec_key: str | bytes, next_ms: int) -> Call[bool]:
    """Give a spec that exists another next window."""
    return call("ZADD", keys.repeat, "XX", "CH", next_ms, spec_key, read=bool)


def _with_specs(keys: QueueKeys, rows: list[tuple[bytes, bytes]]) -> Steps[list[StoredSpec]]:
    if not rows:
        return []
    requests = [
        command("HMGET", keys.repeat_spec(key), "spec", "retry", "job_id", "fired", "paused")
        for key, _ in rows
    ]
    answers = yield Call(requests, list)
    return [
        _stored(raw_key, score, fields)
        for (raw_key, score), fields in zip(rows, answers, strict=True)
    ]


def _stored(raw_key: bytes, score: bytes, fields: Reply) -> StoredSpec:
    """A row as far as it can be read: one that cannot must not hide the others."""
    key = raw_key.decode("utf-8", "replace")
    due_ms = _epoch_ms(score)
    unreadable = StoredSpec(key, due_ms or 0, None, raw_key=raw_key, raw_due=score)
    if isinstance(fields, ReplyError):
        return replace(unreadable, problem=told(fields), is_refused=True)
    blob, retry, job_id, fired, paused = fields
    count = _count(fired)
    if blob is None:
        return replace(unreadable, fired=count or 0, problem="its hash is gone")
    try:
        spec = decode_spec(blob)
        if retry is not None:
            spec = replace(spec, retry=decode_retry(retry))
    except DecodeError as error:
        return replace(unreadable, fired=count or 0, problem=error.message)
    if count is None:
        # Not as none at all: a limit that is measured against it would be exceeded.
        return replace(unreadable, problem=f"its count of fires is {_shown(fired)}")
    if due_ms is None:
        return replace(unreadable, fired=count, problem=f"its next window is {_shown(score)}")
    chosen_id = job_id.decode("utf-8", "replace") if job_id else None
    return StoredSpec(
        key, due_ms, spec, chosen_id, count, paused is not None, raw_key=raw_key, raw_due=score
    )


def _pairs(reply: Reply) -> list[tuple[bytes, bytes]]:
    return list(zip(reply[::2], reply[1::2], strict=True))


def _next_ms(reply: Reply) -> int | None:
    """The first whole ms at which the soonest window has come, also if its time is none."""
    if not reply or float(reply[1]) >= _NO_EPOCH_MS:
        return None
    return math.ceil(max(0.0, float(reply[1])))


def _epoch_ms(score: bytes) -> int | None:
    value = float(score)
    return int(value) if 0 <= value < _NO_EPOCH_MS else None


def _count(fired: bytes | None) -> int | None:
    if fired is None:
        return 0
    return int(fired) if fired.isdigit() and len(fired) <= _COUNT_DIGITS else None


def _shown(value: bytes) -> str:
    return repr(value[:40].decode("utf-8", "backslashreplace"))
