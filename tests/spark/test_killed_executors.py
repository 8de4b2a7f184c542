"""Nothing is lost and nothing is twice when executors and their Python processes are killed.

On a cluster of two executors in processes of their own. All tests share it: each kills some of it,
and it recovers.
"""

from collections import Counter

import pytest

from chasquimq.wire.codec import unpack
from chasquimq.wire.envelope import decode
from chasquimq.wire.keys import QueueKeys
from tests.support import spark_driver
from tests.support.raw_queue import RawQueue
from tests.support.spark import DRIVER_MARKS, QUICK_JAVA, SMALL
from tests.support.spark_process import spark_processes

# The first waits for the cluster, on a machine that may be busy.
pytestmark = [pytest.mark.timeout(1_200), *DRIVER_MARKS]

# Executors in processes of their own, on workers that could hold twice as much.
CLUSTER = {
    "spark.master": "local-cluster[2,1,1024]",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK_JAVA,
}
EXECUTOR = "CoarseGrainedExecutorBackend"
# Servers of Python processes: ours for tasks, and those of Spark for plans.
PYTHON = "spark.daemon pyspark."

EVENTS, IN_A_BATCH = 3_000, 500
ROWS = 6_000
JOBS = 400
# What a slot may have in hand: what runs, and what it read ahead.
IN_HAND = spark_driver.FLEET_CONCURRENCY + spark_driver.READ_COUNT
SLOTS = 2


@pytest.fixture(scope="module")
def cluster(java):
    with spark_processes() as start:
        yield start(SMALL | CLUSTER)


@pytest.fixture
def runs(server, queue_name):
    """Every run of a job, in the order in which they began."""
    client = server.client()
    yield lambda: spark_driver.noted_runs(client, queue_name)
    client.delete(f"ran-{queue_name}")


@pytest.fixture
def hold(server, queue_name):
    """`hold(number)`: jobs from this number on last until `hold` is called again."""
    client, key = server.client(), f"hold-{queue_name}"
    yield lambda number: client.set(key, number) if number else client.delete(key)
    client.delete(key)


def test_executors_killed_while_they_read_lose_and_double_no_event(
    cluster, server, queue_name, tmp_path
):
    pipe = server.client().pipeline(transaction=False)
    for number in range(EVENTS):
        pipe.xadd(QueueKeys(queue_name).events, {"e": "active", "attempt": number})
    pipe.execute()
    lake, checkpoint = str(tmp_path / "lake"), str(tmp_path / "checkpoint")
    cluster.order("events", url=server.url, queue=queue_name, lake=lake, checkpoint=checkpoint,
                  in_a_batch=IN_A_BATCH, available_now=True)  # fmt: skip

    def batches():
        return len(list((tmp_path / "checkpoint" / "commits").glob("[0-9]*")))

    cluster.until(lambda: batches() >= 1)
    cluster.kill(*cluster.find(PYTHON))
    cluster.until(lambda: batches() >= 2)
    cluster.kill(*cluster.find(EXECUTOR))
    cluster.until_done("events")
    numbers = cluster.ask("numbers", path=lake, column="attempt")
    assert Counter(numbers) == dict.fromkeys(range(EVENTS), 1)


def test_an_executor_killed_while_it_writes_adds_every_job_once(cluster, server, queue_name, queue):
    client, stream = server.client(), QueueKeys(queue_name).stream
    numbers = Counter()

    def make_room():
        """Take out what there is; the sink goes on."""
        for entry_id, fields in client.xrange(stream):
            numbers[unpack(decode(fields[b"d"]).payload)["n"]] += 1
            client.xdel(stream, entry_id)
        return sum(numbers.values()) >= ROWS

    cluster.order("jobs", url=server.url, queue=queue_name, rows=ROWS, cap=1_000)
    cluster.until(lambda: queue.counts().waiting == 1_000)
    cluster.kill(cluster.find(EXECUTOR)[0])
    cluster.until(make_room)
    cluster.until_done("jobs")
    make_room()
    assert numbers == dict.fromkeys(range(ROWS), 1)


def kind(number):
    """One job never succeeds, some fail at first."""
    return "doomed" if number == 7 else "flaky" if number % 20 == 0 else "n"


def test_a_fleet_that_loses_a_process_and_an_executor_ends_every_job_as_it_should(
    cluster, server, queue_name, queue, runs, hold
):
    backoff = {"kind": "fixed", "delay_ms": 1, "jitter_ms": 0}
    queue.add_bulk([{"name": kind(n), "data": n, "job_id": f"j{n}", "backoff": backoff}
                    for n in range(JOBS)])  # fmt: skip
    hold(100)
    cluster.order("fleet", url=server.url, queue=queue_name)

    cluster.until(lambda: any(run["number"] >= 100 for run in runs()))
    killed = {runs()[-1]["pid"]}
    cluster.kill(*killed)
    hold(250)
    cluster.until(lambda: any(run["number"] >= 250 for run in runs()))
    at_work = runs()[-1]["pid"]
    [executor] = [each for each in cluster.find(EXECUTOR) if at_work in cluster.descendants(each)]
    killed |= cluster.descendants(executor)
    cluster.kill(executor)
    hold(None)

    cluster.until(lambda: not any((queue.counts().waiting, queue.counts().active,
                                   queue.counts().delayed)))  # fmt: skip
    cluster.order("stop")
    cluster.until_done("fleet")

    ends = [n for n in range(JOBS) if kind(n) != "doomed"]
    assert queue.get_job_result_bulk([f"j{n}" for n in ends]) == [2 * n for n in ends]
    [letter] = queue.peek_dlq()
    assert (letter["name"], letter["reason"]) == ("doomed", "retries_exhausted")
    assert letter["attempts"] == spark_driver.FLEET_ATTEMPTS
    raw = RawQueue(server.client(), QueueKeys(queue_name))
    assert (raw.stream(), raw.held(), raw.delayed()) == ([], [], [])
    again = list(repeats(runs()))
    assert len(again) <= 2 * IN_HAND
    assert {run["pid"] for run in again} <= killed


def repeats(runs):
    """The runs that did not count: neither the last of their job, nor failed on their own."""
    last = {run["number"]: run for run in runs}
    for run in runs:
        fails = run["name"] == "doomed" or (run["name"] == "flaky" and run["attempt"] == 1)
        if run is not last[run["number"]] and not fails:
            yield run


def test_a_job_that_kills_its_process_costs_its_own_runs_and_nobody_elses(
    cluster, server, queue_name, queue, runs
):
    queue.add("poison", 0)
    queue.add_bulk([{"name": "n", "data": number} for number in range(300)])
    # Each run but the last ends with the wait for a lease.
    cluster.order("fleet", queue=queue_name, url=server.url, until_idle=True, attempts=3)
    cluster.until_done("fleet")

    names = Counter(run["name"] for run in runs())
    assert names["poison"] == 3
    # It takes company with it once; after that it runs alone.
    assert names["n"] - 300 <= IN_HAND + 2 * SLOTS * IN_HAND
    [letter] = queue.peek_dlq()
    assert (letter["name"], letter["attempts"]) == ("poison", 3)
    assert queue.counts().waiting + queue.counts().active == 0
