"""Read-only answers about whole queues, for people: how deep, how late, which queues there are.

Like `inspect.py` no role of the engine uses this.
"""

from dataclasses import dataclass

from hiredis import ReplyError

from chasquimq.broker.call import Call, Reply, Steps, call, checked, command
from chasquimq.wire.keys import QueueKeys

_SCAN_COUNT = 1_000
# A queue that is in use has one of these; the rest of its keys come and go with jobs.
_LASTING = (b":stream", b":dlq", b":delayed", b":events", b":repeat", b":paused")
_TAG = b"{chasqui:"


@dataclass(frozen=True, slots=True)
class Depths:
    """How a queue stands at one moment."""

    stream: int
    """Entries of the main stream: jobs that wait and those in flight."""
    pending: int | None
    """Of these, handed to a consumer and not settled; None if the group was never created."""
    dlq: int
    delayed: int
    oldest_delayed_ms: int | None
    """When the first delayed job is due, epoch ms; None if there is none."""
    repeatable: int
    is_paused: bool
    added: int | None
    """Entries ever added to the stream; None before Redis 7, which does not count them."""

    def lag_ms(self, now_ms: int) -> int | None:
        """How late the first delayed job is; 0 if its time is still to come, None without one."""
        if self.oldest_delayed_ms is None:
            return None
        return max(0, now_ms - self.oldest_delayed_ms)


@dataclass(frozen=True, slots=True)
class FoundQueues:
    """The names of queues that were seen, and whether the whole server was looked through."""

    names: tuple[str, ...]
    is_complete: bool


def depths(keys: QueueKeys, group: str) -> Call[Depths]:
    """All depths in one round trip; a moment's view, since jobs go on moving."""
    requests = (
        command("XLEN", keys.stream),
        command("XPENDING", keys.stream, group),
        command("XLEN", keys.dlq),
        command("ZCARD", keys.delayed),
        command("ZRANGE", keys.delayed, 0, 0, "WITHSCORES"),
        command("ZCARD", keys.repeat),
        command("EXISTS", keys.paused),
        command("XINFO", "STREAM", keys.stream),
    )
    return Call(requests, _read_depths)


def queues(*, most_keys: int) -> Steps[FoundQueues]:
    """The queues of this server, by name, after looking at `most_keys` keys at most, about.

    The keyspace is walked with SCAN, which never holds the server up. In a cluster only the node
    that answers is looked at.
    """
    names: set[str] = set()
    cursor, seen = b"0", 0
    while seen < most_keys:
        cursor, found = yield call(
            "SCAN", cursor, "MATCH", _TAG + b"*", "COUNT", _SCAN_COUNT, read=tuple
        )
        seen += _SCAN_COUNT
        names.update(name for key in found if (name := _queue_of(key)) is not None)
        if cursor == b"0":
            return FoundQueues(tuple(sorted(names)), is_complete=True)
    return FoundQueues(tuple(sorted(names)), is_complete=False)


def _queue_of(key: bytes) -> str | None:
    tag, brace, suffix = key.partition(b"}")
    if not brace or suffix not in _LASTING:
        return None
    try:
        return tag.removeprefix(_TAG).decode()
    except UnicodeDecodeError:
        return None


def _read_depths(replies: list[Reply]) -> Depths:
    length, pending, dlq, delayed, first, repeatable, paused, info = replies
    checked(delayed)  # of the wrong type: then the first one is too
    scores = checked(first)
    return Depths(
        stream=checked(length),
        pending=None if isinstance(pending, ReplyError) else pending[0],
        dlq=checked(dlq),
        delayed=delayed,
        oldest_delayed_ms=int(float(scores[1])) if scores else None,
        repeatable=checked(repeatable),
        is_paused=bool(checked(paused)),
        # A stream that does not exist yet is refused.
        added=0 if isinstance(info, ReplyError) else _added(info),
    )


def _added(info: list[Reply]) -> int | None:
    found: int | None = dict(zip(info[::2], info[1::2], strict=True)).get(b"entries-added")
    return found
