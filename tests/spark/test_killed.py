"""Nothing is lost and nothing is twice when workers, executors or the driver are killed."""

from collections import Counter

import pytest

from chasquimq.config import ConsumerConfig
from chasquimq.wire.codec import unpack
from chasquimq.wire.envelope import decode
from chasquimq.wire.keys import QueueKeys
from tests.support import spark_driver
from tests.support.driver import Driver
from tests.support.eventually import eventually_sync
from tests.support.spark import SPARK_MARKS

pytestmark = SPARK_MARKS

EVENTS = 3_000
JOBS = 12_000
# Executors in processes of their own, on workers that could hold twice as much.
CLUSTER = {"spark.master": "local-cluster[2,1,1024]", "spark.executor.memory": "512m"}


@pytest.fixture
def start_driver(server, queue_name, tmp_path):
    started = []

    def start(what, **config):
        told = {
            "what": what,
            "rows": str(JOBS),
            "url": server.url,
            "queue": queue_name,
            "lake": str(tmp_path / "lake"),
            "checkpoint": str(tmp_path / "checkpoint"),
        }
        started.append(Driver(told, config))
        return started[-1]

    yield start
    for driver in started:
        driver.kill()
        driver.wait()


@pytest.fixture
def events(server, queue_name):
    """So many events, each with a number."""
    pipe = server.client().pipeline(transaction=False)
    for number in range(EVENTS):
        pipe.xadd(QueueKeys(queue_name).events, {"e": "active", "attempt": number})
    pipe.execute()


@pytest.fixture
def batches(tmp_path):
    """How many batches are done."""
    return lambda: len(list((tmp_path / "checkpoint" / "commits").glob("[0-9]*")))


def seen_once(spark, tmp_path):
    """Whether the lake, read as Spark reads it, has every event once."""
    frame = spark.read.parquet(str(tmp_path / "lake"))
    return Counter(row.attempt for row in frame.collect()) == dict.fromkeys(range(EVENTS), 1)


@pytest.mark.usefixtures("events")
def test_a_driver_killed_again_and_again_loses_and_doubles_no_event(
    spark, tmp_path, start_driver, batches, stream, to_parquet
):
    for done in (1, 3):
        driver = start_driver("events")
        eventually_sync(lambda: batches() >= done or not driver.is_running(), timeout=90)  # noqa: B023
        assert driver.is_running(), driver.wait()
        driver.kill()
        driver.wait()
    assert batches() < EVENTS // 500

    to_parquet(stream(startingOffsets="earliest"))
    assert seen_once(spark, tmp_path)


@pytest.mark.usefixtures("events")
def test_executors_and_workers_killed_while_they_read_lose_and_double_no_event(
    spark, tmp_path, start_driver, batches
):
    driver = start_driver("events", **CLUSTER)
    eventually_sync(lambda: batches() >= 1 or not driver.is_running(), timeout=120)
    assert driver.is_running(), driver.wait()
    assert driver.kill("pyspark.daemon") >= 1
    eventually_sync(lambda: batches() >= 2 or not driver.is_running(), timeout=60)
    assert driver.is_running(), driver.wait()
    assert driver.kill("CoarseGrainedExecutorBackend") >= 1
    assert driver.wait()[0] == 0
    assert seen_once(spark, tmp_path)


def test_a_write_killed_midway_and_run_again_adds_every_job_once(
    spark, server, queue_name, queue, start_driver, write
):
    driver = start_driver("jobs")
    eventually_sync(lambda: queue.counts().waiting > 1_000 or not driver.is_running(), timeout=90)
    assert driver.is_running(), driver.wait()
    driver.kill()
    driver.wait()
    assert 0 < queue.counts().waiting < JOBS

    write(spark_driver.numbers(spark, JOBS), runId="r")
    entries = server.client().xrange(QueueKeys(queue_name).stream)
    numbers = Counter(unpack(decode(fields[b"d"]).payload)["n"] for _, fields in entries)
    assert numbers == dict.fromkeys(range(JOBS), 1)


# What a slot may have in hand: what runs, and what it read ahead.
IN_HAND = spark_driver.FLEET_CONCURRENCY + ConsumerConfig().batch


@pytest.fixture
def ran(server, queue_name):
    """How often each job ran, by name and number."""
    client, key = server.client(), f"ran-{queue_name}"
    yield lambda: {field.decode(): int(count) for field, count in client.hgetall(key).items()}
    client.delete(key)


def add_numbers(queue, count):
    for at in range(0, count, 500):
        queue.add_bulk([{"name": "n", "data": at + number} for number in range(500)])


def test_a_fleet_whose_driver_is_killed_is_taken_up_by_the_next(
    spark, server, queue_name, queue, start_driver, ran
):
    add_numbers(queue, 1_000)
    driver = start_driver("fleet")
    eventually_sync(lambda: len(ran()) > 100 or not driver.is_running(), timeout=90)
    assert driver.is_running(), driver.wait()
    driver.kill()
    driver.wait()
    assert 0 < len(ran()) < 1_000

    told = {"queue": queue_name, "url": server.url}
    spark_driver.fleet(spark, told).run(until_idle=True)
    runs = ran()
    assert len(runs) == 1_000
    assert sum(runs.values()) - 1_000 <= 2 * IN_HAND
    assert (queue.counts().active, queue.peek_dlq()) == (0, [])


def test_a_job_that_kills_its_process_costs_its_own_runs_and_nobody_elses(
    spark, server, queue_name, queue, ran
):
    queue.add("poison", 0)
    add_numbers(queue, 500)
    spark_driver.fleet(spark, {"queue": queue_name, "url": server.url}).run(until_idle=True)

    runs = ran()
    assert runs.pop("poison:0") == 3
    assert len(runs) == 500
    # It takes company with it once; after that it runs alone.
    assert sum(runs.values()) - 500 <= IN_HAND + 2 * 2 * IN_HAND
    [letter] = queue.peek_dlq()
    assert (letter["name"], letter["attempts"]) == ("poison", 3)
