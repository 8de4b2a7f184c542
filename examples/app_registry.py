"""Tasks by name: one app, several functions, a lifespan, and what becomes of an unknown name."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

from chasquimq import Chasqui, Job, JobFailedError

app = Chasqui("shop", redis_url="embedded://")
prices: dict[str, int] = {}


@app.lifespan
async def load_prices() -> AsyncIterator[None]:
    """Runs once per process, around all jobs: connect to a database here."""
    prices.update(apple=3, pear=4)
    print("prices are loaded")
    yield
    prices.clear()
    print("prices are gone")


@app.task(attempts=5, timeout=10)
async def total(item: str, *, count: int = 1) -> int:
    """Called with the job's data as keyword arguments."""
    return prices[item] * count


@app.task("log-line")
def log_line(job: Job, data: str) -> None:
    """A plain function, run in a thread; `data` is the job's data as they are."""
    print(f"{job.name}, run {job.attempt}: {data}")


async def main() -> None:
    """Call a task directly, add jobs, run them, and add one that nobody knows."""
    worker = app.worker(store_results=True, concurrency=10)
    async with app, asyncio.TaskGroup() as tasks:
        tasks.create_task(worker.run())
        await log_line.add("hello")
        soon = await total.options(delay=timedelta(milliseconds=50)).add("pear")
        print("two apples:", await (await total.add("apple", count=2)).wait_for_result())
        print("a pear, later:", await soon.wait_for_result())
        print("called directly:", await total("apple"))
        try:
            await (await app.queue().add("totl", {"item": "apple"})).wait_for_result()
        except JobFailedError as error:
            print(error.error)
        await worker.close()


asyncio.run(main())
