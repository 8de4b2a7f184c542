"""Many jobs are added in one round trip, each with options of its own."""

import asyncio
import time

from chasquimq import Job, Queue, Worker

URL = "embedded://"
MANY = 10_000


async def main() -> None:
    """Add ten thousand jobs in calls of a thousand, and some with options, and run them all."""
    runs = asyncio.Semaphore(0)

    async def count(_: Job) -> None:
        runs.release()

    worker = Worker("numbers", count, redis_url=URL)
    async with Queue("numbers", redis_url=URL) as queue, asyncio.TaskGroup() as tasks:
        began = time.monotonic()
        for start in range(0, MANY, 1_000):
            await queue.add_bulk([{"name": "n", "data": n} for n in range(start, start + 1_000)])
        print(f"{MANY} jobs added, {MANY / (time.monotonic() - began):,.0f} a second")

        mixed = await queue.add_bulk(
            [
                {"name": "now", "data": 1},
                {"name": "later", "data": 2, "delay_ms": 100},
                {"name": "stubborn", "data": 3, "attempts": 5, "backoff": 250},
                {"name": "once", "data": 4, "job_id": "only-one"},
                {"name": "once", "data": 4, "job_id": "only-one"},
            ]
        )
        print("not added:", [job.deduplicated for job in mixed])

        began = time.monotonic()
        tasks.create_task(worker.run())
        for _ in range(MANY + len({job.id for job in mixed})):
            await runs.acquire()
        print(f"all run, {MANY / (time.monotonic() - began):,.0f} a second")
        await worker.close()


asyncio.run(main())
