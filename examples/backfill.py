"""A CSV becomes jobs, each row once: looked at first, then added in two attempts.

Needs the extras spark and embedded, and Java 17 (or the extra spark-java).
"""

import tempfile
from pathlib import Path

from chasquimq import QueueFullError, SyncQueue
from chasquimq.pipeline import Backfill, BackfillError, Columns
from chasquimq.spark import session

ORDERS = """number,runs,who,due
1,3,ada,3.50
2,1,bob,12.00
3,many,eve,0.99
4,5,kim,7.25
"""


def main(folder: str) -> None:
    """Fill a queue from a file that has a mistake, then from one that has none."""
    url = f"embedded://{folder}/server"  # Spark has several processes: they share this server
    spark = session(config={"spark.log.level": "ERROR", "spark.ui.enabled": "false"})
    path = Path(folder, "orders.csv")
    path.write_text(ORDERS)

    def filling(room: int) -> Backfill:
        return Backfill(
            str(path), "bills", redis_url=url, spark=spark, name="bill",
            schema="number string, runs string, who string, due double",
            columns=Columns(job_id="number", attempts="runs"),
            sink={"maxStreamLen": str(room), "overflowTimeoutSecs": "0"},
        )  # fmt: skip

    try:
        filling(100).run()
    except BackfillError as error:
        print(error)
    path.write_text(ORDERS.replace("many", "2"))

    try:
        filling(2).run()  # breaks off: there is room for two
    except QueueFullError:
        print("two are added, and the queue is full")
    done = filling(100).run()
    print(f"{done.before} before and {done.added} now, of {done.rows}")
    print(f"once more: {filling(100).run().added}")
    with SyncQueue("bills", redis_url=url) as queue:
        print(f"waiting: {queue.counts().waiting}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(str(Path(folder).resolve()))
