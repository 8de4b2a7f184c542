"""What a rival has to be able to do to be measured; one adapter each says how."""

# ruff: noqa: ARG002 -- what a rival does not know how to do, it does with nothing

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from bench.program.order import Order
from bench.raw import RawClient

Data: TypeAlias = dict[str, Any]
Handle: TypeAlias = Callable[[Data], object]
QUEUE = "bench"


class CannotError(Exception):
    """The rival has no such feature, or the adapter does not know how to ask for it."""


class Adapter:
    """A rival: a producer and a worker in this process.

    An adapter uses the rival as its documentation says, with its defaults, save where a default
    stands for what the scenario does not want (keeping results, long polls); each says so.
    """

    features: frozenset[str] = frozenset()
    """What it has of `events` (that can be off), `results` and handlers that `pause`."""

    def __init__(self, order: Order) -> None:
        """Know what is asked for; nothing is connected yet."""
        self.order = order
        self.server = RawClient(("127.0.0.1", order.port))

    def check(self) -> None:
        """Refuse an order that asks for what the rival does not have."""
        order = self.order
        asked = {"events": not order.events, "results": order.results, "pause": order.pause_ms > 0}
        for feature, is_asked in asked.items():
            if is_asked and feature not in self.features:
                msg = f"its adapter has no {feature}"
                raise CannotError(msg)

    async def pause(self) -> None:
        """What a handler does besides counting."""
        if self.order.pause_ms:
            await asyncio.sleep(self.order.pause_ms / 1_000)

    async def open(self) -> None:
        """Get ready to add jobs."""

    async def add(self, data: Data) -> None:
        """Add one job and wait until the server has it."""
        raise CannotError

    async def add_bulk(self, many: Sequence[Data]) -> None:
        """Add many, in the rival's fastest documented way."""
        for data in many:
            await self.add(data)

    async def add_at(self, data: Data, due_s: float) -> None:
        """Add one that is due at a time of the wall clock."""
        raise CannotError

    async def add_failing(self, data: Data) -> None:
        """Add one that may fail and is run again after a millisecond, or as soon as can be."""
        raise CannotError

    async def add_every(self, data: Data, key: str, interval_ms: int) -> None:
        """Add one that recurs, known by a key of its own."""
        raise CannotError

    async def start(self, handle: Handle) -> None:
        """Start a worker that calls `handle` with the data of each job, as the order says."""
        raise CannotError

    async def stop(self) -> None:
        """Stop it."""

    def pending(self) -> int:
        """Jobs that are not done, as the server sees it: waiting, running or delayed."""
        raise CannotError
