"""A job that recurs: stored once, fired by whichever worker leads, each window once."""

import asyncio

from chasquimq import Job, Queue, RepeatPattern, Worker, describe


async def main() -> None:
    """Let a job tick three times, and remove it."""
    ticks: asyncio.Queue[str] = asyncio.Queue()

    async def tick(job: Job) -> None:
        ticks.put_nowait(job.id)

    worker = Worker("clockwork", tick, redis_url="embedded://")
    async with Queue("clockwork", redis_url="embedded://") as queue, asyncio.TaskGroup() as tasks:
        tasks.create_task(worker.run())
        pattern = RepeatPattern.every(200)
        stored = await queue.add("tick", None, repeat=pattern)
        print(f"{stored.id}: {describe(pattern)}")
        for _ in range(3):
            print("fired", await ticks.get())
        print("removed:", await queue.remove_repeatable_by_key(stored.id))
        await worker.close()


if __name__ == "__main__":
    asyncio.run(main())
