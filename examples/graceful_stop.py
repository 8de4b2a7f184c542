"""SIGTERM: what runs is finished, what was read and not started goes back, uncounted."""

import asyncio
import os
import signal

from chasquimq import Job, Queue, Worker

URL = "embedded://"
finished: list[str] = []


async def slow(job: Job) -> None:
    """Long enough to be caught in the middle by the signal."""
    print(f"{job.data} begins, run {job.attempt}")
    if not finished and job.data == "first":
        os.kill(os.getpid(), signal.SIGTERM)  # as systemd, Docker and Kubernetes do
    await asyncio.sleep(0.3)
    finished.append(job.data)


async def main() -> None:
    """Stop a worker while one job runs and two wait; let another worker do those."""
    async with Queue("deploys", redis_url=URL) as queue:
        for name in ("first", "second", "third"):
            await queue.add("slow", name)

        # run() catches SIGTERM and SIGINT itself and returns when the running job has ended. It
        # would wait for ten seconds; a second signal stops at once.
        await Worker("deploys", slow, redis_url=URL, concurrency=1, shutdown_deadline_secs=10).run()
        print("first worker stopped;", await queue.counts())

        worker = Worker("deploys", slow, redis_url=URL, concurrency=1, handle_signals=False)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(worker.run())
            while len(finished) < 3:  # noqa: ASYNC110, PLR2004 -- the three jobs above
                await asyncio.sleep(0.02)
            await worker.close()
    print("finished:", finished)


asyncio.run(main())
