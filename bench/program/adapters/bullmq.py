"""BullMQ in Python; completed jobs are removed."""

import time
from collections.abc import Sequence
from typing import Any

from bullmq import Queue, Worker

from bench.program.adapter import QUEUE, Adapter, Data, Handle

_REMOVED = {"removeOnComplete": True}
_BACKOFF = {"type": "fixed", "delay": 1}


class Rival(Adapter):
    """A `Queue` and a `Worker`."""

    features = frozenset({"pause"})

    async def open(self) -> None:
        """Make the queue."""
        self._queue = Queue(QUEUE, {"connection": self.order.url})

    async def add(self, data: Data) -> None:
        """One `add`."""
        await self._queue.add("x", data, _REMOVED)

    async def add_bulk(self, many: Sequence[Data]) -> None:
        """One `addBulk`."""
        await self._queue.addBulk([{"name": "x", "data": data, "opts": _REMOVED} for data in many])

    async def add_at(self, data: Data, due_s: float) -> None:
        """With a delay from now."""
        delay_ms = max(0, int((due_s - time.time()) * 1_000))
        await self._queue.add("x", data, _REMOVED | {"delay": delay_ms})

    async def add_failing(self, data: Data) -> None:
        """With a millisecond between runs."""
        await self._queue.add("x", data, _REMOVED | {"attempts": 5, "backoff": _BACKOFF})

    async def start(self, handle: Handle) -> None:
        """Run a worker; it starts itself."""

        async def process(job: Any, _: object) -> None:  # noqa: ANN401 -- theirs
            handle(job.data)
            await self.pause()

        options = {"connection": self.order.url, "concurrency": self.order.concurrency}
        self._worker = Worker(QUEUE, process, options)

    async def stop(self) -> None:
        """Let it take no more; a `close` would wait for a blocking read."""
        self._worker.closed = True

    def pending(self) -> int:
        """Waiting, active and delayed."""
        keys = self.server
        waiting, active = (keys.run("LLEN", f"bull:{QUEUE}:{each}") for each in ("wait", "active"))
        return int(waiting) + int(active) + int(keys.run("ZCARD", f"bull:{QUEUE}:delayed"))
