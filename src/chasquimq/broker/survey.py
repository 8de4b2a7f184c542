"""Read-only answers about whole queues, for people: how deep, how late, what is in them.

Like `inspect.py` no role of the engine uses this.
"""

from dataclasses import dataclass
from typing import Any

from chasquimq.broker import delayed, repeats
from chasquimq.broker.call import Call, Reply, Steps, call, checked, command, unless_missing
from chasquimq.broker.repeats import StoredSpec
from chasquimq.errors import DecodeError
from chasquimq.wire.codec import unpack
from chasquimq.wire.entry import DeadLetter
from chasquimq.wire.envelope import Envelope, decode
from chasquimq.wire.event import EventName, QueueEvent, parse_event
from chasquimq.wire.keys import QueueKeys
from chasquimq.wire.member import decode_member

# All that are kept by default, in some tenths of a second.
_EVENTS_A_PAGE, _EVENT_PAGES = 1_000, 100

_SCAN_COUNT = 1_000
_FAR = 2.0**53
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
    is_known: bool = True
    """Whether there is anything at all of this queue on the server."""

    def lag_ms(self, now_ms: int) -> int | None:
        """How late the first delayed job is; 0 if its time is still to come, None without one."""
        if self.oldest_delayed_ms is None:
            return None
        return max(0, now_ms - self.oldest_delayed_ms)


@dataclass(frozen=True, slots=True)
class Due:
    """A delayed job and when it is due; without an envelope if its member cannot be read."""

    due_ms: int
    name: str
    envelope: Envelope | None


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
        command("EXISTS", *(keys.tag + suffix for suffix in _LASTING)),
    )
    return Call(requests, _read_depths)


def delayed_jobs(keys: QueueKeys, *, limit: int) -> Call[list[Due]]:
    """The delayed jobs that are due first."""
    return call("ZRANGE", keys.delayed, 0, limit - 1, "WITHSCORES", read=_read_due)


def due_ms(keys: QueueKeys, job_id: str) -> Steps[int | None]:
    """When a delayed job is due, epoch ms; None if it is not delayed."""
    member = yield from delayed.find(keys, job_id)
    if member is None:
        return None
    found: int | None = yield call("ZSCORE", keys.delayed, member, read=_epoch_ms)
    return found


def job_in(letter: DeadLetter) -> Envelope | None:
    """The job that a dead letter holds; None if there is none that can be read."""
    try:
        return decode(letter.payload)
    except DecodeError:
        return None


def data_in(job: Envelope | None) -> Any:  # noqa: ANN401 -- the user's data
    """What a job carries; its bytes if they are no MessagePack, None without a job."""
    if job is None:
        return None
    try:
        return unpack(job.packed_data)
    except DecodeError:
        return job.packed_data


def last_failure(keys: QueueKeys, job_id: str, *, since_ms: int) -> Steps[QueueEvent | None]:
    """The newest event `failed` of a job; None if it is not among the newest events any more.

    Nothing else tells why a job that will be tried again has failed. Events before `since_ms` are
    not looked at, nor more than so many pages of them: on a busy queue one may be far back.
    """
    last, wanted = "+", job_id.encode()
    for _ in range(_EVENT_PAGES):
        page: list[Reply] = yield call(
            "XREVRANGE", keys.events, last, max(0, since_ms), "COUNT", _EVENTS_A_PAGE, read=list
        )
        for entry_id, fields in page:
            if wanted in fields:
                event = parse_event(entry_id, fields)
                if event.name == EventName.FAILED and event.job_id == job_id:
                    return event
        if len(page) < _EVENTS_A_PAGE:
            return None
        last = f"({page[-1][0].decode()}"
    return None


def specs(keys: QueueKeys, *, limit: int) -> Steps[list[StoredSpec]]:
    """Recurring jobs with what stands beside them, unreadable ones too, the next to fire first."""
    return (yield from repeats.listed(keys, limit))


def spec(keys: QueueKeys, spec_key: str) -> Steps[StoredSpec | None]:
    """One recurring job."""
    return (yield from repeats.find(keys, spec_key))


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
    length, pending, dead, later, first, repeatable, paused, info, lasting = replies
    firsts = _read_due(checked(first))
    group, facts = unless_missing(pending), unless_missing(info)
    return Depths(
        stream=checked(length),
        pending=None if group is None else group[0],
        dlq=checked(dead),
        delayed=checked(later),
        oldest_delayed_ms=firsts[0].due_ms if firsts else None,
        repeatable=checked(repeatable),
        is_paused=bool(checked(paused)),
        added=0 if facts is None else _added(facts),
        is_known=bool(checked(lasting)),
    )


def _added(info: list[Reply]) -> int | None:
    found: int | None = dict(zip(info[::2], info[1::2], strict=True)).get(b"entries-added")
    return found


def _read_due(reply: Reply) -> list[Due]:
    return [
        Due(_epoch_ms(score) or 0, *_job_of(member))
        for member, score in zip(reply[::2], reply[1::2], strict=True)
    ]


def _job_of(member: bytes) -> tuple[str, Envelope | None]:
    try:
        name, data = decode_member(member)
        return name, decode(data)
    except DecodeError:
        return "", None


def _epoch_ms(score: bytes | None) -> int | None:
    """A score as whole milliseconds; one that no calendar has (`inf`) is cut to the largest."""
    return None if score is None else int(max(0.0, min(float(score), _FAR)))
