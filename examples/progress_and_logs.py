"""A job says how far it is and what it does; anybody can follow it, from any process."""

import asyncio

from chasquimq import Job, Queue, QueueEvent, QueueEvents, Worker

URL = "embedded://"
PAGES = ["cover", "letters", "index"]


async def print_book(job: Job) -> None:
    """Neither call waits for the server; both are stored before the job is seen completed."""
    for number, page in enumerate(job.data, 1):
        job.log(f"printing {page}")
        job.update_progress(100 * number // len(job.data))
    lines = await job.log("bound")  # awaited: it is stored now
    print(f"the log has {lines} lines")


def count_pages(job: Job) -> None:
    """A plain function runs in a thread; there, `wait` does what `await` does."""
    job.update_progress(50).wait(timeout=5)


async def main() -> None:
    """Follow two jobs, one of a coroutine and one of a plain function."""
    done = asyncio.Event()

    def show(event: QueueEvent) -> None:
        print(f"{event.job_name}: {event.fields['progress']} %")

    async with (
        QueueEvents("press", redis_url=URL) as events,
        Queue("press", redis_url=URL) as queue,
    ):
        events.on("progress", show)
        events.on("completed", lambda _: done.set())
        watching = asyncio.create_task(events.run())
        for name, handler in (("book", print_book), ("count", count_pages)):
            worker = Worker("press", handler, redis_url=URL)
            working = asyncio.create_task(worker.run())
            await queue.add(name, PAGES)
            await done.wait()
            done.clear()
            await worker.close()
            await working
        await events.close()
        await watching


asyncio.run(main())
