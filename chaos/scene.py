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


@dataclass(frozen=True, slots=True)
class Scene:
    """A run, as the nemesis sees it."""

    stage: Stage
    fleet: Fleet
    keys: QueueKeys
    scroll: Scroll
    over: threading.Event
    """Set when it is enough: lasting faults end at once."""
    server_lock: threading.Lock = field(default_factory=threading.Lock)
    """Held by what is done to the server: a server that is away cannot be told anything."""

    def someone(self, chance: random.Random, *names: str) -> Actor:
        """One of the actors whose names begin so."""
        return chance.choice(self.fleet.of(*names))

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
