"""`limits.c` in Python, for machines without a compiler: the same commands, packed by hiredis."""

import sys
import time
from collections.abc import Sequence

import hiredis

from bench.program.meter import Meter
from bench.program.order import Answer
from bench.raw import RawClient, packed

_STREAM, _EVENTS = "{chasqui:limit}:stream", "{chasqui:limit}:events"
_PRODUCER = "dadf16da-0d16-43cf-a4c9-c8b8d96126d2"
_PAYLOAD_BYTES, _LARGE_BYTES = 95, 4_096


def main(port: str, mode: str, jobs: str, batch: str) -> None:
    """Measure one mode and print what was seen."""
    with RawClient(("127.0.0.1", int(port))) as client:
        payload_bytes = _LARGE_BYTES if mode == "add-large" else _PAYLOAD_BYTES
        loop = _Loop(client, payload_bytes, tells=mode == "add-told")
        if mode.startswith("drain"):
            loop.add(int(jobs), 500)
            client.run("XGROUP", "CREATE", _STREAM, "g", "0")
        meter = Meter(client)
        if mode.startswith("drain"):
            loop.drain(int(batch), has_events=mode == "drain-events")
        else:
            loop.add(int(jobs), int(batch))
        print(Answer(meter.figures(int(jobs))).to_json())


class _Loop:
    def __init__(self, client: RawClient, payload_bytes: int, *, tells: bool) -> None:
        self._client = client
        self._tells = tells
        self._payload = b"p" * payload_bytes
        self._is_modern = _has_idmp(client)

    def add(self, jobs: int, batch: int) -> None:
        """As many a write as the batch says."""
        for first in range(0, jobs, batch):
            numbers = range(first, min(jobs, first + batch))
            self._client.exchange([each for number in numbers for each in self._added(number)])

    def drain(self, batch: int, *, has_events: bool) -> None:
        """Read until nothing is left; what is done leaves with the next read."""
        claim = ("CLAIM", 30_000) if self._is_modern else ()
        ask = packed(
            "XREADGROUP", "GROUP", "g", "c", "COUNT", batch, *claim, "STREAMS", _STREAM, ">"
        )
        reply = self._client.exchange([ask])[0]
        while reply:
            ids = [entry[0] for entry in reply[0][1]]
            told = [event for each in ids for event in _events(each)] if has_events else []
            reply = self._client.exchange([*told, *self._acknowledged(ids), ask])[-1]

    def _added(self, number: int) -> list[bytes]:
        job_id = f"{number:026d}"
        once = ("IDMP", _PRODUCER, job_id) if self._is_modern else ()
        room = ("MAXLEN", "~", 10_000_000)
        job = packed("XADD", _STREAM, *once, *room, "*", "d", self._payload, "n", "x")
        if not self._tells:
            return [job]
        waiting = ("e", "waiting", "id", job_id, "ts", int(time.time() * 1_000), "n", "x")
        return [job, packed("XADD", _EVENTS, "MAXLEN", "~", 100_000, "*", *waiting)]

    def _acknowledged(self, ids: Sequence[bytes]) -> list[bytes]:
        if self._is_modern:
            return [packed("XACKDEL", _STREAM, "g", "IDS", len(ids), *ids)]
        return [packed("XACK", _STREAM, "g", *ids), packed("XDEL", _STREAM, *ids)]


def _events(job_id: bytes) -> list[bytes]:
    now_ms = int(time.time() * 1_000)
    head = ("XADD", _EVENTS, "MAXLEN", "~", 100_000, "*", "e")
    rest = ("id", job_id, "ts", now_ms, "n", "x", "attempt", 1)
    return [packed(*head, "active", *rest), packed(*head, "completed", *rest, "duration_us", 550)]


def _has_idmp(client: RawClient) -> bool:
    try:
        client.run("XADD", "{chasqui:limit}:probe", "IDMP", "p", "i", "*", "d", "x")
    except hiredis.ReplyError:
        return False
    return True


if __name__ == "__main__":
    main(*sys.argv[1:])
