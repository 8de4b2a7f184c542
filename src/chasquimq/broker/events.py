"""The events stream: append to it and read from it."""

from collections.abc import Sequence

from chasquimq.broker import scripts
from chasquimq.broker.call import Call, Reply, call, checked, command
from chasquimq.wire.codec import pack_for_script
from chasquimq.wire.event import QueueEvent, parse_event
from chasquimq.wire.keys import QueueKeys


def append(keys: QueueKeys, batch: Sequence[Sequence[bytes]], *, cap: int) -> Call[None]:
    """Write events, each given by its fields; not repeatable, so none is ever told twice.

    In one script: 7 us an event less for client and server together than a command for each.
    """
    told: list[bytes | int] = []
    for fields in batch:
        told.append(len(fields))
        told += fields
    return scripts.TELL.call(
        {"events": keys.events},
        {"events_cap": cap, "told": pack_for_script(told)},
        read=lambda _: None,
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
