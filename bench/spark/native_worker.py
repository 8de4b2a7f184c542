"""One ordinary `Worker` in a process of its own, as a slot of a fleet is one in a task.

Started by the comparison of fleets. It says `ready`, and begins when it is told to.
"""

import asyncio
import sys

from bench.spark.handlers import nothing
from chasquimq import Worker


async def main(url: str, queue: str, consumer: str, concurrency: str) -> None:
    """Work until our input ends."""
    worker = Worker(
        queue, nothing, redis_url=url, consumer_id=consumer, concurrency=int(concurrency)
    )
    print("ready", flush=True)
    sys.stdin.readline()
    running = asyncio.create_task(worker.run())
    await asyncio.to_thread(sys.stdin.readline)
    await worker.close()
    await running


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
