"""Read-only facts for an examination: what a server says of itself, and all that a queue holds.

Everything is bounded: of long structures the beginning is looked at, and it is said how far. Like
`inspect.py` no role of the engine uses this.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from hiredis import ReplyError

from chasquimq.broker import repeats
from chasquimq.broker.call import Call, Reply, Steps, call, checked, command, told
from chasquimq.errors import DecodeError, ServerReplyError
from chasquimq.wire.envelope import decode
from chasquimq.wire.keys import QueueKeys, glob_of, is_known
from chasquimq.wire.member import decode_member

T = TypeVar("T")

MOST_LOOKED_AT = 1_000
"""Members, specs, deliveries and dead letters that are looked at, of each."""
_SCAN_COUNT = 1_000
_RECENT_MS = 3_600_000
# No stream and no group yet is an answer too.
_NOT_THERE = ("ERR no such key", "NOGROUP")


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a server says of itself; empty where it does not tell."""

    info: Mapping[str, str]
    now_ms: int
    """By its own clock."""
    keys: int

    def number(self, name: str) -> int:
        """A number of its `INFO`; 0 if it does not tell."""
        text = self.info.get(name, "")
        return int(text) if text.lstrip("-").isdecimal() else 0


@dataclass(frozen=True, slots=True)
class Consumer:
    """One name in the group: a worker that runs, or one that was killed."""

    name: str
    pending: int
    idle_ms: int
    """Since it last asked for jobs. A worker asks at least every few seconds."""


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """All that is known of one queue; a moment's view."""

    name: str
    now_ms: int
    """By the server's clock."""
    exists: bool
    depth: int
    """Entries of the stream: waiting and in flight."""
    groups: tuple[str, ...]
    consumers: tuple[Consumer, ...]
    stuck: tuple[tuple[str, int], ...]
    """Deliveries that have been silent for longer than the lease: consumer, idle ms."""
    is_paused: bool
    has_promoter: bool
    has_scheduler: bool
    delayed: int
    oldest_due_ms: int | None
    """When the first delayed job is or was due."""
    specs: int
    next_fire_ms: int | None
    dead: int
    dead_lately: int
    """In the last hour; `MOST_LOOKED_AT` means that many or more."""
    bad_members: int
    """Of the first delayed jobs, those that cannot be read."""
    bad_specs: tuple[str, ...] = field(default=())
    unknown_keys: tuple[str, ...] = field(default=())
    has_seen_all_keys: bool = True
    refusals: tuple[tuple[str, str], ...] = field(default=())
    """What the server would not tell: the key, and its own words. The rest stands as if empty."""

    @property
    def pending(self) -> int:
        """Deliveries in flight, by the book of the group."""
        return sum(consumer.pending for consumer in self.consumers)


def server_facts() -> Call[ServerFacts]:
    """All in one round trip."""
    return Call((command("INFO"), command("TIME"), command("DBSIZE")), _read_server)


def queue_facts(keys: QueueKeys, group: str, *, lease_ms: int, most_keys: int) -> Steps[QueueFacts]:
    """Look at everything a queue has; `most_keys` bounds the walk through the keyspace."""
    seconds, micros = yield call("TIME", read=list)
    now_ms = int(seconds) * 1_000 + int(micros) // 1_000
    questions = _questions(keys, group, now_ms, lease_ms)
    replies = yield Call([request for _, request in questions], list)
    refused = {
        (_text(key), told(reply)): None
        for (key, _), reply in zip(questions, replies, strict=True)
        if isinstance(reply, ReplyError) and not str(reply).startswith(_NOT_THERE)
    }
    (kinds, depth, groups, consumers, stuck, paused, promoter, scheduler, delayed, members,
     due, specs, dead, lately, _) = _lenient(replies)  # fmt: skip

    def note(key: bytes, text: str) -> None:
        refused[_text(key), text] = None

    stored = yield from _tolerant(
        repeats.listed(keys, MOST_LOOKED_AT), [], lambda text: note(keys.repeat, text)
    )
    names, is_complete = yield from _tolerant(
        _scan(keys, most_keys), (set[bytes](), False), lambda text: note(keys.tag, text)
    )
    firing = [each.due_ms for each in stored if not each.is_paused and each.spec is not None]
    return QueueFacts(
        name=keys.name,
        now_ms=now_ms,
        exists=bool(kinds) or bool(names),
        depth=depth or 0,
        groups=tuple(_text(_pairs(each)[b"name"]) for each in groups or ()),
        consumers=tuple(_consumer(_pairs(each)) for each in consumers or ()),
        stuck=tuple((_text(row[1]), row[2]) for row in stuck or ()),
        is_paused=bool(paused),
        has_promoter=promoter is not None,
        has_scheduler=scheduler is not None,
        delayed=delayed or 0,
        oldest_due_ms=_score(due),
        specs=specs or 0,
        next_fire_ms=min(firing, default=None),
        dead=dead or 0,
        dead_lately=len(lately or ()),
        bad_members=sum(not _is_job(member) for member in members or ()),
        bad_specs=tuple(each.key for each in stored if each.spec is None),
        unknown_keys=tuple(_text(key) for key in sorted(names) if not is_known(keys, key)),
        has_seen_all_keys=is_complete,
        refusals=tuple(refused),
    )


def _questions(
    keys: QueueKeys, group: str, now_ms: int, lease_ms: int
) -> tuple[tuple[bytes, bytes], ...]:
    """Which key each request is about, and the request."""
    stream, dlq, delayed = keys.stream, keys.dlq, keys.delayed
    recent = (now_ms - _RECENT_MS, "+", "COUNT", MOST_LOOKED_AT)
    silent = ("IDLE", lease_ms, "-", "+", MOST_LOOKED_AT)
    return (
        (stream, command("EXISTS", stream, dlq, delayed, keys.repeat, keys.events)),
        (stream, command("XLEN", stream)),
        (stream, command("XINFO", "GROUPS", stream)),
        (stream, command("XINFO", "CONSUMERS", stream, group)),
        (stream, command("XPENDING", stream, group, *silent)),
        (keys.paused, command("EXISTS", keys.paused)),
        (keys.promoter_lock, command("GET", keys.promoter_lock)),
        (keys.scheduler_lock, command("GET", keys.scheduler_lock)),
        (delayed, command("ZCARD", delayed)),
        (delayed, command("ZRANGE", delayed, 0, MOST_LOOKED_AT - 1)),
        (delayed, command("ZRANGE", delayed, 0, 0, "WITHSCORES")),
        (keys.repeat, command("ZCARD", keys.repeat)),
        (dlq, command("XLEN", dlq)),
        (dlq, command("XRANGE", dlq, *recent)),
        # Only to know whether it is a stream.
        (keys.events, command("XLEN", keys.events)),
    )


def _tolerant(steps: Steps[T], otherwise: T, on_refusal: Callable[[str], None]) -> Steps[T]:
    """What the steps come to; `otherwise` if the server refuses one of them."""
    try:
        wanted = next(steps)
        while True:
            answer = yield replace(wanted, parse=_catching(wanted.parse))
            if isinstance(answer, ServerReplyError):
                on_refusal(answer.message)
                return otherwise
            wanted = steps.send(answer)
    except StopIteration as end:
        found: T = end.value
        return found


def _catching(
    parse: Callable[[list[Reply]], T],
) -> Callable[[list[Reply]], T | ServerReplyError]:
    def parse_or_catch(replies: list[Reply]) -> T | ServerReplyError:
        try:
            return parse(replies)
        except ServerReplyError as error:
            return error

    return parse_or_catch


def _scan(keys: QueueKeys, most_keys: int) -> Steps[tuple[set[bytes], bool]]:
    """The keys under the queue's tag, and whether the whole keyspace was walked through."""
    pattern = glob_of(keys, b"*")
    found: set[bytes] = set()
    cursor, seen = b"0", 0
    while seen < most_keys:
        cursor, page = yield call("SCAN", cursor, "MATCH", pattern, "COUNT", _SCAN_COUNT, read=list)
        found.update(page)
        seen += _SCAN_COUNT
        if cursor == b"0":
            return found, True
    return found, False


def _lenient(replies: list[Reply]) -> list[Reply]:
    """None where the server refused."""
    return [None if isinstance(reply, ReplyError) else reply for reply in replies]


def _read_server(replies: list[Reply]) -> ServerFacts:
    info, _, keys = _lenient(replies)
    seconds, micros = checked(replies[1])
    lines = (line.partition(":") for line in (info or b"").decode("utf-8", "replace").splitlines())
    return ServerFacts(
        info={name: value for name, colon, value in lines if colon},
        now_ms=int(seconds) * 1_000 + int(micros) // 1_000,
        keys=keys or 0,
    )


def _consumer(row: dict[bytes, Reply]) -> Consumer:
    return Consumer(_text(row[b"name"]), row[b"pending"], row[b"idle"])


def _pairs(row: list[Reply]) -> dict[bytes, Reply]:
    return dict(zip(row[::2], row[1::2], strict=True))


def _score(rows: list[Reply] | None) -> int | None:
    if not rows:
        return None
    try:
        return int(float(rows[1]))
    except (ValueError, OverflowError):  # somebody wrote an infinity
        return None


def _is_job(member: bytes) -> bool:
    try:
        decode(decode_member(member)[1])
    except DecodeError:
        return False
    return True


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")
