"""Real jobs run to their end by a real worker: some complete, some are retried, some die."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from chasquimq import Job, Queue, UnrecoverableError, Worker
from tests.support.eventually import eventually


def some(name: str, number: int) -> list[dict[str, Any]]:
    """So many jobs of a name."""
    return [{"name": name, "data": n} for n in range(number)]


async def handle(job: Job) -> None:
    """`flaky` fails once, `broken` for good, all others are well."""
    if job.name == "flaky" and job.attempt == 1:
        msg = f"no answer to request {job.data}"
        raise ConnectionError(msg)
    if job.name == "broken":
        msg = f"no parser for {job.data!r}"
        raise UnrecoverableError(msg)


async def work(url: str, name: str, jobs: list[dict[str, Any]]) -> None:
    """Add jobs, and run all there are to their end."""
    async with Queue(name, redis_url=url) as queue:
        await queue.add_bulk(jobs)
        worker = Worker(name, handle, redis_url=url, handle_signals=False)
        working = asyncio.create_task(worker.run())

        await _until_done(queue)
        await worker.close()
        await working


async def _until_done(queue: Queue) -> None:
    async def is_done() -> bool:
        counts = await queue.counts()
        return counts.waiting == counts.active == counts.delayed == 0

    predicate: Callable[[], bool | Awaitable[bool]] = is_done
    await eventually(predicate)
