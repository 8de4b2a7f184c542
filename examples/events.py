"""Everything that happens in a queue can be watched from any process."""

import asyncio

from chasquimq import BackoffSpec, Job, Queue, QueueEvents, Worker

URL = "embedded://"


async def flaky(job: Job) -> None:
    """Fails once."""
    if job.attempt == 1:
        message = "not yet"
        raise RuntimeError(message)


async def main() -> None:
    """Follow one delayed job that fails once, from its adding to its end."""
    worker = Worker("watched", flaky, redis_url=URL)
    async with (
        QueueEvents("watched", redis_url=URL) as events,  # new events only; "0" for all kept
        Queue("watched", redis_url=URL) as queue,
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(worker.run())
        backoff = BackoffSpec.fixed(100, jitter_ms=0)
        job = await queue.add("flaky", {}, delay_ms=200, backoff=backoff)
        async for event in events:
            if event.job_id == job.id:  # events of the whole queue, like drained, have no job
                print(f"{event.name:<16}", event.fields)
            if event.name == "completed":
                break
        await worker.close()


asyncio.run(main())
