"""The smallest whole program: a queue, a worker, a job, its result."""
# ruff: noqa: ANN001, ANN201, D103 -- exactly as in the README

import asyncio

from chasquimq import Queue, Worker


async def welcome(job):
    return f"Welcome, {job.data['name']}!"


async def main():
    worker = Worker("emails", welcome, redis_url="embedded://", store_results=True)
    async with Queue("emails", redis_url="embedded://") as queue, asyncio.TaskGroup() as tasks:
        tasks.create_task(worker.run())
        job = await queue.add("welcome", {"name": "Ada"})
        print(await job.wait_for_result())
        await worker.close()


asyncio.run(main())
