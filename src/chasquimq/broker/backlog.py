"""Read-only: how deep a queue is, how late its oldest job, whether there is one to take.

The engine never uses this.
"""

from dataclasses import dataclass

from chasquimq.broker import inspect, pages, pause
from chasquimq.broker.call import (
    Call,
    Reply,
    Steps,
    all_checked,
    call,
    checked,
    command,
    together,
    unless_missing,
)
from chasquimq.metrics import QueueDepths
from chasquimq.wire.ids import StreamId
from chasquimq.wire.keys import QueueKeys

_FROM_THE_START = b"-"


def backlog(keys: QueueKeys, group: str) -> Steps[QueueDepths]:
    """Depths and lag in two round trips, whatever the queue holds: a moment's view.

    Lag is the age of the oldest entry that was never delivered; a job counts from when it came to
    the stream, so one that was delayed is late only from its time on. Ages are by the server's
    clock, which also made the ids.
    """
    where = Call(
        (command("XINFO", "GROUPS", keys.stream), command("TIME")),
        lambda replies: (_read_after(replies[0], group), _ms(checked(replies[1]))),
    )
    (after, now_ms), counts = yield together([where, inspect.counts(keys, group)])
    oldest = yield call("XRANGE", keys.stream, after, "+", "COUNT", 1, read=list)
    born_ms = StreamId.parse(oldest[0][0].decode()).ms if oldest else now_ms
    return QueueDepths(
        waiting=counts.waiting,
        active=counts.active,
        delayed=counts.delayed,
        dead=counts.dead,
        lag_ms=max(0, now_ms - born_ms),
    )


@dataclass(frozen=True, slots=True)
class Work:
    """Whether a worker that reads now would be given something."""

    is_there: bool
    is_paused: bool
    newest: StreamId
    """The id after which the next entry will be."""


def work(keys: QueueKeys, group: str, *, min_idle_ms: int) -> Call[Work]:
    """Whether an entry waits, or one whose lease ran out; nothing while the queue is paused."""
    counted = inspect.counts(keys, group)
    headed = pages.head(keys.stream)
    asked = pause.is_paused(keys)
    idle = command("XPENDING", keys.stream, group, "IDLE", min_idle_ms, "-", "+", 1)

    def read(replies: list[Reply]) -> Work:
        is_paused = asked.parse(replies[:1])
        counts, head = counted.parse(replies[3:]), headed.parse(replies[1:2])
        has_orphan = bool(unless_missing(replies[2]))
        is_there = not is_paused and (counts.waiting > 0 or has_orphan)
        return Work(is_there, is_paused, head.last)

    return Call([*asked.requests, *headed.requests, idle, *counted.requests], read)


def _read_after(groups: Reply, group: str) -> bytes:
    """From where on entries were never delivered to the group; all of them if there is none."""
    # Without a stream there is no group either.
    for row in all_checked(unless_missing(groups) or []):
        facts = dict(zip(row[::2], row[1::2], strict=True))
        if facts[b"name"] == group.encode():
            last: bytes = facts[b"last-delivered-id"]
            return b"(" + last
    return _FROM_THE_START


def _ms(reply: Reply) -> int:
    seconds, micros = reply
    return int(seconds) * 1_000 + int(micros) // 1_000
