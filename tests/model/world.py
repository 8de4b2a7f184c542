"""A real queue as the model is compared with it: read raw, and with time that can be let pass.

The server decides by its own clock when a job is due and when a lease has run out, and nobody can
set that clock. So time passes by moving everything that is dated into the past: scores of the
delayed set, idle times of deliveries, times to live.
"""

from dataclasses import dataclass

import redis

from chasquimq.errors import DecodeError
from chasquimq.wire.codec import unpack
from chasquimq.wire.envelope import decode
from chasquimq.wire.keys import QueueKeys
from chasquimq.wire.member import decode_member
from tests.support.raw_queue import GROUP, RawQueue

GARBAGE = b"\xc1"
"""What strangers write begins with this, which begins nothing of ours; their serial follows."""


@dataclass(frozen=True)
class Seen:
    """A job as it stands in the server: id, name, the serial in its data, finished runs."""

    id: str
    name: str
    serial: int
    made: int


@dataclass(frozen=True)
class Look:
    """The server's state at one moment."""

    stream: list[tuple[bytes, Seen]]
    held: dict[bytes, tuple[str, int]]
    delayed: list[tuple[Seen, int]]
    dlq: list[tuple[str, str, int]]
    """Job id if there is one, reason, attempts."""


class World:
    """Looks at one queue and lets time pass in it."""

    def __init__(self, client: redis.Redis, keys: QueueKeys) -> None:
        """`client` gives bytes."""
        self.raw = RawQueue(client, keys)
        self._client = self.raw.client
        self._keys = keys

    def look(self) -> Look:
        """Everything, past the library."""
        asked = self._client.pipeline(transaction=False)
        asked.xrange(self._keys.stream)
        asked.xpending_range(self._keys.stream, GROUP, "-", "+", 100_000)
        asked.zrange(self._keys.delayed, 0, -1, withscores=True)
        asked.xrange(self._keys.dlq)
        rows, held, delayed, letters = asked.execute(raise_on_error=False)
        if isinstance(held, redis.ResponseError) and str(held).startswith("NOGROUP"):
            held = []
        return Look(
            stream=[(entry_id, _seen_entry(fields)) for entry_id, fields in rows],
            held={
                row["message_id"]: (row["consumer"].decode(), row["times_delivered"])
                for row in held
            },
            delayed=[(_seen_member(member), int(score)) for member, score in delayed],
            dlq=[
                (_job_id(letter), letter[b"reason"].decode(), int(letter.get(b"attempts", 0)))
                for _, letter in letters
            ],
        )

    def dlq_ids(self) -> list[str]:
        """The ids of the dead letters themselves."""
        return [dlq_id.decode() for dlq_id, _ in self._client.xrange(self._keys.dlq)]

    def consumers(self) -> list[str]:
        """The names in the group; none if it is not there."""
        try:
            rows = self._client.xinfo_consumers(self._keys.stream, GROUP)
        except redis.ResponseError:
            return []
        return [row["name"].decode() for row in rows]

    def is_gone(self) -> bool:
        """Whether no key of the queue is left."""
        return not list(self._client.scan_iter(match=self._keys.tag.decode() + ":*", count=1_000))

    def kept(
        self, job_ids: list[str], unique_ids: tuple[str, ...]
    ) -> tuple[dict[str, tuple[str, int | None]], set[str]]:
        """What is kept of these jobs' ends, its kind and the value; those of these ids taken."""
        keys = self._keys
        wanted = [keys.outcome(job_id) for job_id in job_ids]
        wanted += [keys.result(job_id) for job_id in job_ids]
        wanted += [keys.dedup_marker(job_id) for job_id in unique_ids]
        found = self._client.mget(wanted)
        count = len(job_ids)
        ends = {
            job_id: (outcome[:1].decode(), None if value is None else unpack(value))
            for job_id, outcome, value in zip(job_ids, found, found[count:], strict=False)
            if outcome is not None
        }
        markers = zip(unique_ids, found[2 * count :], strict=True)
        return ends, {job_id for job_id, marker in markers if marker}

    def events(self) -> list[tuple[str, str]]:
        """All events, in order: name and job."""
        rows = self._client.xrange(self._keys.events)
        return [(fields[b"e"].decode(), fields[b"id"].decode()) for _, fields in rows]

    def pass_time(self, ms: int) -> None:
        """Let everything be older by `ms`."""
        for member, _ in self.raw.delayed():
            self._client.zincrby(self._keys.delayed, -ms, member)
        for held in self.raw.held():
            idle_ms = self.raw.idle_ms(held.entry_id) + ms
            self._client.xclaim(
                self._keys.stream, GROUP, held.consumer, 0, [held.entry_id],
                idle=idle_ms, retrycount=held.deliveries, justid=True,
            )  # fmt: skip
        for key in self._client.scan_iter(match=self._keys.tag.decode() + ":*", count=1_000):
            left_ms = self._client.pttl(key)
            if left_ms >= 0:
                self._client.pexpire(key, max(0, left_ms - ms))


def _seen_entry(fields: dict[bytes, bytes]) -> Seen:
    if b"d" not in fields:
        return Seen("", "", int(fields[b"x"]), 0)
    return _seen(fields[b"d"], fields.get(b"n", b""))


def _seen(data: bytes, name: bytes) -> Seen:
    if data.startswith(GARBAGE):
        return Seen("", "", int(data.removeprefix(GARBAGE)), 0)
    envelope = decode(data)
    value = unpack(envelope.packed_data)
    # Of a job that is too big the serial comes first.
    serial = value[0] if isinstance(value, list) else value
    return Seen(envelope.id, name.decode(), serial, envelope.attempt)


def _seen_member(member: bytes) -> Seen:
    if member.startswith(GARBAGE):
        return _seen(member, b"")
    name, data = decode_member(member)
    return _seen(data, name.encode())


def _job_id(letter: dict[bytes, bytes]) -> str:
    try:
        return decode(letter.get(b"d", b"")).id
    except DecodeError:
        return ""
