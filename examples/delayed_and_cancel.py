"""A job can wait for its time, and be cancelled for as long as it waits."""

import asyncio
from datetime import UTC, datetime, timedelta

from chasquimq import Job, Queue, Worker

URL = "embedded://"


async def remind(job: Job) -> str:
    """Say how long ago the job was added."""
    waited_ms = datetime.now(UTC).timestamp() * 1_000 - job.created_at_ms
    return f"{job.data} after {waited_ms:.0f} ms"


async def main() -> None:
    """Delay by milliseconds, by a timedelta and to an instant; cancel one of them."""
    worker = Worker("reminders", remind, redis_url=URL, store_results=True)
    async with Queue("reminders", redis_url=URL) as queue, asyncio.TaskGroup() as tasks:
        tasks.create_task(worker.run())
        tea = await queue.add("remind", "tea", delay_ms=300)
        instant = datetime.now(UTC) + timedelta(milliseconds=500)
        call = await queue.add("remind", "call", delay_ms=instant)
        dentist = await queue.add("remind", "dentist", delay=timedelta(days=3))
        print(await queue.counts())

        print("dentist is", await queue.get_job_state(dentist.id))
        print("cancelled:", await queue.cancel_delayed(dentist.id))
        print("cancelled again:", await queue.cancel_delayed(dentist.id))
        print("dentist is", await queue.get_job_state(dentist.id))

        print(await tea.wait_for_result())
        print(await call.wait_for_result())
        print("too late to cancel:", await queue.cancel_delayed(tea.id))
        await worker.close()


asyncio.run(main())
