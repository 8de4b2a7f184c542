"""What a fault is given: the servers, the processes, the queue's keys, and where to write."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from chaos.clocks import now_us
from chaos.fleet import Actor, Fleet
from chaos.history import Cut, Scroll
from chaos.stage import Stage
from chasquimq.wire.keys import QueueKeys

_PATIENCE_S = 2.0


@dataclass(frozen=True, slots=True)
class Scene:
    """A run, as the nemesis sees it."""

    stage: Stage
    fleet: Fleet
    keys: QueueKeys
    scroll: Scroll
    over: threading.Event
    """Set when it is enough: lasting faults end at once."""
    _server: threading.Lock = field(default_factory=threading.Lock)

    def someone(self, chance: random.Random, *names: str) -> Actor:
        """One of the actors whose names begin so."""
        return chance.choice(self.fleet.of(*names))

    @contextmanager
    def server(self) -> Iterator[None]:
        """Keep others from the server: one that is away, or changes places, cannot be told things.

        Raises `TimeoutError` if it is not to be had soon: a fault that waits plays no other.
        """
        if not self._server.acquire(timeout=_PATIENCE_S):
            message = "another fault keeps the server"
            raise TimeoutError(message)
        try:
            yield
        finally:
            self._server.release()

    def last(self, seconds: float) -> None:
        """Let so much time pass, or less if the run is over."""
        self.over.wait(seconds)

    @contextmanager
    def cutting(self, who: str, why: str) -> Iterator[None]:
        """Write down that somebody could not work for as long as this lasts."""
        began = now_us()
        try:
            yield
        finally:
            self.scroll.write(Cut(began, now_us(), who, why))
