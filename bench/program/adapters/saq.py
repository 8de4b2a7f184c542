"""SAQ on Redis; a job's key is deleted when it is done."""

import asyncio
from collections.abc import Sequence
from typing import Any

from saq import Queue, Worker

from bench.program.adapter import QUEUE, Adapter, Data, Handle


class Rival(Adapter):
    """A `Queue` and a `Worker`."""

    features = frozenset({"pause"})

    async def open(self) -> None:
        """Connect the queue."""
        self._queue = Queue.from_url(self.order.url, name=QUEUE)
        await self._queue.connect()

    async def add(self, data: Data) -> None:
        """One `enqueue`."""
        await self._queue.enqueue("fn", data=data, ttl=-1)

    async def add_bulk(self, many: Sequence[Data]) -> None:
        """There is no call for many: all at once."""
        await asyncio.gather(*map(self.add, many))

    async def add_at(self, data: Data, due_s: float) -> None:
        """Scheduled; it knows whole seconds only."""
        await self._queue.enqueue("fn", data=data, ttl=-1, scheduled=int(due_s))

    async def add_failing(self, data: Data) -> None:
        """Run again at once."""
        await self._queue.enqueue("fn", data=data, ttl=-1, retries=5, retry_delay=0.0)

    async def start(self, handle: Handle) -> None:
        """Run a worker in a task."""

        async def run(_: Any, *, data: Data) -> None:  # noqa: ANN401 -- theirs
            handle(data)
            await self.pause()

        queue = Queue.from_url(self.order.url, name=QUEUE)
        worker = Worker(queue, functions=[("fn", run)], concurrency=self.order.concurrency)
        worker.SIGNALS = []
        self._running = asyncio.create_task(worker.start())

    async def stop(self) -> None:
        """Cancel it."""
        self._running.cancel()

    def pending(self) -> int:
        """A set of its own has what is not done."""
        return int(self.server.run("ZCARD", f"saq:{QUEUE}:incomplete"))
