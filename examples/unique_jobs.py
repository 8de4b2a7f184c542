"""A job with an id of your own is added once, however often and from wherever it is asked for."""

import asyncio

from chasquimq import Job, Queue, Worker

URL = "embedded://"
runs: list[str] = []


async def bill(job: Job) -> None:
    """Note that this job ran."""
    runs.append(job.id)


async def main() -> None:
    """Ask for the same invoice three times: twice at once, and once again when it has run."""
    worker = Worker("billing", bill, redis_url=URL, store_results=True)
    async with (
        Queue("billing", redis_url=URL) as queue,
        Queue("billing", redis_url=URL) as elsewhere,  # as good as another process
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(worker.run())
        first, second = await asyncio.gather(
            queue.add_unique("bill", {"month": 5}, job_id="invoice-2026-05"),
            elsewhere.add_unique("bill", {"month": 5}, job_id="invoice-2026-05"),
        )
        print("deduplicated:", sorted([first.deduplicated, second.deduplicated]))
        await first.wait_for_result()

        # The id stays taken for an hour after its job was due, so this one does not run either.
        third = await queue.add_unique("bill", {"month": 5}, job_id="invoice-2026-05")
        print("deduplicated after it ran:", third.deduplicated)
        await worker.close()
    print("runs:", runs)


asyncio.run(main())
