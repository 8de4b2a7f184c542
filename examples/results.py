"""What a handler returns can be waited for, or asked for later; a failure is told as one."""

import asyncio

from chasquimq import Job, JobFailedError, Queue, UnrecoverableError, Worker

URL = "embedded://"


async def divide(job: Job) -> float | None:
    """The quotient, None for the sake of the example, or a failure."""
    a, b = job.data
    if b == 0:
        message = "division by zero"
        raise UnrecoverableError(message)
    return None if a == 0 else a / b


async def main() -> None:
    """Read results one by one, in bulk, and as outcomes that tell every case apart."""
    # Results are kept only by a worker that is told to; here for a minute.
    worker = Worker("maths", divide, redis_url=URL, store_results=True, result_ttl_ms=60_000)
    async with Queue("maths", redis_url=URL) as queue, asyncio.TaskGroup() as tasks:
        tasks.create_task(worker.run())
        some = await queue.add_bulk([{"name": "divide", "data": [n, 4]} for n in range(4)])
        print("as they come:", await asyncio.gather(*(job.wait_for_result() for job in some)))
        print("later, in one go:", await queue.get_job_result_bulk([job.id for job in some]))

        wrong = await queue.add("divide", [1, 0])
        try:
            await wrong.wait_for_result(timeout=5)
        except JobFailedError as error:
            print("failed:", error)

        later = await queue.add("divide", [1, 2], delay_ms=60_000)
        for what, job_id in {
            "a value": some[1].id,
            "None was returned": some[0].id,
            "dead-lettered": wrong.id,
            "still delayed": later.id,
            "never heard of": "no-such-job",
        }.items():
            outcome = await queue.get_outcome(job_id)
            print(f"{what}: {outcome.status}, {outcome.value!r}, {outcome.error!r}")
        await worker.close()


asyncio.run(main())
