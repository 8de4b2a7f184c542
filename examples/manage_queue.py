"""Pause a queue, look into it, take jobs out, change them, and empty it."""

import asyncio

from chasquimq import Job, Queue, Worker

URL = "embedded://"
ran: list[str] = []


async def note(job: Job) -> None:
    """Note which job ran, and with which data."""
    ran.append(f"{job.name} {job.data}")


async def browse(queue: Queue) -> None:
    """Walk through the waiting jobs, a page at a time."""
    cursor = None
    while True:
        page = await queue.get_jobs_page("waiting", cursor=cursor, limit=2)
        print("page:", [job.name for job in page.jobs])
        cursor = page.next_cursor
        if cursor is None:
            return


async def main() -> None:
    """Fill a queue that no worker reads yet, manage it, then let a worker have the rest."""
    async with Queue("managed", redis_url=URL, default_job_options={"attempts": 3}) as queue:
        await queue.obliterate(force=True)
        print("paused:", await queue.pause())
        jobs = await queue.add_bulk([{"name": name, "data": 1} for name in ("a", "b", "c")])
        later = await queue.add("later", 1, delay_ms=3_600_000)
        print("counts:", await queue.get_job_counts("waiting", "active", "delayed", "failed"))
        await browse(queue)

        print("removed:", await queue.remove(jobs[1].id))
        print("updated:", await queue.update_job_data(jobs[2].id, 2))
        print("rescheduled:", await queue.reschedule(later.id, delay_ms=7_200_000))
        print("promoted:", await queue.promote_job(later.id))
        print("resumed:", await queue.resume())

        worker = Worker("managed", note, redis_url=URL, store_results=True)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(worker.run())
            for job in (jobs[0], jobs[2], later):
                await queue.wait_for_result(job.id)
            await worker.close()
        print("ran:", sorted(ran))

        await queue.add_bulk([{"name": "more", "data": n} for n in range(1_000)])
        print("would drain:", await queue.drain(dry_run=True))
        print("drained:", await queue.drain())
        print("left:", await queue.count())


asyncio.run(main())
