"""A handler may be a plain function: it then runs in a thread, so it may block."""

import asyncio
import threading
import time

from chasquimq import Job, Queue, Worker

URL = "embedded://"


def resize(job: Job) -> str:
    """Stands for a library that blocks; four of these run side by side."""
    time.sleep(0.2)
    return f"{job.data} by {threading.current_thread().name}"


async def main() -> None:
    """Run eight blocking jobs in four threads."""
    worker = Worker("images", resize, redis_url=URL, concurrency=4, store_results=True)
    async with Queue("images", redis_url=URL) as queue, asyncio.TaskGroup() as tasks:
        tasks.create_task(worker.run())
        began = time.monotonic()
        jobs = await queue.add_bulk([{"name": "resize", "data": f"{n}.png"} for n in range(8)])
        for line in await asyncio.gather(*(job.wait_for_result() for job in jobs)):
            print(line)
        print(f"1.6 s of work in {time.monotonic() - began:.1f} s")
        await worker.close()


asyncio.run(main())
