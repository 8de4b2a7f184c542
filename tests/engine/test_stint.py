"""A worker that takes jobs for a while: what came before alone, then what is new, then it ends."""

import asyncio
import functools

import pytest

from chasquimq.engine.stint import StintEnd, StintIntake, StintTerms
from tests.support.eventually import eventually
from tests.support.scene import soon

NAME = "slot-0"
LEASE_MS = 60_000


@pytest.fixture
def stint(scene):
    """`stint(handler, ...)`: run one to its end, and say why it ended."""
    scene.client.set(scene.keys.fleet("f"), "driver", ex=60)

    async def run(handler, *, most=1_000, linger_ms=50, longest_ms=60_000, **options):
        ends = []
        usual = {"consumer_id": NAME, "claim_min_idle_ms": LEASE_MS, "run_scheduler": False}
        worker = scene.worker(handler, **usual | options)
        terms = StintTerms(
            most=most,
            linger_ms=linger_ms,
            longest_ms=longest_ms,
            permit=(scene.keys.fleet("f"), "driver"),
        )

        def end(reason):
            ends.append(reason)
            worker._begin_stop(str(reason))  # noqa: SLF001 -- as a slot of a fleet does

        intake = functools.partial(StintIntake, terms=terms, on_end=end)
        worker._make_intake = intake  # noqa: SLF001
        worker.on("paused", lambda *_: end(StintEnd.PAUSED))
        await soon(worker.run())
        return ends[0]

    return run


async def add(scene, count):
    for number in range(count):
        await scene.queue.add("n", number)


def leave_pending(scene, count, consumer=NAME):
    """Entries that a consumer took and did not settle, each delivered once."""
    scene.client.xgroup_create(scene.keys.stream, "default", "0", mkstream=True)
    scene.client.xreadgroup("default", consumer, {scene.keys.stream: ">"}, count=count)


async def test_a_stint_ends_when_nothing_comes_and_leaves_nothing(scene, stint):
    await add(scene, 20)
    ran = []
    assert await stint(lambda job: ran.append(job.data)) is StintEnd.DRY
    assert sorted(ran) == list(range(20))
    assert scene.is_empty()
    assert NAME not in scene.consumers()


async def test_a_stint_does_not_end_between_jobs_that_take_longer_than_it_lingers(scene, stint):
    await add(scene, 3)
    ran = []

    async def slowly(job):
        await asyncio.sleep(0.02)
        ran.append(job.data)

    assert await stint(slowly, concurrency=1, linger_ms=1) is StintEnd.DRY
    assert sorted(ran) == [0, 1, 2]


async def test_a_stint_takes_no_more_than_it_may(scene, stint):
    await add(scene, 20)
    ran = []
    assert await stint(lambda job: ran.append(job.data), most=7) is StintEnd.ENOUGH
    assert len(ran) == 7
    assert (scene.depth(), scene.pending()) == (13, [])


async def test_a_stint_that_has_lasted_long_enough_finishes_what_it_began(scene, stint):
    await add(scene, 4)
    ran = []

    async def slow(job):
        await asyncio.sleep(0.05)
        ran.append(job.data)

    assert await stint(slow, longest_ms=20, concurrency=4) is StintEnd.LATE
    assert len(ran) in (0, 4)
    assert scene.depth() == 4 - len(ran)


async def test_without_its_permit_a_stint_takes_nothing(scene, stint):
    await add(scene, 3)
    scene.client.set(scene.keys.fleet("f"), "another driver", ex=60)
    assert await stint(lambda job: pytest.fail("it ran")) is StintEnd.DISMISSED
    assert (scene.depth(), scene.pending()) == (3, [])


async def test_a_paused_queue_ends_a_stint(scene, stint):
    await add(scene, 3)
    scene.client.set(scene.keys.paused, "1")
    assert await stint(lambda job: pytest.fail("it ran")) is StintEnd.PAUSED
    assert (scene.depth(), scene.pending()) == (3, [])


async def test_what_an_earlier_stint_left_comes_first_alone_and_with_its_run_counted(scene, stint):
    await add(scene, 5)
    leave_pending(scene, 3)
    running, most, order = 0, [], []

    async def watch(job):
        nonlocal running
        running += 1
        order.append((job.data, job.attempt))
        await asyncio.sleep(0.02)
        most.append((job.data, running))
        running -= 1

    assert await stint(watch, concurrency=8) is StintEnd.DRY
    assert order == [(0, 2), (1, 2), (2, 2), (3, 1), (4, 1)]
    assert most[:3] == [(0, 1), (1, 1), (2, 1)]
    assert scene.is_empty()


async def test_however_much_was_left_all_of_it_can_be_claimed_at_once(scene, stint):
    """A slot that works on whole batches has thousands in hand; they are let go in parts."""
    await scene.queue.add_bulk([{"name": "n", "data": number} for number in range(700)])
    leave_pending(scene, 700)
    assert await stint(lambda job: None, most=1) is StintEnd.ENOUGH
    rows = scene.pending()
    assert len(rows) == 699
    assert all(row["time_since_delivered"] >= LEASE_MS for row in rows)
    assert {row["times_delivered"] for row in rows} == {1}


async def test_only_the_entry_that_is_run_counts_another_delivery(scene, stint):
    """One that kills the process is counted; those that wait behind it are not."""
    await add(scene, 4)
    leave_pending(scene, 4)
    counts = []

    async def look(job):
        if not counts:
            counts.extend(row["times_delivered"] for row in scene.pending())

    await stint(look)
    assert counts == [2, 1, 1, 1]


async def test_an_entry_that_has_had_its_runs_goes_to_the_dlq_and_its_neighbours_run(scene, stint):
    await add(scene, 2)
    leave_pending(scene, 2)
    [first, _] = scene.pending()
    scene.client.xclaim(scene.keys.stream, "default", NAME, 0, [first["message_id"]], retrycount=3)
    ran = []
    await stint(lambda job: ran.append(job.data), max_attempts=3)
    assert ran == [1]
    [letter] = await scene.dead()
    assert (letter["reason"], letter["attempts"]) == ("retries_exhausted", 3)


async def test_what_another_worker_holds_is_left_to_it(scene, stint):
    await add(scene, 2)
    leave_pending(scene, 1, consumer="another")
    ran = []
    await stint(lambda job: ran.append(job.data))
    assert ran == [1]
    assert [row["consumer"] for row in scene.pending()] == [b"another"]


async def test_a_permit_that_is_taken_away_lets_what_runs_finish(scene, stint):
    await add(scene, 50)
    begun, ran = asyncio.Event(), []

    async def slow(job):
        begun.set()
        await asyncio.sleep(0.1)
        ran.append(job.data)

    ending = asyncio.create_task(stint(slow, concurrency=2))
    await begun.wait()
    scene.client.delete(scene.keys.fleet("f"))
    assert await ending is StintEnd.DISMISSED
    await eventually(lambda: scene.depth() == 50 - len(ran))
    assert 0 < len(ran) < 50
    assert not await scene.dead()
