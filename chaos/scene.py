"""What a fault is given: the servers, the processes, the queue's keys, and where to write."""

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from chaos.bag import Bag
from chaos.clocks import now_us
from chaos.fleet import Actor, Fleet
from chaos.history import Cut, Record, Scroll, read_since
from chaos.stage import Stage
from chasquimq.wire.keys import QueueKeys

T = TypeVar("T")

_PATIENCE_S = 2.0
_LOOK_S = 0.02
# How long a fault waits for what it was set to break. It keeps others from being played.
ORDER_S = 5.0


class FutileError(Exception):
    """What was to be broken was not there, or did not come to the place where it breaks."""


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
    _bags: dict[str, Bag[Any]] = field(default_factory=dict)

    def someone(self, chance: random.Random, *names: str) -> Actor:
        """One of the actors whose names begin so."""
        return chance.choice(self.fleet.of(*names))

    def bag(self, kind: str, shapes: Sequence[T]) -> Bag[T]:
        """The bag from which the shapes of a kind are dealt in this run."""
        return self._bags.setdefault(kind, Bag(shapes))

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

    def ordered(self, actor: Actor, order: str, is_deed: Callable[[Record], bool]) -> str:
        """Give an order to a process; returns who it is when its history has the deed.

        `FutileError` if it ends before, or takes too long: then it is told to let it be.
        """
        who, mark = actor.who, actor.history.stat().st_size if actor.history.exists() else 0
        actor.order(order)
        deadline = time.monotonic() + ORDER_S
        while not self.over.wait(_LOOK_S) and time.monotonic() < deadline:
            # Asked before the history is read: what it did, it did before it ended.
            is_there = actor.who == who and actor.is_alive
            if actor.history.exists() and any(map(is_deed, read_since(actor.history, mark))):
                return who
            if not is_there:
                message = f"{who} was gone before it came to {order!r}"
                raise FutileError(message)
        actor.order("live")
        message = f"{who} did not come to {order!r}"
        raise FutileError(message)

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
