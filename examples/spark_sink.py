"""Rows of a table become jobs, each once, however often the same run is written.

Needs the extras spark and embedded, and Java 17 (or the extra spark-java).
"""

import asyncio
import tempfile
from pathlib import Path

from chasquimq import Job, Worker
from chasquimq.spark import session

CUSTOMERS = [("ada", 3.50, 3), ("bob", 12.00, 1), ("eve", 0.99, 5)]


def main(folder: str) -> None:
    """Write the same table twice, look, and work."""
    url = f"embedded://{folder}/server"  # Spark has several processes: they share this server
    spark = session(config={"spark.log.level": "ERROR", "spark.ui.enabled": "false"})

    table = f"{folder}/customers"
    spark.createDataFrame(CUSTOMERS, "who string, due double, attempts int").write.parquet(table)
    bills = spark.read.parquet(table).selectExpr(
        "'bill' as name", "attempts",  # how a job runs
        "who", "due",  # the rest is its payload
    )  # fmt: skip
    for _ in range(2):
        bills.write.format("chasquimq").options(redis_url=url, queue="bills", runId="may").mode(
            "append"
        ).save()

    waiting = spark.read.format("chasquimq_jobs").options(redis_url=url, queue="bills").load()
    for row in waiting.select("name", "max_attempts", "payload").orderBy("payload").collect():
        print(row.name, row.max_attempts, row.payload)
    asyncio.run(work(url))


async def work(url: str) -> None:
    """Run the jobs with an ordinary worker."""
    billed: list[str] = []
    all_billed = asyncio.Event()

    async def bill(job: Job) -> None:
        billed.append(job.data["who"])
        if len(billed) == len(CUSTOMERS):
            all_billed.set()

    worker = Worker("bills", bill, redis_url=url, handle_signals=False)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(worker.run())
        await all_billed.wait()
        await worker.close()
    print("billed, each once:", sorted(billed))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(str(Path(folder).resolve()))
