"""Code without an event loop adds jobs with SyncQueue: Flask and Django views, scripts, shells."""

import asyncio

from chasquimq import Job, SyncQueue, Worker

URL = "embedded://"

# Made once, with the application. Threads share it; a forked child opens a connection of its own.
queue = SyncQueue("signups", redis_url=URL)


def sign_up(form: dict[str, str]) -> tuple[str, int]:
    """A view: answers at once and leaves the slow part to a worker."""
    job = queue.add_unique("welcome", form, job_id=f"welcome-{form['email']}")
    return ("already on its way" if job.deduplicated else "on its way"), 202


def serve_requests() -> None:
    """Stands for the web server, which calls views in threads of its own."""
    print(sign_up({"email": "ada@example.com"}))
    print(sign_up({"email": "ada@example.com"}))
    print(queue.wait_for_result("welcome-ada@example.com", timeout=10))
    print(queue.counts())
    queue.close()


async def send_welcome(job: Job) -> str:
    """The slow part."""
    await asyncio.sleep(0.05)
    return f"sent to {job.data['email']}"


async def main() -> None:
    """Both sides in one program; in real life the views and the worker are two."""
    worker = Worker("signups", send_welcome, redis_url=URL, store_results=True)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(worker.run())
        await asyncio.to_thread(serve_requests)
        await worker.close()


asyncio.run(main())
