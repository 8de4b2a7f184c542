"""Tables of what happened in a queue, a report on them, and dead letters sorted out by cause.

Needs the extra `spark` and Java 17 or newer.
"""

import asyncio
import tempfile

from chasquimq import Job, Queue, QueueEvents, UnrecoverableError, Worker
from chasquimq.pipeline import Pipeline, Slo, Triage
from chasquimq.spark import session


async def handle(job: Job) -> None:
    """Refuse every third order."""
    await asyncio.sleep(0.01)
    if job.data % 3 == 0:
        message = f"order {job.data} has no address"
        raise UnrecoverableError(message)


async def work(url: str) -> None:
    """Run a dozen jobs."""
    events = QueueEvents("orders", redis_url=url)
    async with events, Queue("orders", redis_url=url) as queue:
        await queue.add_bulk([{"name": "ship", "data": number} for number in range(12)])
        worker = Worker("orders", handle, redis_url=url)
        running = asyncio.create_task(worker.run())
        async for event in events:
            if event.name == "drained":
                break
        await worker.close()
        await running


def main() -> None:
    """Work, then look at it."""
    with tempfile.TemporaryDirectory() as folder:
        # A server that Spark's processes reach too.
        url = f"embedded://{folder}/server"
        asyncio.run(work(url))

        spark = session()
        pipeline = Pipeline(f"{folder}/lake", spark=spark, slo=Slo(within_ms=1_000))
        done = pipeline.run(["orders"], redis_url=url)
        print(f"{done.events} events; again: {pipeline.run(['orders'], redis_url=url).events}")
        for row in pipeline.table("days").select("name", "completed", "dead", "slo_burn").collect():
            print(row.asDict())
        print(f"a report, as a page of {len(pipeline.report()) // 1_000} kB")

        triage = Triage("orders", redis_url=url, spark=spark)
        for group in triage.groups():
            print(f"{group.count} dead letters: {group.message}")
            print(
                f"replayed: {triage.replay(triage.choose(fingerprint=group.fingerprint)).changed}"
            )


if __name__ == "__main__":
    main()
