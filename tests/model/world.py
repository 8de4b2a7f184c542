"""A real queue as the model is compared with it: read raw, and with time that can be let pass.

The server decides by its own clock when a job is due and when a lease has run out, and nobody can
set that clock. So time passes by moving everything that is dated into the past: scores of the
delayed set, idle times of deliveries, times to live.
"""

from dataclasses import dataclass

import redis

from chasquimq.wire.codec import unpack
from chasquimq.wire.envelope import decode
from chasquimq.wire.keys import QueueKeys
from chasquimq.wire.member import decode_member
from tests.support.raw_queue import GROUP, RawQueue


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
    """Job id, reason, attempts."""


class World:
    """Looks at one queue and lets time pass in it."""

    def __init__(self, client: redis.Redis, keys: QueueKeys) -> None:
        """`client` gives bytes."""
        self.raw = RawQueue(client, keys)
        self._client = self.raw.client
        self._keys = keys

    def look(self) -> Look:
        """Everything, past the library."""
        rows = self._client.xrange(self._keys.stream)
        return Look(
            stream=[(entry_id, _seen(fields[b"d"], fields[b"n"])) for entry_id, fields in rows],
            held={each.entry_id: (each.consumer, each.deliveries) for each in self.raw.held()},
            delayed=[(_seen_member(member), int(score)) for member, score in self.raw.delayed()],
            dlq=[
                (decode(letter["d"]).id, letter["reason"].decode(), int(letter["attempts"]))
                for letter in self.raw.dlq()
            ],
        )

    def ends(self, job_ids: list[str]) -> dict[str, tuple[str, int | None]]:
        """What is kept of these jobs' ends: its kind, and the value."""
        if not job_ids:
            return {}
        outcomes = self._client.mget([self._keys.outcome(job_id) for job_id in job_ids])
        values = self._client.mget([self._keys.result(job_id) for job_id in job_ids])
        return {
            job_id: (outcome[:1].decode(), None if value is None else unpack(value))
            for job_id, outcome, value in zip(job_ids, outcomes, values, strict=True)
            if outcome is not None
        }

    def taken_ids(self, job_ids: tuple[str, ...]) -> set[str]:
        """Those of these ids that are taken."""
        markers = self._client.mget([self._keys.dedup_marker(job_id) for job_id in job_ids])
        return {job_id for job_id, marker in zip(job_ids, markers, strict=True) if marker}

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


def _seen(data: bytes, name: bytes) -> Seen:
    envelope = decode(data)
    return Seen(envelope.id, name.decode(), unpack(envelope.packed_data), envelope.attempt)


def _seen_member(member: bytes) -> Seen:
    name, data = decode_member(member)
    return _seen(data, name.encode())
