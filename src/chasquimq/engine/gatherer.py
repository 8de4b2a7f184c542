"""Gathers what happens within a turn of the event loop and hands it on in batches.

The one way in which the engine writes to the server on behalf of jobs: acknowledgements,
relocations, events and adds all go through a gatherer. While a batch is on its way the next one
grows, so batches are as large as the server is slow and as small as latency allows; nobody waits on
a timer.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Any, Generic, TypeVar

from chasquimq.errors import ChasquiError

log = logging.getLogger("chasquimq.engine")
T = TypeVar("T")
R = TypeVar("R")

# Together about ten seconds: what lasts longer is not a hiccup.
_MOST_TRIES = 10
_FIRST_PAUSE_S = 0.025
_LONGEST_PAUSE_S = 2.0


class Gatherer(Generic[T]):
    """Takes items one by one, gives them to `flush` in lists of at most `most`.

    `flights` batches may be on their way at the same time, so order holds within a batch only,
    unless `flights` is 1. `flush` must deal with its own errors; one that escapes is logged and
    costs only its batch.
    """

    def __init__(
        self,
        name: str,
        flush: Callable[[list[T]], Awaitable[None]],
        *,
        most: int,
        flights: int,
    ) -> None:
        """Nothing runs before `start`."""
        self._name = name
        self._flush = flush
        self._most = most
        self._flights = flights
        self.rides_with: Gatherer[Any] | None = None
        """Another one that takes our items along (`take_all`) with what it sends itself."""
        self.items: deque[T] = deque()
        """What waits for a flight; others only look."""
        self._idle: deque[asyncio.Future[None]] = deque()
        self._tasks: list[asyncio.Task[None]] = []
        self._hurried: set[asyncio.Task[None]] = set()
        self._is_ending = False

    def __repr__(self) -> str:
        """Show how much waits."""
        return f"<Gatherer {self._name}, {len(self.items)} waiting>"

    def __len__(self) -> int:
        """How many items wait for a flight."""
        return len(self.items)

    def add(self, item: T) -> None:
        """Take an item; it leaves with all others of this turn."""
        self.items.append(item)
        if self._idle:
            waiter = self._idle.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def take_all(self) -> list[T]:
        """Take what waits, to send it some other way."""
        batch = list(self.items)
        self.items.clear()
        return batch

    def start(self) -> None:
        """Begin to flush. Starting twice is harmless."""
        if not self._tasks:
            self._is_ending = False
            loop = asyncio.get_running_loop()
            self._tasks = [
                loop.create_task(self._fly(), name=f"{self._name}-{n}")
                for n in range(self._flights)
            ]

    async def hurry(self) -> None:
        """Send what waits now, beside the flights; returns as soon as it is on its way.

        For those who are about to write, over the same connection, what must come after it.
        """
        if self.items:
            task = asyncio.get_running_loop().create_task(self._send_all())
            self._hurried.add(task)
            task.add_done_callback(self._hurried.discard)
        if self._hurried:
            # What was hurried, by us or by another in this turn, has its turn before we have ours.
            await asyncio.sleep(0)

    async def insist(self, attempt: Callable[[], Awaitable[R]]) -> R:
        """Try what the server refuses again, for a while; what it refuses at the end is raised.

        The worker lives and holds the leases, so a refusal that passes costs no second run.
        """
        for tried in range(1, _MOST_TRIES):
            try:
                return await attempt()
            except ChasquiError as error:
                if self._is_ending:
                    raise
                log.log(logging.WARNING if tried == 1 else logging.DEBUG,
                        "%s: %s; trying again", self._name, error)  # fmt: skip
            await asyncio.sleep(min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**tried))
        return await attempt()

    async def end(self) -> None:
        """Flush what is left and stop. Returns when nothing is on its way."""
        self._is_ending = True
        while self._idle:
            waiter = self._idle.popleft()
            if not waiter.done():
                waiter.set_result(None)
        tasks, self._tasks = self._tasks, []
        await asyncio.gather(*tasks, *self._hurried)

    def cut(self) -> None:
        """Give up what is still on its way. Harmless after `end`."""
        for task in (*self._tasks, *self._hurried):
            task.cancel()
        self._tasks = []

    async def _fly(self) -> None:
        items = self.items
        while True:
            while not items or self._is_taken_along():
                if self._is_ending:
                    if not items:
                        return
                    break
                waiter = asyncio.get_running_loop().create_future()
                self._idle.append(waiter)
                await waiter
                if self.rides_with is not None:
                    await asyncio.sleep(0)  # it may have been given something in the same turn
            if len(items) <= self._most:
                batch = self.take_all()
            else:
                batch = list(islice(items, self._most))
                for _ in batch:
                    items.popleft()
            await self._send(batch)

    def _is_taken_along(self) -> bool:
        """Whether the other has something waiting: its next flight, soon, has room for ours."""
        return self.rides_with is not None and len(self.rides_with) > 0

    async def _send_all(self) -> None:
        # Taken only now: a flight that has its turn before us would send what came later first.
        if self.items:
            await self._send(self.take_all())

    async def _send(self, batch: list[T]) -> None:
        try:
            await self._flush(batch)
        except (Exception, asyncio.CancelledError) as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise  # we were cut; else something was cancelled inside, and the flight goes on
            log.exception("%s: a batch of %d was not written", self._name, len(batch))
