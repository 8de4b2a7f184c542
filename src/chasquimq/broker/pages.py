"""Reads whole structures a page at a time, for those who copy them elsewhere; changes nothing."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from chasquimq.broker.call import Call, Reply, call, checked, command, unless_missing
from chasquimq.broker.results import Kept
from chasquimq.broker.seek import scanned
from chasquimq.wire.ids import StreamId
from chasquimq.wire.keys import QueueKeys

Entry: TypeAlias = list[Any]
"""An entry's id, and its fields, flat: the reply as it is, since many are read."""

FROM_START = b"0"
"""The cursor that a scan begins with, and that says it is over."""


@dataclass(frozen=True, slots=True)
class StreamHead:
    """How a stream stands: its live entries, and how many it was ever given.

    `added` is None on servers before Redis 7.0, which do not count. A stream that does not exist
    has nothing and was given nothing.
    """

    length: int
    first: StreamId | None
    last: StreamId
    """The greatest id ever given, whether its entry is still there or not."""
    added: int | None

    @property
    def removed(self) -> int | None:
        """How many entries are gone, trimmed or deleted; None where the server does not count."""
        return None if self.added is None else self.added - self.length


NO_STREAM = StreamHead(0, None, StreamId.MIN, 0)


@dataclass(frozen=True, slots=True)
class Held:
    """Who holds an entry, for how long since it was last heard of, and how often it was given."""

    consumer: str
    idle_ms: int
    deliveries: int


@dataclass(frozen=True, slots=True)
class Expiring:
    """What is kept of a job and for how much longer; None for ever."""

    kept: Kept
    ttl_ms: int | None


def head(stream: bytes) -> Call[StreamHead]:
    """How a stream stands, all of it at one moment."""
    return Call((command("XINFO", "STREAM", stream),), lambda replies: _read_head(replies[0]))


def entries(stream: bytes, first: str, last: str, count: int) -> Call[list[Entry]]:
    """Up to `count` entries between two ids, both included, or excluded where `(` is before one."""
    return call("XRANGE", stream, first, last, "COUNT", count, read=list)


def chosen(stream: bytes, entry_ids: Sequence[bytes]) -> Call[list[Entry]]:
    """Those of some entries that are there, in the order of the ids."""
    requests = [command("XRANGE", stream, each, each) for each in entry_ids]
    return Call(requests, lambda replies: [entry for each in replies for entry in checked(each)])


def held(keys: QueueKeys, group: str, first: str, last: str, count: int) -> Call[dict[bytes, Held]]:
    """Which entries between two ids are in flight; none if no worker ever made the group."""
    request = command("XPENDING", keys.stream, group, first, last, count)
    return Call((request,), lambda replies: _read_held(replies[0]))


def delayed(
    keys: QueueKeys, cursor: bytes, count: int
) -> Call[tuple[bytes, list[tuple[bytes, int]]]]:
    """Members of the delayed set with their due times in epoch ms, and the cursor for the next.

    A member that stays is never missed; one may be given twice.
    """
    step = scanned(cursor)

    def read(reply: Reply) -> tuple[bytes, list[tuple[bytes, int]]]:
        after, flat = step(reply)
        return after, [(m, int(float(s))) for m, s in zip(flat[::2], flat[1::2], strict=True)]

    return call("ZSCAN", keys.delayed, cursor, "COUNT", count, read=read)


def results(keys: QueueKeys, cursor: bytes, count: int) -> Call[tuple[bytes, list[str]]]:
    """Ids of jobs whose result or outcome is kept, and the cursor for the next.

    Looks through all keys of the server, `count` of them a call. An id may be given twice.
    """
    tag = re.sub(rb"([\\*?\[\]])", rb"\\\1", keys.tag)
    prefixes = (keys.result(""), keys.outcome(""))

    step = scanned(cursor)

    def read(reply: Reply) -> tuple[bytes, list[str]]:
        after, names = step(reply)
        found = [
            key.removeprefix(prefix).decode("utf-8", "replace")
            for key in names
            for prefix in prefixes
            if key.startswith(prefix)
        ]
        return after, found

    return call("SCAN", cursor, "MATCH", tag + b":[or]*", "COUNT", count, read=read)


def expiring(keys: QueueKeys, job_id: str) -> Call[Expiring]:
    """What is kept of a job, and how long its result, else its outcome, still lives."""
    result, outcome = keys.result(job_id), keys.outcome(job_id)
    requests = (
        command("GET", result),
        command("GET", outcome),
        command("PTTL", result),
        command("PTTL", outcome),
    )
    return Call(requests, _read_expiring)


def _read_head(reply: Reply) -> StreamHead:
    info = unless_missing(reply)
    if info is None:
        return NO_STREAM
    facts = dict(zip(info[::2], info[1::2], strict=True))
    first = facts[b"first-entry"]
    return StreamHead(
        facts[b"length"],
        None if first is None else StreamId.parse(first[0]),
        StreamId.parse(facts[b"last-generated-id"]),
        facts.get(b"entries-added"),
    )


def _read_held(reply: Reply) -> dict[bytes, Held]:
    return {
        entry_id: Held(consumer.decode("utf-8", "replace"), idle_ms, deliveries)
        for entry_id, consumer, idle_ms, deliveries in unless_missing(reply) or []
    }


def _read_expiring(replies: list[Reply]) -> Expiring:
    value, outcome, value_ttl_ms, outcome_ttl_ms = map(checked, replies)
    ttl_ms = outcome_ttl_ms if value is None else value_ttl_ms
    return Expiring(Kept(value, outcome), ttl_ms if ttl_ms >= 0 else None)
