"""The smallest whole program: a queue, a worker, a job, its result."""
# ruff: noqa: ANN001, ANN201, D103, F841, RUF006 -- exactly as in the README

import asyncio

from chasquimq import Queue, Worker


async def welcome(job):
    return f"Welcome, {job.data['name']}!"


async def main():
    worker = Worker("emails", welcome, redis_url="embedded://", store_results=True)
    async with Queue("emails", redis_url="embedded://") as queue:
        working = asyncio.create_task(worker.run())
        print(await (await queue.add("welcome", {"name": "Ada"})).wait_for_result())


asyncio.run(main())
