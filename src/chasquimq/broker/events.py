"""The events stream: append to it and read from it."""

from collections.abc import Sequence

from chasquimq.broker import scripts
from chasquimq.broker.call import Call, Reply, call, checked, command, none_refused, together
from chasquimq.wire.codec import pack_for_script
from chasquimq.wire.event import QueueEvent, parse_event
from chasquimq.wire.keys import QueueKeys

# Events in one script; it holds the server up for a millisecond.
_MOST_BYTES = 1 << 20


def append(keys: QueueKeys, batch: Sequence[Sequence[bytes]], *, cap: int) -> Call[None]:
    """Write events, each given by its fields; not repeatable, so none is ever told twice.

    In one script, or in several where they are large; a command for each takes 3 us an event more
    to put together.
    """
    told: list[bytes | int] = []
    for fields in batch:
        told.append(len(fields))
        told += fields
    packed = pack_for_script(told)
    if len(packed) > _MOST_BYTES and len(batch) > 1:
        half = len(batch) // 2
        parts = [append(keys, part, cap=cap) for part in (batch[:half], batch[half:])]
        whole = together(parts)
        return Call(whole.requests, none_refused, repeatable=False, scripts=whole.scripts)
    return scripts.TELL.call(
        {"events": keys.events}, {"events_cap": cap, "told": packed}, read=lambda _: None
    )


def read(keys: QueueKeys, *, after: str, count: int, block_ms: int) -> Call[list[QueueEvent]]:
    """Events after an id, waiting up to `block_ms` for the first."""
    request = command("XREAD", "COUNT", count, "BLOCK", block_ms, "STREAMS", keys.events, after)
    return Call((request,), _read_events, block_ms=block_ms)


def about(keys: QueueKeys, job_id: str, *, since_ms: int, count: int) -> Call[list[QueueEvent]]:
    """Events of one job among the first `count` that were told since an instant."""
    wanted = job_id.encode()

    def read_own(reply: Reply) -> list[QueueEvent]:
        return [parse_event(entry_id, fields) for entry_id, fields in reply if wanted in fields]

    return call("XRANGE", keys.events, max(0, since_ms), "+", "COUNT", count, read=read_own)


def last_id(keys: QueueKeys) -> Call[str]:
    """The id of the newest event, `0-0` if there is none: a place to read on from."""
    return call("XREVRANGE", keys.events, "+", "-", "COUNT", 1, read=_read_last_id)


def _read_events(replies: list[Reply]) -> list[QueueEvent]:
    reply = checked(replies[0])
    if not reply:
        return []
    return [parse_event(entry_id, fields) for entry_id, fields in reply[0][1]]


def _read_last_id(reply: Reply) -> str:
    return reply[0][0].decode() if reply else "0-0"
