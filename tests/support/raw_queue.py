"""One queue as it stands in the server, read whole: what scripts are judged by.

Everything here goes through the plain client and never through the library, so that a mistake in
what we write cannot be hidden by the same mistake in what we read.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import redis

from chasquimq.wire.keys import QueueKeys

GROUP = "default"


class Held(NamedTuple):
    """One pending delivery: who has which entry, handed out how often."""

    entry_id: bytes
    consumer: str
    deliveries: int


class RawQueue:
    """The keys of one queue, and the few moves a test needs to bring them into a state."""

    def __init__(self, client: redis.Redis, keys: QueueKeys) -> None:
        """Look at the queue of `keys`; `client` gives bytes."""
        self.client: Any = client  # redis-py types every reply as perhaps awaitable
        self.keys = keys

    # --- looking

    def stream(self) -> list[dict[str, bytes]]:
        """The fields of every entry of the main stream, in order."""
        return [_named(fields) for _, fields in self.client.xrange(self.keys.stream)]

    def entry_ids(self) -> list[bytes]:
        """The ids of the main stream's entries, in order."""
        return [entry_id for entry_id, _ in self.client.xrange(self.keys.stream)]

    def dlq(self) -> list[dict[str, bytes]]:
        """The fields of every dead letter, in order."""
        return [_named(fields) for _, fields in self.client.xrange(self.keys.dlq)]

    def delayed(self) -> list[tuple[bytes, float]]:
        """Every member of the delayed set with its score, the earliest first."""
        members: list[tuple[bytes, float]] = self.client.zrange(
            self.keys.delayed, 0, -1, withscores=True
        )
        return members

    def events(self) -> list[str]:
        """Every event on a line of its own, `e=waiting id=j1 ts=5`: the order of fields counts."""
        return [
            " ".join(f"{name.decode()}={value.decode()}" for name, value in fields.items())
            for _, fields in self.client.xrange(self.keys.events)
        ]

    def held(self) -> list[Held]:
        """All deliveries that are not settled, in the order of their entries."""
        if not self.client.exists(self.keys.stream):
            return []
        return [
            Held(row["message_id"], row["consumer"].decode(), row["times_delivered"])
            for group in self.client.xinfo_groups(self.keys.stream)
            for row in self.client.xpending_range(
                self.keys.stream, group["name"], "-", "+", count=100_000
            )
        ]

    def idle_ms(self, entry_id: bytes) -> int:
        """How long a delivery has been silent."""
        (row,) = self.client.xpending_range(self.keys.stream, GROUP, entry_id, entry_id, count=1)
        idle_ms: int = row["time_since_delivered"]
        return idle_ms

    def everything(self) -> dict[str, object]:
        """Every key of the queue by the end of its name, whole, and who holds what.

        Equal before and after means that nothing was written, times to live apart.
        """
        prefix = self.keys.tag.decode() + ":"
        found: dict[str, object] = {"held": self.held()}
        for key in self.client.scan_iter(match=prefix + "*", count=1_000):
            found[key.decode().removeprefix(prefix)] = self._value(key)
        return found

    def now_ms(self) -> int:
        """What the server's clock says."""
        seconds, micros = self.client.time()
        return int(seconds * 1_000 + micros // 1_000)

    # --- bringing about

    def waiting(self, *entries: dict[str, bytes]) -> list[bytes]:
        """Entries that no consumer has read; the group is there."""
        self._ensure_group()
        return [self.client.xadd(self.keys.stream, fields) for fields in entries]

    def delivered(self, consumer: str, *entries: dict[str, bytes]) -> list[bytes]:
        """Entries that `consumer` has in hand, read once and not settled."""
        entry_ids = self.waiting(*entries)
        self.read(consumer)
        return entry_ids

    def read(self, consumer: str) -> list[bytes]:
        """`consumer` takes all that waits; the ids of that."""
        self._ensure_group()
        found = self.client.xreadgroup(GROUP, consumer, {self.keys.stream: ">"})
        return [entry_id for _, entries in found for entry_id, _ in entries]

    def claimed(self, consumer: str, entry_ids: Sequence[bytes]) -> None:
        """Another consumer takes deliveries over, as it does when a lease has run out."""
        self.client.xclaim(self.keys.stream, GROUP, consumer, 0, list(entry_ids))

    def silent_for(self, ms: int, *, consumer: str, entry_id: bytes, deliveries: int = 1) -> None:
        """Nothing was heard of a delivery for so long."""
        self.client.xclaim(
            self.keys.stream, GROUP, consumer, 0, [entry_id],
            idle=ms, retrycount=deliveries, justid=True,
        )  # fmt: skip

    def _ensure_group(self) -> None:
        try:
            self.client.xgroup_create(self.keys.stream, GROUP, "0", mkstream=True)
        except redis.ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise

    def _value(self, key: bytes) -> object:
        match self.client.type(key):
            case b"stream":
                return self.client.xrange(key)
            case b"zset":
                return self.client.zrange(key, 0, -1, withscores=True)
            case b"hash":
                return self.client.hgetall(key)
            case b"set":
                return self.client.smembers(key)
            case b"list":
                return self.client.lrange(key, 0, -1)
            case b"string":
                return self.client.get(key)
            case other:
                message = f"{key!r} is a {other!r}, which no key of a queue should be"
                raise AssertionError(message)


def _named(fields: dict[bytes, bytes]) -> dict[str, bytes]:
    return {name.decode(): value for name, value in fields.items()}
