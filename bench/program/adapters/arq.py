"""arq; it looks for jobs every 10 ms instead of every 500, and keeps no results.

With its own default it could not start more than two batches a second.
"""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Retry, Worker, func

from bench.program.adapter import Adapter, Data, Handle

_CONNECTIONS = 50
_POLL_S = 0.01


class Rival(Adapter):
    """A pool and a `Worker`."""

    features = frozenset({"pause"})

    async def open(self) -> None:
        """Open a pool, of as many connections as adds may wait at a time."""
        settings = RedisSettings("127.0.0.1", self.order.port, max_connections=_CONNECTIONS)
        self._pool = await create_pool(settings)

    async def add(self, data: Data) -> None:
        """One `enqueue_job`."""
        await self._pool.enqueue_job("fn", data)

    async def add_bulk(self, many: Sequence[Data]) -> None:
        """There is no call for many: as many at a time as there are connections."""
        for first in range(0, len(many), _CONNECTIONS):
            await asyncio.gather(*map(self.add, many[first : first + _CONNECTIONS]))

    async def add_at(self, data: Data, due_s: float) -> None:
        """Deferred until then."""
        await self._pool.enqueue_job("fn", data, _defer_until=datetime.fromtimestamp(due_s, UTC))

    async def add_failing(self, data: Data) -> None:
        """Like any other: the handler asks for the next run."""
        await self.add(data)

    async def start(self, handle: Handle) -> None:
        """Run a worker in a task."""

        async def run(_: object, data: Data) -> None:
            try:
                handle(data)
            except RuntimeError as error:
                raise Retry(defer=0.001) from error
            await self.pause()

        worker = Worker(
            functions=[func(run, name="fn")],
            redis_settings=RedisSettings("127.0.0.1", self.order.port),
            max_jobs=self.order.concurrency,
            poll_delay=_POLL_S,
            keep_result=0,
            log_results=False,
            handle_signals=False,
        )
        self._running = asyncio.create_task(worker.async_run())

    async def stop(self) -> None:
        """Cancel it."""
        self._running.cancel()

    def pending(self) -> int:
        """A job is in the set until it is done."""
        return int(self.server.run("ZCARD", "arq:queue"))
