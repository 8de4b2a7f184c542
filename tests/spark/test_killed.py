"""Nothing is lost and nothing is twice when the driver is killed, whatever it was at.

One driver does everything there is at the same time, because a driver takes long to start: it is
killed in the midst of it, twice, and a third one ends what is left.
"""

import asyncio
import contextlib
import json
import os
import threading
from collections import Counter

import pytest

from chasquimq import SyncQueue, Worker
from chasquimq.wire.codec import unpack
from chasquimq.wire.envelope import decode
from chasquimq.wire.event import event_fields
from chasquimq.wire.ids import _Mint
from chasquimq.wire.keys import QueueKeys
from tests.support import spark_driver
from tests.support.batches import MADE
from tests.support.eventually import eventually_sync
from tests.support.raw_queue import RawQueue
from tests.support.spark import DRIVER_MARKS, SMALL

# Three drivers, one after the other, on a machine that may be busy.
pytestmark = [pytest.mark.timeout(1_200), *DRIVER_MARKS]

CONFIG = SMALL | {"spark.master": "local[6,2]"}

# Small batches, and always some to come, so that one of them is under way whenever something else
# has come to its moment.
IN_A_BATCH, AHEAD = 20, 5
ROWS = 6_000
JOBS = 600
BATCHED = 60
LIVES, LIVES_BEGAN_MS = 40, 1_769_853_590_000
# How far `process_batch` is, and which table the pipeline writes, when a driver is killed.
MOMENTS = (("after", "bronze"), ("before", "jobs"))
# What a slot may have in hand: what runs, and what it read ahead.
IN_HAND = spark_driver.FLEET_CONCURRENCY + spark_driver.READ_COUNT
SLOTS = 2


class World:
    """A queue for each thing that a driver does, and how far it is with it."""

    def __init__(self, server, name, folder):
        self.url, self.client = server.url, server.client()
        self.told, self.sunk, self.worked, self.batched, self.lived = (
            f"{name}-{each}" for each in ("told", "sunk", "worked", "batched", "lived")
        )
        self.lake, self.checkpoint, self.out, self.tables = (
            folder / each for each in ("lake", "checkpoint", "out", "tables")
        )
        self.events = 0

    def tell(self):
        """More events, if few batches of them are to come."""
        wanted = (self.batches() + AHEAD) * IN_A_BATCH
        pipe = self.client.pipeline(transaction=False)
        for number in range(self.events, wanted):
            pipe.xadd(QueueKeys(self.told).events, {"e": "active", "attempt": number})
        pipe.execute()
        self.events = max(self.events, wanted)

    def tell_lives(self):
        """The events of some jobs over two hours, some of which fail."""
        pipe, mint = self.client.pipeline(transaction=False), _Mint()
        for number in range(LIVES):
            at_ms = LIVES_BEGAN_MS + number * 120_000
            job_id, name = mint.one(at_ms), f"name-{number % 3}"
            fails = number % 7 == 0
            end = {"attempt": 1, "duration_us": 1_000 * number}
            for event, extras in (
                ("waiting", {}),
                ("active", {"attempt": 1, "wait_ms": 5, "created_at_ms": at_ms}),
                ("failed", end | {"reason": f"no row {number}"}) if fails else ("completed", end),
            ):
                fields = event_fields(event, job_id, at_ms, name, extras)
                events = QueueKeys(self.lived).events
                pipe.execute_command("XADD", events, f"{at_ms}-*", *fields)
        pipe.execute()

    def fill(self):
        self.tell()
        self.tell_lives()
        with self.queue(self.worked) as queue:
            queue.add_bulk([{"name": "n", "data": n, "job_id": f"j{n}"} for n in range(JOBS)])
        with self.queue(self.batched) as queue:
            queue.add_bulk([{"name": "n", "data": {"n": n}} for n in range(BATCHED)])

    def queue(self, name):
        return SyncQueue(name, redis_url=self.url)

    def hold(self, number):
        """Let the fleet get so far, and no further."""
        self.client.set(f"hold-{self.worked}", number)

    def planned(self):
        """Batches of events that were begun."""
        return len(list((self.checkpoint / "offsets").glob("[0-9]*")))

    def batches(self):
        """Batches of events that are done."""
        return len(list((self.checkpoint / "commits").glob("[0-9]*")))

    def is_near(self, table):
        """Whether the pipeline will write a table next, or does."""
        before = {"bronze": "_checkpoint/offsets/0", "jobs": "runs"}
        return (self.tables / before[table]).exists()

    def is_written(self, table):
        """Whether the pipeline writes a table: until it is done, its files are in such a folder."""
        return any((self.tables / table).glob(".spark-staging-*"))

    def sunk_rows(self):
        return self.client.xlen(QueueKeys(self.sunk).stream)

    def runs(self):
        """Every run of a job of the fleet's queue."""
        return spark_driver.noted_runs(self.client, self.worked)


@pytest.fixture
def world(server, queue_name, tmp_path):
    made = World(server, queue_name, tmp_path)
    made.fill()
    yield made
    made.client.delete(f"ran-{made.worked}", f"hold-{made.worked}")


@contextlib.contextmanager
def ordinary_worker(world):
    """One that shares the fleet's queue, and is not killed."""
    over = threading.Event()

    async def work():
        worker = Worker(
            world.worked,
            lambda job: spark_driver.note_run(job, world.url, world.worked),
            redis_url=world.url,
            concurrency=1,
            store_results=True,
            claim_min_idle_ms=spark_driver.LEASE_MS,
            handle_signals=False,
        )
        working = asyncio.create_task(worker.run())
        await asyncio.to_thread(over.wait)
        await worker.close()
        await working

    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def killed_amid_everything(world, driver, part, hangs, table):
    """Let a driver come to the midst of each thing, one after the other, and kill it there."""
    facts = {"url": world.url, "in_a_batch": IN_A_BATCH, "rows": ROWS, "hangs": hangs}
    for name in ("lake", "checkpoint", "out"):
        facts[name] = str(getattr(world, name))
    done = world.batches()
    driver.order("events", queue=world.told, **facts)
    driver.until(lambda: world.batches() > done)
    driver.order("batch", queue=world.batched, **facts)
    driver.until(world.out.with_name(f"hangs-{hangs}").exists)
    cap, runs = 1_000 + 2_000 * part, 100 + 200 * part
    driver.order("jobs", queue=world.sunk, cap=cap, **facts)
    driver.until(lambda: world.sunk_rows() == cap)
    world.hold(runs)
    driver.order("fleet", queue=world.worked, **facts)
    driver.until(lambda: any(run["number"] >= runs for run in world.runs()))
    driver.order("pipeline", queue=world.lived, url=world.url, lake=str(world.tables))

    def has_come_to_its_moment():
        # Not before: batches of events would take a core from the pipeline until it gets there.
        if world.is_near(table):
            world.tell()
        return world.is_written(table) and world.planned() > world.batches()

    driver.kill_while(has_come_to_its_moment)


def test_a_driver_killed_twice_in_the_midst_of_everything_loses_and_doubles_nothing(
    world, start_driver
):
    for part, (hangs, table) in enumerate(MOMENTS):
        killed_amid_everything(world, start_driver(CONFIG), part, hangs, table)
        assert world.planned() > world.batches()
        assert world.sunk_rows() < ROWS
        assert len({run["number"] for run in world.runs()}) < JOBS

    last = start_driver(CONFIG)
    with ordinary_worker(world):
        what_is_left(world, last)
        every_event_is_in_the_lake_once(world, last)
        every_row_is_a_job_once(world, last)
        every_job_has_run_and_only_those_in_hand_twice(world, last)
    every_job_of_the_batch_is_in_its_table_once(world, last)
    the_pipeline_has_every_event_once_and_the_same_tables(world, last)


def what_is_left(world, driver):
    """All at the same time again; the fleet shares its queue with an ordinary worker."""
    killed = {run["pid"] for run in world.runs()} - {os.getpid()}
    driver.order("events", queue=world.told, url=world.url, lake=str(world.lake),
                 checkpoint=str(world.checkpoint), in_a_batch=world.events,
                 available_now=True)  # fmt: skip
    driver.order("jobs", queue=world.sunk, url=world.url, rows=ROWS)
    driver.order("fleet", queue=world.worked, url=world.url, until_idle=True)
    driver.order("pipeline", queue=world.lived, url=world.url, lake=str(world.tables))
    driver.until(lambda: {run["pid"] for run in world.runs()} - killed > {os.getpid()})
    world.client.delete(f"hold-{world.worked}")


def every_event_is_in_the_lake_once(world, driver):
    driver.until_done("events")
    numbers = driver.ask("numbers", path=str(world.lake), column="attempt")
    assert Counter(numbers) == dict.fromkeys(range(world.events), 1)


def every_row_is_a_job_once(world, driver):
    driver.until_done("jobs")
    entries = world.client.xrange(QueueKeys(world.sunk).stream)
    numbers = Counter(unpack(decode(fields[b"d"]).payload)["n"] for _, fields in entries)
    assert numbers == dict.fromkeys(range(ROWS), 1)


def every_job_has_run_and_only_those_in_hand_twice(world, driver):
    driver.until_done("fleet")
    with world.queue(world.worked) as queue:
        eventually_sync(lambda: queue.counts().waiting + queue.counts().active == 0)
        assert queue.get_job_result_bulk([f"j{n}" for n in range(JOBS)]) == [
            2 * n for n in range(JOBS)
        ]
        assert queue.peek_dlq() == []
    raw = RawQueue(world.client, QueueKeys(world.worked))
    assert (raw.stream(), raw.held(), raw.delayed()) == ([], [], [])
    # Two kills, each of which cost what every slot had in hand.
    assert len(world.runs()) - JOBS <= 2 * SLOTS * IN_HAND


def every_job_of_the_batch_is_in_its_table_once(world, driver):
    """The first driver had written the table and not acknowledged; the second came to neither."""
    done = driver.ask("batch", queue=world.batched, url=world.url, out=str(world.out))
    assert done == [BATCHED, 0, 0]  # completed, failed, lost
    numbers = driver.ask("numbers", path=str(world.out), column="n")
    assert Counter(numbers) == dict.fromkeys(range(BATCHED), 1)
    raw = RawQueue(world.client, QueueKeys(world.batched))
    assert (raw.stream(), raw.held(), raw.dlq()) == ([], [], [])


def the_pipeline_has_every_event_once_and_the_same_tables(world, driver):
    """The first driver was at a write of bronze, the second at one of silver."""
    lake = str(world.tables)
    driver.until_done("pipeline")
    piecewise = driver.ask("tables", lake=lake, names=["bronze", *MADE])
    in_bronze = Counter(json.loads(row)["entry_id"] for row in piecewise.pop("bronze"))
    entries = world.client.xrange(QueueKeys(world.lived).events)
    assert in_bronze == {entry_id.decode(): 1 for entry_id, _ in entries}
    assert len(piecewise["jobs"]) == LIVES
    driver.order("rebuild", lake=lake)
    driver.until_done("rebuild")
    assert driver.ask("tables", lake=lake, names=MADE) == piecewise
