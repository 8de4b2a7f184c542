"""Events of a queue flow into a folder of Parquet; a second run goes on where the first ended.

Needs the extras spark and embedded, and Java 17 (or the extra spark-java).
"""

import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from chasquimq import SyncQueue
from chasquimq.spark import session


def follow(spark: SparkSession, url: str, folder: str) -> None:
    """Copy what has been told since the last time, then end."""
    events = (
        spark.readStream.format("chasquimq_events")
        .options(redis_url=url, queue="emails", startingOffsets="earliest")
        .load()
    )
    query = (
        events.writeStream.format("parquet")
        .option("path", f"{folder}/events")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print("rows in the lake:", spark.read.parquet(f"{folder}/events").count())


def main(folder: str) -> None:
    """Add jobs, follow, add more, follow again."""
    url = f"embedded://{folder}/server"  # Spark has several processes: they share this server
    spark = session(config={"spark.log.level": "ERROR", "spark.ui.enabled": "false"})
    with SyncQueue("emails", redis_url=url) as queue:
        queue.add_bulk([{"name": "welcome", "data": {"n": n}} for n in range(100)])
        follow(spark, url, folder)
        queue.add("reminder", {"n": 100}, delay_ms=60_000)
        follow(spark, url, folder)

    events = spark.read.parquet(f"{folder}/events")
    for row in events.groupBy("event", "name").count().orderBy("event").collect():
        print(row.event, row.name, row["count"])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(str(Path(folder).resolve()))
