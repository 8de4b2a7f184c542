"""streaQ; tasks log nothing and keep no results."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any

from streaq import Worker

from bench.program.adapter import QUEUE, Adapter, Data, Handle
from bench.program.order import Order


class Rival(Adapter):
    """A `Worker` to add with, and another one to work with."""

    features = frozenset({"pause"})

    def __init__(self, order: Order) -> None:
        """Make the one to add with."""
        super().__init__(order)
        self._handle: Handle = lambda _: None
        self._stack = AsyncExitStack()
        self._adding, self._task = self._worker()

    def _worker(self) -> tuple[Any, Any]:
        worker = Worker(
            redis_url=self.order.url,
            queue_name=QUEUE,
            concurrency=self.order.concurrency,
            handle_signals=False,
        )

        async def run(data: Data) -> None:
            self._handle(data)
            await self.pause()

        return worker, worker.task(name="fn", silent=True, ttl=0, max_tries=5)(run)

    async def open(self) -> None:
        """Connect."""
        await self._stack.enter_async_context(self._adding)

    async def add(self, data: Data) -> None:
        """One `enqueue`."""
        await self._task.enqueue(data)

    async def add_bulk(self, many: Sequence[Data]) -> None:
        """One `enqueue_many`."""
        await self._adding.enqueue_many([self._task.enqueue(data) for data in many])

    async def add_at(self, data: Data, due_s: float) -> None:
        """Scheduled."""
        await self._task.enqueue(data).start(schedule=datetime.fromtimestamp(due_s, UTC))

    async def start(self, handle: Handle) -> None:
        """Run a worker in a task."""
        self._handle = handle
        worker, _ = self._worker()
        self._running = asyncio.create_task(worker.run_async())

    async def stop(self) -> None:
        """Cancel it."""
        self._running.cancel()

    def pending(self) -> int:
        """In the stream, or delayed."""
        keys = f"streaq:{QUEUE}:queues"
        waiting = self.server.run("XLEN", f"{keys}:normal")
        return int(waiting) + int(self.server.run("ZCARD", f"{keys}:delayed:normal"))
