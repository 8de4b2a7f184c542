"""Workers that share a limit, and a handler that runs into somebody else's."""

import asyncio
import time

from chasquimq import Job, Queue, RateLimitError, Worker

URL = "embedded://"
LIMIT = {"rate_limit_max": 5, "rate_limit_duration_ms": 500}
CALLS = 15
AT_ONCE_S = 0.05


async def main() -> None:
    """Fifteen calls at five in half a second, by two workers; then one that is refused once."""
    calls: list[float] = []
    refused: list[int] = []
    all_called = asyncio.Event()

    async def call(_: Job) -> None:
        calls.append(time.perf_counter())
        if len(calls) == CALLS:
            all_called.set()

    async def call_them(job: Job) -> None:
        if not refused:
            refused.append(job.attempt)
            print("they say: try again in 200 ms")
            raise RateLimitError(retry_after_ms=200)
        print(f"run {job.attempt} again: no attempt was spent")
        all_called.set()

    async with Queue("calls", redis_url=URL) as queue:
        await queue.add_bulk([{"name": "call", "data": number} for number in range(CALLS)])
        workers = [Worker("calls", call, redis_url=URL, **LIMIT) for _ in range(2)]
        working = [asyncio.create_task(worker.run()) for worker in workers]
        await all_called.wait()
        burst = sum(at - calls[0] < AT_ONCE_S for at in calls)
        print(f"a burst of {burst}, all {CALLS} after {calls[-1] - calls[0]:.1f} s")
        for worker in workers:
            await worker.close()
        await asyncio.gather(*working)

        all_called.clear()
        worker = Worker("calls", call_them, redis_url=URL)
        running = asyncio.create_task(worker.run())
        await queue.add("call", 1, attempts=1)
        await all_called.wait()
        await worker.close()
        await running


asyncio.run(main())
