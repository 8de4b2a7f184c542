"""A job that fails is retried; one that keeps failing becomes a dead letter and can be replayed."""

import asyncio

from chasquimq import BackoffSpec, Job, JobFailedError, Queue, UnrecoverableError, Worker

URL = "embedded://"
is_gateway_up = False


async def charge(job: Job) -> str:
    """Fails until the gateway is up; a negative amount will never work."""
    if job.data["amount"] < 0:
        message = "a negative amount cannot be charged"
        raise UnrecoverableError(message)  # no retry: straight to the dead letters
    if not is_gateway_up:
        print(f"run {job.attempt} of {job.name}: the gateway is down")
        message = "the gateway is down"
        raise ConnectionError(message)
    return f"charged {job.data['amount']} in run {job.attempt}"


async def main() -> None:
    """Add two jobs that fail, look at their dead letters, replay one, discard the other."""
    global is_gateway_up  # noqa: PLW0603 -- the world outside changes
    worker = Worker("payments", charge, redis_url=URL, store_results=True)
    async with Queue("payments", redis_url=URL) as queue, asyncio.TaskGroup() as tasks:
        tasks.create_task(worker.run())
        backoff = BackoffSpec.exponential(100, multiplier=2, max_ms=1_000, jitter_ms=0)
        good = await queue.add("charge", {"amount": 20}, attempts=3, backoff=backoff)
        bad = await queue.add("charge", {"amount": -5})
        for job in (bad, good):
            try:
                await job.wait_for_result()
            except JobFailedError as error:
                print(f"{error.reason}: {error.error}")

        for letter in await queue.peek_dlq():
            print("dead letter:", letter["reason"], "after", letter["attempts"], "runs")

        is_gateway_up = True
        print("replayed:", await queue.replay_dlq(reason="retries_exhausted"))
        print(await good.wait_for_result())
        print("discarded:", await queue.discard_dlq(ids=[bad.id]))
        await worker.close()


asyncio.run(main())
