"""Writes down what excuses everybody, and what does not: a server out of reach, and who leads."""

import threading
from contextlib import suppress
from typing import Self

import redis

from chaos.clocks import now_us
from chaos.history import EVERYBODY, Cut, Led, Scroll
from chaos.process import STANDSTILL_US, watch_pulse
from chaos.stage import Stage

_LOOK_S = 0.1


class Watch:
    """Two threads: one asks the server again and again, one sees whether this process gets time.

    The proxies live in this process: when it stands still, so does everybody's network.
    """

    def __init__(self, stage: Stage, scroll: Scroll, scheduler_lock: bytes) -> None:
        """Nothing is watched before `with`."""
        self._stage = stage
        self._lock = scheduler_lock
        self._scroll = scroll
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._look, daemon=True),
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
            return (self._stage.run("GET", self._lock) or b"").decode()
        return ""

    def _told(self, since: int, until: int, leader: str) -> None:
        if leader:
            self._scroll.write(Led(since, until, leader))
