"""A Spark driver in a process of its own, to be killed: `python spark_driver.py '{...}'`.

`events`: stream the events of a queue into a folder, in small batches. `jobs`: write numbers as
jobs of a queue, slowly, under a run id. `fleet`: run the jobs of a queue until there is none left.
`pipeline`: take the events of a queue through all tables, in small batches, and compact after each.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta

import redis
from pyspark.sql import DataFrame, SparkSession

from chasquimq import Job
from chasquimq.pipeline import Done, Pipeline
from chasquimq.spark import SparkWorker, session

FLEET_CONCURRENCY = 4
PIPELINE_BATCH = 60


def main(told: dict[str, str], config: dict[str, str]) -> None:
    """Do what was told until it is done, or until the end of this process."""
    spark = session("killed", config)
    options = {"redis_url": told["url"], "queue": told["queue"]}
    if told["what"] == "fleet":
        fleet(spark, told).run(until_idle=True)
        return
    if told["what"] == "pipeline":
        take_in(Pipeline(told["lake"], spark=spark), told)
        return
    if told["what"] == "jobs":
        frame = numbers(spark, int(told["rows"]), slowly)
        frame.write.format("chasquimq").options(**options, runId="r", chunkRows="50").mode(
            "append"
        ).save()
        return
    events = spark.readStream.format("chasquimq_events").options(
        **options, startingOffsets="earliest", maxOffsetsPerTrigger="500"
    )
    query = (
        events.load()
        .writeStream.format("parquet")
        .option("path", told["lake"])
        .option("checkpointLocation", told["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def take_in(pipeline: Pipeline, told: dict[str, str]) -> None:
    """All events through all tables, some at a time, bronze gathered in between."""

    def gather(_: Done) -> None:
        pipeline.compact(keep=timedelta(0))

    pipeline.run(
        [told["queue"]],
        redis_url=told["url"],
        max_events=PIPELINE_BATCH,
        on_batch=gather,
    )


def fleet(spark: SparkSession, told: dict[str, str]) -> SparkWorker:
    """Slots that note each run on the server; a job `poison` kills the process it runs in."""
    url, ran = told["url"], f"ran-{told['queue']}"

    def note(job: Job) -> None:
        redis.Redis.from_url(url).hincrby(ran, f"{job.name}:{job.data}", 1)
        if job.name == "poison":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.01)

    return SparkWorker(
        told["queue"],
        note,
        spark=spark,
        redis_url=url,
        concurrency=FLEET_CONCURRENCY,
        max_attempts=3,
        linger_ms=200,
    )


def numbers(
    spark: SparkSession, count: int, pace: Callable[[Iterable[int]], Iterable[int]] = iter
) -> DataFrame:
    """A table of so many numbers, the same each time, in two parts."""
    rows = spark.sparkContext.parallelize(range(count), 2).mapPartitions(pace)
    return spark.createDataFrame(rows.map(lambda number: (number,)), "n long")


def slowly(rows: Iterable[int]) -> Iterator[int]:
    """Numbers, at such a pace that somebody can come in between."""
    for number in rows:
        if number % 100 == 0:
            time.sleep(0.05)
        yield number


if __name__ == "__main__":
    main(*json.loads(sys.argv[1]))
