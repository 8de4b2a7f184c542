"""Joins jobs for now that many tasks add within one turn of the event loop into one call.

A job alone is sent at once. While one is on its way others gather until the turn is over, and leave
together: 100 tasks that each add one job after the other cost the server a few scripts. What has
only a name and data waits as just that, and is wrapped column by column with its batch; its id is
made then, and may be greater than that of a job with rules of its own that was added after it.
"""

import asyncio
from collections.abc import Awaitable
from typing import TypeAlias, TypeVar

from chasquimq.broker.call import Steps
from chasquimq.broker.connection import Connection
from chasquimq.broker.steps import drive
from chasquimq.engine import plain
from chasquimq.engine.orders import Order, Wish
from chasquimq.engine.plain import Minted
from chasquimq.engine.portions import portions
from chasquimq.engine.producing import Producing
from chasquimq.errors import OutcomeUnknownError

T = TypeVar("T")

# Jobs that are joined into one call, at most.
_JOINED = 500
# When the callers of a batch of so many, and so many times what else is on its way, are told at
# once, what they add next makes one batch again, and client and server take turns. Told in two
# halves, a turn of the event loop apart, they work at the same time: 140,000 jobs/s, not 85,000,
# from 100 tasks.
_LEAST_HALVED, _LEAST_OVERWEIGHT = 16, 4
_CUT_OFF = "the task that adds was cancelled before the server's answer: the job may be stored"

_Item: TypeAlias = tuple[str, bytes, Order | None, "asyncio.Future[Minted]"]
"""Name, data, the order if the job was wrapped already (then data is its envelope), who waits."""


class Joiner:
    """The adds of one event loop to one queue."""

    def __init__(self, connection: Connection, producing: Producing) -> None:
        """`connection` is shared with others."""
        self._connection = connection
        self._producing = producing
        self._loop = asyncio.get_running_loop()
        self._fresh: list[_Item] = []
        self._tasks: set[asyncio.Task[None]] = set()
        # Jobs whose answer has not come.
        self._in_flight = 0

    def __repr__(self) -> str:
        """Show how much gathers and how much is on its way."""
        return f"<Joiner {len(self._fresh)} waiting, {self._in_flight} on their way>"

    def add_plain(self, name: str, payload: bytes) -> Awaitable[Minted]:
        """Add a job that has a name and data and nothing else; await its id and time of creation.

        Not a coroutine, nor is what it calls for a job that joins: each would cost an add a tenth.
        """
        if self._in_flight == 0 and not self._fresh:
            return self._alone(self._producing.order(Wish(name, payload)))
        return self._join((name, payload, None, self._loop.create_future()))

    def add(self, order: Order) -> Awaitable[Minted]:
        """Add a job for now that was wrapped already."""
        if self._in_flight == 0 and not self._fresh:
            return self._alone(order)
        return self._join((order.name, order.envelope, order, self._loop.create_future()))

    async def drive(self, steps: Steps[T]) -> T:
        """Carry out steps on the connection, once it takes more."""
        self._producing.server = self._connection.server or await self._connection.ready()
        await self._connection.wait_writable()
        return await drive(self._connection, steps)

    async def end(self) -> None:
        """Return when nothing is on its way, and all are told."""
        if self._tasks:
            await asyncio.wait(self._tasks)
            await asyncio.sleep(0)  # the turn in which the second half is told

    async def _alone(self, order: Order) -> Minted:
        self._in_flight += 1
        try:
            if not await self.drive(self._producing.add_as_many_as_fit([order])):
                raise self._producing.full(1)
        finally:
            self._in_flight -= 1
        return order.id, order.created_at_ms

    def _join(self, item: _Item) -> "asyncio.Future[Minted]":
        self._fresh.append(item)
        if len(self._fresh) == 1:
            self._loop.call_soon(self._send_fresh)
        return item[3]

    def _send_fresh(self) -> None:
        batch, self._fresh = self._fresh, []
        sizes = [len(item[1]) for item in batch]
        for part in portions(range(len(batch)), _JOINED, sizes):
            flush = self._flush([batch[at] for at in part])
            task = self._loop.create_task(flush, name="chasquimq-adds")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _flush(self, batch: list[_Item]) -> None:
        self._in_flight += len(batch)
        waiting = [added for *_, added in batch]
        try:
            minted, count = await self._add_all(batch)
        except Exception as error:  # noqa: BLE001 -- told to every caller
            _refuse(waiting, error)
            return
        except BaseException:
            _refuse(waiting, OutcomeUnknownError(_CUT_OFF))
            raise
        finally:
            self._in_flight -= len(batch)
        told = list(zip(waiting, minted[:count], strict=False))
        others = self._in_flight + len(self._fresh)
        is_halved = len(told) >= max(_LEAST_HALVED, _LEAST_OVERWEIGHT * others)
        half = len(told) // 2 if is_halved else len(told)
        _tell(told[:half])
        for added in waiting[count:]:
            _refuse([added], self._producing.full(1))  # one each: it is raised in another task
        if is_halved:
            # Not after an await: who cancels this task would leave them waiting for ever.
            self._loop.call_soon(_tell, told[half:])

    async def _add_all(self, batch: list[_Item]) -> tuple[list[Minted], int]:
        """What was made of each, and how many, from the front, fit."""
        producing = self._producing
        names, payloads, orders, _ = zip(*batch, strict=True)
        if any(orders) or len(batch) == 1:  # for one there is a cheaper call than a script
            wrapped = [each or producing.order(Wish(name, data)) for name, data, each, _ in batch]
            count = await self.drive(producing.add_as_many_as_fit(wrapped))
            return [(order.id, order.created_at_ms) for order in wrapped], count
        joined = plain.batch(producing, names, payloads)
        count = await self.drive(plain.add_as_many_as_fit(producing, joined))
        return [(job_id, joined.created_at_ms) for job_id in joined.ids], count


def _tell(told: list[tuple["asyncio.Future[Minted]", Minted]]) -> None:
    for added, minted in told:
        if not added.done():
            added.set_result(minted)


def _refuse(waiting: list["asyncio.Future[Minted]"], error: Exception) -> None:
    for added in waiting:
        if not added.done():
            added.set_exception(error)
