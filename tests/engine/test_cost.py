"""What a job costs the server, in commands, bytes and reads: a guard that needs no clock.

Times differ from machine to machine, counts do not. A command that is sent or called once more for
each job, or bytes that each job carries in vain, fail here. What is shared by a batch may vary with
how large batches get, so of that there is only a bound. If a number below has to grow, say in the
commit what for; if it shrinks, lower it here.
"""

import asyncio
from dataclasses import dataclass

import pytest

from chasquimq import Queue, Worker

pytestmark = pytest.mark.servers("valkey", "redis-8.6")

# A name of its own on a server of its own: its length is part of what is counted.
QUEUE = "emails"
JOBS = 1_000
BULK = 50
WARM_UP = 3
DATA = {"to": "ada@example.com", "number": 7}
# Of commands that serve a batch, per job. They are 0.12 for bulks of 50.
MOST_SHARED = 0.25
# Entry ids and times grow by a digit now and then, and batches are not always as large.
TOLERANCE = 1.1


@dataclass(frozen=True)
class Cost:
    """Of one job: commands by name, those that it has for itself, and bytes it takes to ask.

    `reads` is how often the server had to look at a connection: of what is sent in one go, once.
    """

    commands: dict[str, int]
    bytes: float
    reads: float = MOST_SHARED


class Counter:
    """Counts what a server was asked between two moments, other than to count."""

    def __init__(self, client):
        self._client = client
        self._calls, self._bytes, self._reads = self._now()

    def _now(self):
        told = self._client.info("commandstats")
        calls = {name.removeprefix("cmdstat_"): each["calls"] for name, each in told.items()}
        calls.pop("info", None)
        stats = self._client.info("stats")
        return calls, stats["total_net_input_bytes"], stats["total_reads_processed"]

    def of_each(self, jobs):
        """The cost of a job; fails if too much is asked besides."""
        calls, received, reads = self._now()
        per_job = {name: (count - self._calls.get(name, 0)) / jobs for name, count in calls.items()}
        own = {name: round(each) for name, each in per_job.items() if each >= 0.5}
        shared = sum(abs(each - own.get(name, 0)) for name, each in per_job.items())
        assert shared <= MOST_SHARED, {name: each for name, each in per_job.items() if each}
        return Cost(own, (received - self._bytes) / jobs, (reads - self._reads) / jobs)


def assert_within(cost, expected):
    assert cost.commands == expected.commands
    assert cost.bytes <= expected.bytes * TOLERANCE
    assert cost.reads <= expected.reads


@pytest.fixture
def quiet_server(server, start_server):
    """A server that nobody else talks to."""
    return start_server()


@pytest.fixture
async def queue(quiet_server):
    async with Queue(QUEUE, redis_url=quiet_server.url) as queue:
        # The connection, the probe of the server and the scripts are paid for once.
        await queue.add("x", DATA)
        await queue.add_bulk([{"name": "x", "data": DATA}] * (WARM_UP - 1))
        yield queue


async def one_after_the_other(queue):
    for _ in range(JOBS):
        await queue.add("x", DATA)


async def in_bulk(queue):
    for _ in range(JOBS // BULK):
        await queue.add_bulk([{"name": "x", "data": DATA}] * BULK)


async def at_once(queue):
    await asyncio.gather(*(queue.add("x", DATA) for _ in range(JOBS)))


# By what the server can do: with `XADD IDMP`, and without.
SINGLE = {
    True: Cost({"xadd": 2}, 431, reads=1.05),
    False: Cost(
        {"evalsha": 1, "hget": 1, "hset": 1, "expire": 1, "xadd": 2, "xlen": 2}, 392, reads=1.05
    ),
}
MANY = Cost({"xadd": 2}, 106)


async def test_a_single_add_is_one_round_trip_and_writes_the_job_and_its_event(quiet_server, queue):
    counter = Counter(quiet_server.client())
    await one_after_the_other(queue)
    assert_within(counter.of_each(JOBS), SINGLE[quiet_server.is_modern])


async def test_a_single_add_looks_at_the_depth_where_others_may_soon_fill_the_queue(quiet_server):
    async with Queue(QUEUE, redis_url=quiet_server.url, max_stream_len=20_000) as queue:
        await queue.add("x", DATA)
        counter = Counter(quiet_server.client())
        await one_after_the_other(queue)
        assert counter.of_each(JOBS).commands["xlen"] >= 1


@pytest.mark.parametrize("add", [in_bulk, at_once])
async def test_many_adds_share_all_but_the_job_and_its_event(quiet_server, queue, add):
    counter = Counter(quiet_server.client())
    await add(queue)
    assert_within(counter.of_each(JOBS), MANY)


# Events on, results kept: what a worker asks for each job, with `XACKDEL` and without.
WORKED = {
    (True, False): {True: Cost({"xadd": 2}, 104), False: Cost({"xadd": 2, "xack": 1}, 104)},
    (False, False): {True: Cost({}, 32), False: Cost({"xack": 1}, 32)},
    (True, True): {
        True: Cost({"xadd": 2, "set": 2}, 224),
        False: Cost({"xadd": 2, "xack": 1, "set": 2}, 224),
    },
}


@pytest.mark.parametrize(("has_events", "has_results"), WORKED)
async def test_a_worker_asks_for_nothing_per_job_but_its_events_result_and_end(
    quiet_server, queue, has_events, has_results
):
    options = {"events_enabled": has_events, "store_results": has_results}
    # The first worker brings the scripts, whose bytes are no job's.
    await work_off(WARM_UP, redis_url=quiet_server.url, **options)
    await in_bulk(queue)
    counter = Counter(quiet_server.client())
    await work_off(JOBS, redis_url=quiet_server.url, **options)
    expected = WORKED[has_events, has_results][quiet_server.is_modern]
    assert_within(counter.of_each(JOBS), expected)


async def work_off(jobs, **options):
    """Run a worker for as long as it takes."""
    left, all_done = jobs, asyncio.Event()

    async def handler(job):
        nonlocal left
        left -= 1
        if left == 0:
            all_done.set()
        return 1

    # The promoter and the scheduler ask by the clock, not by the job.
    worker = Worker(QUEUE, handler, delayed_enabled=False, run_scheduler=False, **options)
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(all_done.wait(), 30)
    await worker.close()
    await running
