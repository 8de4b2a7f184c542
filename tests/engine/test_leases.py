"""A delivery is ours while we live: renewed from a thread, and never stolen back."""

import asyncio
import threading

import pytest

from chasquimq.broker.blocking import BlockingConnection
from chasquimq.broker.options import ConnectionOptions
from chasquimq.broker.url import parse_url
from chasquimq.clock import ManualClock
from chasquimq.engine.leases import Leases
from chasquimq.metrics import JobOutcome, ReaderBatch
from tests.support.eventually import eventually
from tests.support.scene import soon

LEASE_MS = 300


async def nothing(job):
    return None


# --- step by step


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def make_leases(scene, clock):
    opened = []

    def make(consumer):
        connection = BlockingConnection(
            parse_url(scene.server.socket_url), ConnectionOptions(), slot_key=scene.keys.tag
        )
        opened.append(connection)
        return Leases(
            connection,
            scene.keys,
            group="default",
            consumer=consumer,
            lease_ms=LEASE_MS,
            clock=clock,
        )

    yield make
    for connection in opened:
        connection.close()


@pytest.fixture
def deliver(scene):
    """Let a consumer have so many entries; their ids."""

    def deliver(consumer, count=1):
        client = scene.client
        if not client.exists(scene.keys.stream):
            client.xgroup_create(scene.keys.stream, "default", "0", mkstream=True)
        ids = [scene.add_raw({"d": b"x"}).encode() for _ in range(count)]
        client.xreadgroup("default", consumer, {scene.keys.stream: ">"}, count=count)
        # As if the server had delivered them long ago.
        client.xclaim(scene.keys.stream, "default", consumer, 0, ids, idle=60_000, justid=True)
        return ids

    return deliver


def test_a_delivery_is_surely_ours_until_its_lease_may_be_out(scene, make_leases, deliver, clock):
    leases = make_leases("c-1")
    kept, taken = deliver("c-1", 2)
    leases.take(kept)
    leases.take(taken)
    clock.advance(LEASE_MS * 2 / 3 - 1)
    assert leases.is_sure(kept, clock.monotonic_us())
    clock.advance(1)
    assert not leases.is_sure(kept, clock.monotonic_us())
    scene.client.xclaim(scene.keys.stream, "default", "c-2", 0, [taken])
    leases.step()
    assert leases.is_sure(kept, clock.monotonic_us())
    assert not leases.is_sure(taken, clock.monotonic_us())
    leases.drop([kept])
    assert not leases.is_sure(kept, clock.monotonic_us())


def test_a_lease_is_renewed_once_a_third_of_its_time_has_passed(scene, make_leases, deliver, clock):
    leases = make_leases("c-1")
    (entry_id,) = deliver("c-1")
    leases.take(entry_id)
    clock.advance(LEASE_MS / 3 - 1)
    assert leases.step() == 0
    clock.advance(1)
    assert leases.step() == 1
    assert leases.step() == 0
    (held,) = scene.pending()
    assert held["time_since_delivered"] < 60_000
    assert (held["consumer"], held["times_delivered"]) == (b"c-1", 1)
    assert leases.renewals == 1


def test_a_delivery_that_another_has_taken_over_is_not_stolen_back(
    scene, make_leases, deliver, clock
):
    leases = make_leases("c-1")
    kept, taken = deliver("c-1", 2)
    leases.take(kept)
    leases.take(taken)
    scene.client.xclaim(scene.keys.stream, "default", "c-2", 0, [taken])
    clock.advance(LEASE_MS)
    assert leases.step() == 2
    assert (kept in leases, taken in leases) == (True, True)  # both are still in hand here
    clock.advance(LEASE_MS)
    assert leases.step() == 1  # but only one is renewed
    owners = {row["message_id"]: row["consumer"] for row in scene.pending()}
    assert owners == {kept: b"c-1", taken: b"c-2"}


def test_a_lease_that_was_dropped_is_not_renewed(scene, make_leases, deliver, clock):
    leases = make_leases("c-1")
    (entry_id,) = deliver("c-1")
    leases.take(entry_id)
    leases.drop([entry_id])
    leases.drop([entry_id])
    clock.advance(LEASE_MS)
    assert leases.step() == 0
    assert (len(leases), leases.held(), repr(leases)) == (0, set(), "<Leases c-1, 0 held>")


def test_any_number_of_leases_is_renewed_in_bounded_calls(make_leases, deliver, clock):
    leases = make_leases("c-1")
    for entry_id in deliver("c-1", 1_200):
        leases.take(entry_id)
    clock.advance(LEASE_MS)
    assert leases.step() == 1_200
    assert leases.renewals == 1_200


# --- in a worker


async def test_a_handler_of_any_length_runs_once_while_its_worker_lives(scene):
    gate = asyncio.Event()
    ran = []

    async def slow(job):
        ran.append(job.attempt)
        await gate.wait()

    job = await scene.queue.add("n", 1)
    async with scene.working(slow, lease_ms=LEASE_MS, consumer_id="c-slow") as sink:
        await eventually(lambda: ran)
        async with scene.working(nothing, lease_ms=LEASE_MS) as rival:
            # Several leases long: the rival looks for expired ones all the time.
            for _ in range(4):
                await eventually(lambda: idle_ms(scene) > LEASE_MS / 4)
                await eventually(lambda: idle_ms(scene) < LEASE_MS / 4)
            gate.set()
            await sink.next(JobOutcome)
        assert rival.seen(ReaderBatch) == []
    assert ran == [1]
    assert scene.story(job.id) == ["waiting", "active", "completed"]


def idle_ms(scene):
    (held,) = scene.pending()
    assert held["consumer"] == b"c-slow"
    return held["time_since_delivered"]


async def test_a_worker_that_stands_still_takes_no_job_that_another_could_run(scene):
    """A read that is open while its worker's loop is blocked would take what nobody then renews."""
    gate, is_blocking = threading.Event(), threading.Event()

    async def blocking(job):
        is_blocking.set()
        assert gate.wait(15)

    def work_elsewhere():
        async def work():
            async with scene.working(blocking, consumer_id="c-slow") as sink:
                await sink.next(JobOutcome)

        asyncio.run(work())

    await scene.queue.add("slow", 0)
    working = asyncio.create_task(asyncio.to_thread(work_elsewhere))
    await eventually(is_blocking.is_set)
    async with scene.working(nothing) as rival:
        await scene.queue.add_bulk([{"name": "n", "data": n, "attempts": 1} for n in range(9)])
        outcomes = await rival.take(JobOutcome, 9)
    gate.set()
    await working
    assert [outcome.attempt for outcome in outcomes] == [1] * 9
    assert scene.is_empty()


async def test_a_handler_that_blocks_the_event_loop_keeps_its_job(scene):
    gate, is_blocking = threading.Event(), threading.Event()
    ran = []

    async def blocking(job):
        ran.append(job.attempt)
        is_blocking.set()
        assert gate.wait(15)  # the whole event loop stands still

    def work_elsewhere():
        async def work():
            async with scene.working(blocking, lease_ms=LEASE_MS, consumer_id="c-slow") as sink:
                await sink.next(JobOutcome)

        asyncio.run(work())

    await scene.queue.add("n", 1)
    working = asyncio.create_task(asyncio.to_thread(work_elsewhere))
    await eventually(is_blocking.is_set)
    async with scene.working(nothing, lease_ms=LEASE_MS) as rival:
        for _ in range(4):
            await eventually(lambda: idle_ms(scene) > LEASE_MS / 4)
            await eventually(lambda: idle_ms(scene) < LEASE_MS / 4)
        gate.set()
        await soon(working)
    assert rival.seen(ReaderBatch) == []
    assert ran == [1]
    assert scene.is_empty()


@pytest.mark.servers("redis-8.6")  # elsewhere a read is not open long enough to be sure of it
async def test_a_job_that_came_while_the_loop_was_blocked_and_was_taken_over_is_not_run(scene):
    gate, is_blocking = threading.Event(), threading.Event()
    ran, rescued = [], []

    async def blocking(job):
        ran.append(job.name)
        if job.name == "blocks":
            await eventually(scene.is_reading)
            is_blocking.set()
            assert gate.wait(15)

    async def rescue(job):
        rescued.append((job.name, job.attempt))

    def work_elsewhere():
        async def work():
            options = {"lease_ms": LEASE_MS, "read_block_ms": 60_000}
            async with scene.working(blocking, **options) as sink:
                await sink.next(JobOutcome)

        asyncio.run(work())

    await scene.queue.add("blocks", 1)
    working = asyncio.create_task(asyncio.to_thread(work_elsewhere))
    await eventually(is_blocking.is_set)
    # The blocked worker's read is open on the server, which hands it a job that it does not see.
    await scene.queue.add("unseen", 2)
    assert len(scene.pending()) == 2
    async with scene.working(rescue, lease_ms=LEASE_MS) as sink:
        await sink.next(JobOutcome)
        gate.set()
        await soon(working)
    assert ran == ["blocks"]
    assert rescued == [("unseen", 2)]
    assert scene.is_empty()


async def test_the_late_end_of_a_job_that_was_taken_over_does_no_harm(scene):
    gate = asyncio.Event()
    rescued = asyncio.Event()

    async def slow(job):
        rows = scene.pending()
        ids = [row["message_id"] for row in rows]
        scene.client.xclaim(scene.keys.stream, "default", "c-rival", 0, ids)
        rescued.set()
        await gate.wait()
        if job.name == "fails":
            message = "late"
            raise ValueError(message)

    failing = await scene.queue.add("fails", 1)
    async with scene.working(slow, consumer_id="c-slow") as sink:
        await soon(rescued.wait())
        gate.set()
        await sink.next(JobOutcome)
    (held,) = scene.pending()
    assert held["consumer"] == b"c-rival"
    assert (scene.delayed(), scene.depth()) == (0, 1)
    assert scene.story(failing.id) == ["waiting", "active", "failed"]


async def test_a_job_that_completes_after_it_was_taken_over_completes_once(scene):
    async def slow(job):
        ids = [row["message_id"] for row in scene.pending()]
        scene.client.xclaim(scene.keys.stream, "default", "c-rival", 0, ids)
        return "value"

    job = await scene.queue.add("n", 1)
    async with scene.working(slow, store_results=True) as sink:
        await sink.next(JobOutcome)
    # The work is done, so the rival's end of it will find nothing left to settle.
    assert scene.is_empty()
    assert scene.story(job.id) == ["waiting", "active", "completed"]


async def test_a_job_whose_worker_went_silent_is_claimed_as_its_next_attempt(scene):
    await scene.queue.add("n", 1)
    scene.client.xgroup_create(scene.keys.stream, "default", "0")
    scene.client.xreadgroup("default", "c-dead", {scene.keys.stream: ">"})
    ran = []

    async def handler(job):
        ran.append(job.attempt)

    async with scene.working(handler, lease_ms=50) as sink:
        await sink.next(JobOutcome)
        assert await sink.next(ReaderBatch) == ReaderBatch(size=1, reclaimed=1)
    assert ran == [2]


async def test_a_job_that_comes_back_to_the_worker_that_still_runs_it_is_not_run_beside_itself(
    scene,
):
    """Silent too long, it loses the job to a rescuer, who dies: the job returns to the first."""
    finish = asyncio.Event()

    async def handler(job):
        await finish.wait()

    async with scene.working(handler, lease_ms=LEASE_MS, read_block_ms=50) as sink:
        await scene.queue.add("n", 1)
        await eventually(lambda: len(scene.pending()) == 1)
        (row,) = scene.pending()
        scene.client.xclaim(scene.keys.stream, "default", "rescuer", 0, [row["message_id"]])
        await eventually(lambda: scene.pending()[0]["consumer"] != b"rescuer")
        finish.set()
        assert (await sink.next(JobOutcome)).attempt == 1
        await eventually(lambda: scene.pending() == [])
    assert len(sink.seen(JobOutcome)) == 1
