"""Spark's executors run the jobs of a queue; then a backlog is drained as one table.

Needs the extras spark and embedded, and Java 17 (or the extra spark-java).
"""

import tempfile
from pathlib import Path

from pyspark.sql import DataFrame

from chasquimq import Job, SyncQueue
from chasquimq.spark import SparkWorker, process_batch, session


def measure(job: Job) -> int:
    """How long a word is; one is too short to bother."""
    word: str = job.data["word"]
    if len(word) == 1:
        message = f"{word!r} is no word"
        raise ValueError(message)
    return len(word)


def main(folder: str) -> None:
    """Run jobs, then jobs as a table."""
    url = f"embedded://{folder}/server"  # Spark has several processes: they share this server
    spark = session(config={"spark.log.level": "ERROR", "spark.ui.enabled": "false"})
    with SyncQueue("words", redis_url=url) as queue:
        for word in ("queue", "a", "llama"):
            queue.add("measure", {"word": word}, job_id=word, attempts=1)
        worker = SparkWorker(
            "words", measure, spark=spark, redis_url=url, store_results=True, linger_ms=200
        )
        worker.run(until_idle=True)
        print("lengths:", queue.get_job_result("queue"), queue.get_job_result("llama"))
        print("given up:", [letter["error"] for letter in queue.peek_dlq()])

        for word in ("quipu", "relay", "chaski"):
            queue.add("collect", {"word": word})

        def save(jobs: DataFrame) -> None:
            words = jobs.select("job_id", "payload.word")
            words.write.mode("append").parquet(f"{folder}/words")

        done = process_batch("words", save, spark=spark, redis_url=url, schema="word string")
        print("collected:", done.completed)
        words = spark.read.parquet(f"{folder}/words")
        print(sorted(row.word for row in words.collect()))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(str(Path(folder).resolve()))
