"""A slot of a fleet that works in batches, in a process that a test kills.

python slot_of_batches.py URL QUEUE HOLDER SIZE SLOW

It notes each row that it is shown in the list `shown-QUEUE`. With SLOW it then stands still.
"""

import sys
import time

import redis

from chasquimq.spark.slot import Recipe, work
from chasquimq.spark.vectors import Batching

FLEET = "batches"
AT_A_TIME = 2


def recipe(url: str, queue: str, holder: str, size: int, *, is_slow: bool) -> Recipe:
    """A slot whose function notes what it is shown, and answers with twice the number."""
    client = redis.Redis.from_url(url)

    def double(table):  # type: ignore[no-untyped-def]
        numbers = [int(each) for each in table["payload"].to_pylist()]
        client.rpush(f"shown-{queue}", *numbers)
        if is_slow:
            time.sleep(3_600)
        return [2 * number for number in numbers]

    return Recipe(
        queue=queue,
        fleet=FLEET,
        holder=holder,
        slots=1,
        handler=double,
        redis_url=url,
        options={"store_results": True, "max_attempts": 3},
        max_jobs_per_slot=1_000_000,
        linger_ms=100,
        longest_ms=60_000,
        batching=Batching(shape="arrow", size=size, at_a_time=AT_A_TIME),
    )


if __name__ == "__main__":
    url, queue, holder, size, slow = sys.argv[1:]
    work(recipe(url, queue, holder, int(size), is_slow=slow == "slow"), 0)
