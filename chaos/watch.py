"""Writes down what nobody else can tell: a server out of reach, who leads, and what was fired."""

import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Self

import redis

from chaos.clocks import now_us
from chaos.history import EVERYBODY, Cut, Fired, Led, Scroll
from chaos.process import STANDSTILL_US, watch_pulse
from chaos.stage import Stage
from chasquimq.wire.keys import QueueKeys

_LOOK_S = 0.1
_EVENTS = 1_000


class Watch:
    """Three threads: two ask the server again and again, one sees whether this process gets time.

    The proxies live in this process: when it stands still, so does everybody's network.
    """

    def __init__(self, stage: Stage, scroll: Scroll, keys: QueueKeys) -> None:
        """Nothing is watched before `with`."""
        self._stage = stage
        self._keys = keys
        self._scroll = scroll
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._look, daemon=True),
            threading.Thread(target=self._follow, daemon=True),
            threading.Thread(target=watch_pulse, args=(scroll, EVERYBODY, self._stop), daemon=True),
        ]

    def __enter__(self) -> Self:
        """Begin."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _look(self) -> None:
        seen = since = now_us()
        leader = ""
        while not self._stop.wait(_LOOK_S):
            if not self._stage.is_up():
                continue
            now, holder = now_us(), self._leader()
            if now - seen > STANDSTILL_US:
                self._scroll.write(Cut(seen, now, EVERYBODY, "server away"))
            if holder != leader:
                self._told(since, seen, leader)
                leader, since = holder, now
            seen = now
        self._told(since, seen, leader)

    def _leader(self) -> str:
        """Who holds the scheduler's lock; empty if nobody does, or nobody can say."""
        with suppress(redis.RedisError):
            return (self._stage.run("GET", self._keys.scheduler_lock) or b"").decode()
        return ""

    def _follow(self) -> None:
        """Write down each event that tells of the job of a window that it waits.

        Where something else stands at the key of events, or nobody answers, some may be missed.
        """
        last = b"0-0"
        while not self._stop.wait(_LOOK_S):
            with suppress(redis.RedisError, OSError, ValueError, AssertionError):
                since = b"(" + last
                found = self._stage.run("XRANGE", self._keys.events, since, "+", "COUNT", _EVENTS)
                for entry_id, fields in found:
                    last = entry_id
                    self._note_fire(entry_id, fields)

    def _note_fire(self, entry_id: bytes, fields: Mapping[bytes, bytes]) -> None:
        job_id = fields.get(b"id", b"").decode("utf-8", "replace")
        if fields.get(b"e") == b"waiting" and job_id.rpartition("@")[2].isdigit():
            told_ms, at_ms = int(fields.get(b"ts", b"")), int(entry_id.partition(b"-")[0])
            self._scroll.write(Fired(now_us(), job_id, told_ms, at_ms))

    def _told(self, since: int, until: int, leader: str) -> None:
        if leader:
            self._scroll.write(Led(since, until, leader))
