"""A `SyncQueue` that many threads share, called from an event loop as a `Queue` is."""

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from chasquimq import Job, SyncQueue

THREADS = 32
T = TypeVar("T")


class Plainly:
    """What a producer asks of a queue; each call is made by a thread, and waited for by it."""

    def __init__(self, name: str, redis_url: str, **settings: Any) -> None:  # noqa: ANN401
        """No thread is started before the first call."""
        self._queue = SyncQueue(name, redis_url=redis_url, **settings)
        self._threads = ThreadPoolExecutor(THREADS)

    async def add(self, **arguments: Any) -> Job:  # noqa: ANN401 -- those of `SyncQueue.add`
        """See `Queue.add`."""
        return await self._call(functools.partial(self._queue.add, **arguments))

    async def add_bulk(self, jobs: list[dict[str, Any]]) -> list[Job]:
        """See `Queue.add_bulk`."""
        return await self._call(lambda: self._queue.add_bulk(jobs))

    async def cancel_delayed(self, job_id: str) -> bool:
        """See `Queue.cancel_delayed`."""
        return await self._call(lambda: self._queue.cancel_delayed(job_id))

    async def remove(self, job_id: str) -> bool:
        """See `Queue.remove`."""
        return await self._call(lambda: self._queue.remove(job_id))

    async def retry_job(self, job_id: str) -> bool:
        """See `Queue.retry_job`."""
        return await self._call(lambda: self._queue.retry_job(job_id))

    async def replay_dlq(self, limit: int, *, ids: list[str]) -> int:
        """See `Queue.replay_dlq`."""
        return await self._call(lambda: self._queue.replay_dlq(limit, ids=ids))

    async def close(self) -> None:
        """Close the connection; all calls have been answered."""
        await self._call(self._queue.close)
        self._threads.shutdown()

    async def _call(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)
