"""A producer process of a soak: adds at a steady rate, and keeps the ledger of what was added."""

import asyncio
import logging
import random
import signal
from pathlib import Path

from chaos.process import Life, Orders
from chaos.soak.ledger import ACKNOWLEDGED, Ledger
from chaos.soak.work import Wish, wishes
from chasquimq import ChasquiError, Job, Queue

# Calls that wait for an answer at the same time, at most.
_PATIENCE = 64
_RESULT_S = 60.0

log = logging.getLogger(__name__)


class Producer:
    """Adds jobs until it is told to stop."""

    def __init__(self, orders: Orders) -> None:
        """Nothing is added before `run`."""
        settings = orders.settings or {}
        Life(orders).obey(lambda _: None)
        self._ledger = Ledger(Path(orders.history).with_suffix(f".{ACKNOWLEDGED}"))
        self._pause_s = 1 / settings["rate"]
        self._wishes = wishes(settings["number"], random.Random(orders.seed))
        self._queue = Queue(orders.queue, redis_url=orders.url)
        self._stop = asyncio.Event()
        self._room = asyncio.Semaphore(_PATIENCE)

    async def run(self) -> None:
        """Add until SIGTERM, and then wait for the answers that are due."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stop.set)
        next_s = loop.time()
        async with asyncio.TaskGroup() as tasks:
            while not self._stop.is_set():
                await self._room.acquire()
                wish = next(self._wishes)
                tasks.create_task(self._fulfil(wish))
                # What was missed while the server was away is not made up for: the rate is steady.
                next_s = max(next_s + self._pause_s * len(wish.numbers), loop.time())
                await asyncio.sleep(next_s - loop.time())
        await self._queue.close()

    async def _fulfil(self, wish: Wish) -> None:
        try:
            jobs = await self._add(wish)
        except ChasquiError:
            log.warning("not added, or not known to be", exc_info=True)
            return
        finally:
            self._room.release()
        for number, job in zip(wish.numbers, jobs, strict=True):
            if not job.deduplicated:
                self._ledger.write(number)
        if wish.kind == "awaited":
            await self._await(jobs[0])

    async def _add(self, wish: Wish) -> list[Job]:
        if len(wish.numbers) == 1:
            return [await self._queue.add(**wish.jobs[0])]
        return await self._queue.add_bulk(wish.jobs)

    @staticmethod
    async def _await(job: Job) -> None:
        try:
            await job.wait_for_result(timeout=_RESULT_S)
        except (ChasquiError, TimeoutError):
            log.warning("no result of %s", job.id, exc_info=True)


async def main() -> None:
    """Play the part."""
    await Producer(Orders.given()).run()


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(main())
