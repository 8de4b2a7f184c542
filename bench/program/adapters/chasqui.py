"""ChasquiMQ, through its documented Python API: ours, and the reference package.

Which of them is measured depends on the environment alone: the code is the same, to the letter.
"""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from bench.program.adapter import QUEUE, Adapter, Data, Handle
from chasquimq import Queue, Worker

_STREAM = f"{{chasqui:{QUEUE}}}:stream"
_DELAYED = f"{{chasqui:{QUEUE}}}:delayed"
_WITH_ROOM = 2


class Rival(Adapter):
    """A `Queue` and a `Worker`, defaults but for what the order says."""

    features = frozenset({"events", "results", "pause"})
    _queue: Queue
    _worker: Worker
    _running: asyncio.Task[None]

    async def open(self) -> None:
        """Make the queue; with room for what a scenario lets wait."""
        deepest = max(self.order.depths, default=0)
        room = (deepest + self.order.jobs) * _WITH_ROOM if deepest else None
        self._queue = Queue(QUEUE, redis_url=self.order.url, max_stream_len=room)

    async def add(self, data: Data) -> None:
        """One `add`."""
        await self._queue.add("x", data)

    async def add_bulk(self, many: Sequence[Data]) -> None:
        """One `add_bulk`."""
        await self._queue.add_bulk([{"name": "x", "data": data} for data in many])

    async def add_at(self, data: Data, due_s: float) -> None:
        """With the moment as its delay."""
        await self._queue.add("x", data, delay_ms=datetime.fromtimestamp(due_s, UTC))

    async def add_failing(self, data: Data) -> None:
        """With a millisecond between runs."""
        backoff = {"kind": "fixed", "delay_ms": 1, "jitter_ms": 0}
        await self._queue.add("x", data, attempts=5, backoff=backoff)

    async def add_every(self, data: Data, key: str, interval_ms: int) -> None:
        """By an interval; jobs of different names are different specs."""
        await self._queue.add(key, data, repeat={"kind": "every", "interval_ms": interval_ms})

    async def start(self, handle: Handle) -> None:
        """Run a worker in a task."""
        has_pause, answer = self.order.pause_ms > 0, {"done": True}

        async def handler(job: Any) -> dict[str, bool] | None:  # noqa: ANN401 -- theirs or ours
            handle(job.data)
            if has_pause:
                await self.pause()
            return answer if self.order.results else None

        self._worker = Worker(
            QUEUE,
            handler,
            redis_url=self.order.url,
            concurrency=self.order.concurrency,
            events_enabled=self.order.events,
            store_results=self.order.results,
        )
        self._running = asyncio.create_task(self._worker.run())

    async def stop(self) -> None:
        """Close the worker and wait for it."""
        await self._worker.close()
        await self._running

    def pending(self) -> int:
        """What waits or runs is in the stream, what is delayed in the set."""
        waiting, delayed = self.server.run("XLEN", _STREAM), self.server.run("ZCARD", _DELAYED)
        return int(waiting) + int(delayed)
