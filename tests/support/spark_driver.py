"""A Spark driver in a process of its own, to be killed: `python -m` this module, `'{...}'`.

It is given the settings of its session, and reads orders from its standard input, one JSON object
a line. It carries out all of them at the same time, each in a thread, and reports each that is
done by the name of what it was:

- `events`: stream the events of a queue into a folder, in small batches.
- `jobs`: write numbers as jobs of a queue that is soon full, under a run id.
- `fleet`: run the jobs of a queue until somebody orders `stop`. Those whose number is that in
  `hold-<queue>` on the server, or above it, last until it goes away.
- `batch`: process the jobs of a queue as a table, and hang where the order says.
- `pipeline`: take the events of a queue through all tables, and compact often.
- `rebuild`: make the tables above bronze anew.

Some find something out, and write it to the file that the order names:

- `numbers`: a column of a folder of Parquet.
- `tables`: the rows of some tables of a pipeline, as JSON.
"""

import json
import os
import signal
import sys
import threading
import time
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import redis
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from chasquimq import Job
from chasquimq.config import LEAST_LEASE_MS
from chasquimq.pipeline import Done, Pipeline
from chasquimq.spark import SparkWorker, process_batch, session
from chasquimq.spark.batch_hand import Processed
from tests.support.batches import content

FLEET_CONCURRENCY = 4
FLEET_ATTEMPTS = 4
READ_COUNT = 64
PIPELINE_BATCH = 60
# A worker beside the fleet takes over what a killed driver left after this long.
LEASE_MS = LEAST_LEASE_MS
# How often an order is tried; it costs a Spark that is out of breath some 10 s a time.
_PATIENCE = 20


class Office:
    """Carries out orders."""

    def __init__(self, spark: SparkSession) -> None:
        """Nothing is under way yet."""
        self._spark = spark
        self._fleets: list[SparkWorker] = []

    def carry_out(self, order: dict[str, Any]) -> None:
        """Do it, again where Spark gave up, as whoever runs a driver would; report it."""
        for _ in range(_PATIENCE):
            try:
                getattr(self, order["what"])(order)
            except (PySparkException, Py4JJavaError):
                traceback.print_exc()
            else:
                sys.stdout.write(order["what"] + "\n")
                sys.stdout.flush()
                return
        os._exit(1)

    def events(self, order: dict[str, Any]) -> None:
        """Stream into a folder, what there is or, without `available_now`, for ever."""
        frame = self._spark.readStream.format("chasquimq_events").options(
            redis_url=order["url"], queue=order["queue"], startingOffsets="earliest",
            maxOffsetsPerTrigger=order["in_a_batch"],
        )  # fmt: skip
        writer = (
            frame.load()
            .writeStream.format("parquet")
            .option("path", order["lake"])
            .option("checkpointLocation", order["checkpoint"])
        )
        if order.get("available_now"):
            writer = writer.trigger(availableNow=True)
        writer.start().awaitTermination()

    def jobs(self, order: dict[str, Any]) -> None:
        """Write a table of numbers; wait while the queue holds `cap` of them, if that is given."""
        frame = numbers(self._spark, int(order["rows"]))
        options = {"redis_url": order["url"], "queue": order["queue"], "runId": "r"}
        if "cap" in order:
            options |= {"maxStreamLen": str(order["cap"]), "chunkRows": "50"}
        frame.write.format("chasquimq").options(**options).mode("append").save()

    def fleet(self, order: dict[str, Any]) -> None:
        """Work, for ever or `until_idle`."""
        worker = fleet(self._spark, order, max_attempts=order.get("attempts", FLEET_ATTEMPTS))
        self._fleets.append(worker)
        worker.run(until_idle=order.get("until_idle", False))

    def stop(self, _: dict[str, Any]) -> None:
        """End every fleet."""
        while self._fleets:
            self._fleets.pop().stop()

    def batch(self, order: dict[str, Any]) -> None:
        """Process a backlog."""
        done = batch(self._spark, order)
        if "into" in order:
            _answer(order, [done.completed, done.failed, done.lost])

    def pipeline(self, order: dict[str, Any]) -> None:
        """Make tables."""
        take_in(Pipeline(order["lake"], spark=self._spark), order)

    def rebuild(self, order: dict[str, Any]) -> None:
        """Make them anew."""
        Pipeline(order["lake"], spark=self._spark).rebuild()

    def numbers(self, order: dict[str, Any]) -> None:
        """Read a column."""
        frame = self._spark.read.parquet(order["path"]).select(order["column"])
        _answer(order, [row[0] for row in frame.collect()])

    def tables(self, order: dict[str, Any]) -> None:
        """Read tables."""
        _answer(order, content(Pipeline(order["lake"], spark=self._spark), order["names"]))


def _answer(order: dict[str, Any], found: object) -> None:
    """Leave it where the order says, whole or not at all."""
    part = Path(order["into"] + ".part")
    part.write_text(json.dumps(found))
    part.rename(order["into"])


def fleet(spark: SparkSession, told: dict[str, Any], **options: Any) -> SparkWorker:
    """Slots that note each run, and in which process, on the server; see `note_run`."""
    url, queue = told["url"], told["queue"]
    return SparkWorker(
        queue,
        lambda job: note_run(job, url, queue),
        spark=spark,
        redis_url=url,
        **{
            "concurrency": FLEET_CONCURRENCY,
            "max_attempts": FLEET_ATTEMPTS,
            "claim_min_idle_ms": LEASE_MS,
            "linger_ms": 200,
            "read_count": READ_COUNT,
            "store_results": True,
        }
        | options,
    )


def note_run(job: Job, url: str, queue: str) -> int:
    """Note a run of the job, then do what its name says.

    `poison` kills its process, `flaky` fails in its first run, `doomed` in every.
    """
    run = {"name": job.name, "number": job.data, "attempt": job.attempt, "pid": os.getpid()}
    with redis.Redis.from_url(url) as client:
        client.rpush(f"ran-{queue}", json.dumps(run))
        while (held := cast("bytes | None", client.get(f"hold-{queue}"))) and job.data >= int(held):
            time.sleep(0.05)
    if job.name == "poison":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.01)
    if job.name == "doomed" or (job.name == "flaky" and job.attempt == 1):
        message = f"failed in run {job.attempt}"
        raise ValueError(message)
    return int(job.data) * 2


def noted_runs(client: redis.Redis, queue: str) -> list[dict[str, Any]]:
    """Every run that was noted, in the order in which they began."""
    found: Any = client.lrange(f"ran-{queue}", 0, -1)
    return [json.loads(each) for each in found]


def batch(spark: SparkSession, told: dict[str, Any]) -> Processed:
    """Write a table of numbers over what is there, and hang `before` that or `after` it."""
    out, hangs = Path(told["out"]), told.get("hangs")

    def hang(where: str) -> None:
        if hangs == where:
            out.with_name(f"hangs-{where}").touch()
            threading.Event().wait()

    def save(jobs: DataFrame) -> None:
        rows = sorted(row.job_id for row in jobs.select("job_id").collect())
        hang("before")
        target = str(out / f"first={rows[0]}")
        jobs.select("job_id", "payload.n").write.mode("overwrite").parquet(target)
        hang("after")

    return process_batch(
        told["queue"], save, spark=spark, redis_url=told["url"], schema="n long", max_attempts=5
    )


def take_in(pipeline: Pipeline, told: dict[str, Any]) -> None:
    """All events through all tables, some at a time, bronze gathered in between."""

    def gather(_: Done) -> None:
        pipeline.compact(keep=timedelta(0))

    pipeline.run(
        [told["queue"]],
        redis_url=told["url"],
        max_events=PIPELINE_BATCH,
        on_batch=gather,
    )


def numbers(spark: SparkSession, count: int) -> DataFrame:
    """A table of so many numbers, the same each time, in two parts."""
    # Not `range`: a thread that has made no frame of its own finds no format of Python's.
    rows = spark.sparkContext.parallelize(range(count), 2).map(lambda number: (number,))
    return spark.createDataFrame(rows, "n long")


def main(config: dict[str, str]) -> None:
    """Do what was told until this process ends."""
    office = Office(session("killed", config))
    for line in sys.stdin:
        threading.Thread(target=office.carry_out, args=(json.loads(line),), daemon=True).start()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
