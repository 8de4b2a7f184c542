"""TaskIQ with its stream broker, the one that acknowledges; no result backend."""

import asyncio
from collections.abc import Sequence
from typing import Any

from taskiq.api import run_receiver_task
from taskiq_redis import RedisStreamBroker

from bench.program.adapter import QUEUE, Adapter, Data, Handle
from bench.program.order import Order


class Rival(Adapter):
    """One broker, for adding and for working."""

    features = frozenset({"pause"})

    def __init__(self, order: Order) -> None:
        """Make the broker and its task."""
        super().__init__(order)
        self._handle: Handle = lambda _: None
        # From the start of the stream: jobs wait before the worker is there.
        self._broker = RedisStreamBroker(order.url, queue_name=QUEUE, consumer_id="0")

        async def run(data: dict[str, Any]) -> None:
            self._handle(data)
            await self.pause()

        self._task = self._broker.register_task(run, "fn")

    async def open(self) -> None:
        """Start the broker."""
        await self._broker.startup()

    async def add(self, data: Data) -> None:
        """One `kiq`."""
        await self._task.kiq(data)

    async def add_bulk(self, many: Sequence[Data]) -> None:
        """There is no call for many: all at once."""
        await asyncio.gather(*map(self.add, many))

    async def start(self, handle: Handle) -> None:
        """Run a receiver in a task."""
        self._handle = handle
        most = self.order.concurrency
        receiver = run_receiver_task(
            self._broker,
            max_async_tasks=most,
            max_prefetch=most,
            run_startup=True,
            validate_params=False,
        )
        self._running = asyncio.create_task(receiver)

    async def stop(self) -> None:
        """Cancel it."""
        self._running.cancel()

    def pending(self) -> int:
        """What the group has not read or not acknowledged."""
        (group,) = self.server.run("XINFO", "GROUPS", QUEUE)
        told = dict(zip(group[::2], group[1::2], strict=True))
        lag = told[b"lag"]
        return int(told[b"pending"]) + (1 if lag is None else int(lag))
