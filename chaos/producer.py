"""A producer process: adds what `workload` wants, and writes down each answer."""

import asyncio
import random
import signal
from itertools import islice
from typing import Any

from chaos.clocks import now_ms, now_us
from chaos.history import Added, Asked, Refused, Withdrawing, Withdrawn
from chaos.process import Life, Orders
from chaos.workload import Wanted, wanted
from chasquimq import BackoffSpec, ChasquiError, Job, Queue, QueueFullError

# Calls that wait for an answer at the same time, at most: a server that is away must not make the
# producer's memory grow.
_PATIENCE = 64
_BULK = 12
_BACKOFF = BackoffSpec.exponential(20, max_ms=400, jitter_ms=10)


class Producer:
    """Adds jobs at a steady rate until it is told to stop."""

    def __init__(self, orders: Orders) -> None:
        """Nothing is added before `run`."""
        self._who = orders.who
        self._life = Life(orders)
        self._life.obey(lambda _: None)
        settings = dict(orders.settings or {})
        self._rate: float = settings.pop("rate")
        self._kinds: list[str] = settings.pop("kinds", [])
        self._queue = Queue(orders.queue, redis_url=orders.url, **settings)
        self._chance = random.Random(orders.seed)
        self._stop = asyncio.Event()
        self._room = asyncio.Semaphore(_PATIENCE)
        self._calls = 0

    async def run(self) -> None:
        """Add until SIGTERM, and then wait for the answers that are due."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._stop.set)
        asking = wanted(self._chance, self._kinds)
        async with asyncio.TaskGroup() as tasks:
            while not self._stop.is_set():
                await self._room.acquire()
                wish = next(asking)
                if wish.is_bulk:
                    tasks.create_task(self._add_many([wish, *islice(asking, _BULK)]))
                else:
                    tasks.create_task(self._add_one(wish))
                await self._pause()
        await self._queue.close()

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(self._chance.expovariate(self._rate)):
                await self._stop.wait()
        except TimeoutError:
            return

    async def _add_one(self, wish: Wanted) -> None:
        try:
            [(call, arguments)] = self._asked([wish])
            try:
                job = await self._queue.add(**arguments)
            except ChasquiError as error:
                is_full = isinstance(error, QueueFullError)
                self._life.scroll.write(Refused(now_us(), call, repr(error)[:200], is_full))
                return
            self._added(call, job)
        finally:
            self._room.release()
        if wish.withdraw_after_ms is not None:
            await self._withdraw(job.id, wish.withdraw_after_ms)

    async def _add_many(self, wishes: list[Wanted]) -> None:
        try:
            asked = self._asked(wishes)
            try:
                jobs = await self._queue.add_bulk([arguments for _, arguments in asked])
            except ChasquiError as error:
                for call, _ in asked:
                    self._life.scroll.write(Refused(now_us(), call, repr(error)[:200]))
                return
            for (call, _), job in zip(asked, jobs, strict=True):
                self._added(call, job)
        finally:
            self._room.release()

    def _asked(self, wishes: list[Wanted]) -> list[tuple[str, dict[str, Any]]]:
        """Write down what is about to be asked for, and return the arguments of each call."""
        asked = []
        for wish in wishes:
            self._calls += 1
            call = f"{self._who}/{self._calls}"
            self._life.scroll.write(
                Asked(now_us(), now_ms(), call, wish.kind, wish.budget, wish.delay_ms, wish.job_id)
            )
            arguments: dict[str, Any] = {"name": wish.kind, "data": {**wish.data, "call": call}}
            arguments |= {"attempts": wish.budget, "backoff": _BACKOFF}
            if wish.delay_ms:
                arguments["delay_ms"] = wish.delay_ms
            if wish.job_id:
                arguments["job_id"] = wish.job_id
            asked.append((call, arguments))
        return asked

    def _added(self, call: str, job: Job) -> None:
        self._life.scroll.write(Added(now_us(), call, job.id, job.deduplicated))

    async def _withdraw(self, job_id: str, after_ms: int) -> None:
        await asyncio.sleep(after_ms / 1_000)
        withdraw = self._chance.choice((self._queue.cancel_delayed, self._queue.remove))
        is_gone: bool | None
        self._life.scroll.write(Withdrawing(now_us(), job_id))
        try:
            is_gone = await withdraw(job_id)
        except ChasquiError:
            is_gone = None
        self._life.scroll.write(Withdrawn(now_us(), job_id, is_gone))


if __name__ == "__main__":
    asyncio.run(Producer(Orders.given()).run())
