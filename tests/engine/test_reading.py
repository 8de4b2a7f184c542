"""What a worker takes from the stream, and how many at once."""

import asyncio

from chasquimq.metrics import JobOutcome
from tests.support.eventually import eventually
from tests.support.scene import soon


async def test_no_more_handlers_run_at_once_than_concurrency_allows(scene):
    running, most = 0, 0

    async def handler(job):
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(5):
            await asyncio.sleep(0)
        running -= 1

    await scene.queue.add_bulk([{"name": "n", "data": n} for n in range(100)])
    async with scene.working(handler, concurrency=7) as sink:
        await sink.take(JobOutcome, 100)
    assert most == 7


async def test_with_one_slot_jobs_run_in_the_order_they_were_added(scene):
    ran = []

    async def handler(job):
        await asyncio.sleep(0)
        ran.append(job.data)

    await scene.queue.add_bulk([{"name": "n", "data": n} for n in range(200)])
    async with scene.working(handler, concurrency=1) as sink:
        await sink.take(JobOutcome, 200)
    assert ran == list(range(200))


async def test_a_worker_with_slow_handlers_takes_only_what_it_can_run(scene):
    gate = asyncio.Event()

    async def slow(job):
        await gate.wait()

    await scene.queue.add_bulk([{"name": "n", "data": n} for n in range(10)])
    async with scene.working(slow, concurrency=2) as busy:
        await eventually(lambda: len(scene.pending()) == 2)
        async with scene.working(quick, concurrency=2) as free:
            await free.take(JobOutcome, 8)
        gate.set()
        await busy.take(JobOutcome, 2)
    assert scene.is_empty()


async def quick(job):
    return None


async def test_what_was_read_ahead_of_a_slow_job_is_run_by_another_worker(scene):
    """Fast jobs make a worker read ahead; then one is slow, and the rest must not wait for it."""
    gate, is_slow = asyncio.Event(), asyncio.Event()
    ran = []

    async def handler(job):
        if job.name == "slow":
            is_slow.set()
            await gate.wait()

    async def other(job):
        ran.append((job.data, job.attempt))

    fast = [{"name": "fast", "data": n} for n in range(3_000)]
    rest = [{"name": "rest", "data": n} for n in range(10)]
    await scene.queue.add_bulk([*fast, {"name": "slow", "data": 0}, *rest])
    options = {"concurrency": 1, "read_block_ms": 60_000}
    async with scene.working(handler, **options) as sink:
        await soon(is_slow.wait())
        async with scene.working(other) as free:
            await free.take(JobOutcome, 10)
        gate.set()
        await sink.take(JobOutcome, 3_001)
    assert sorted(ran) == [(n, 1) for n in range(10)]
    assert scene.is_empty()


async def test_drained_is_told_once_when_the_last_job_has_been_read(scene):
    async with scene.working(quick, read_block_ms=10) as sink:
        await scene.queue.add_bulk([{"name": "n", "data": n} for n in range(10)])
        await sink.take(JobOutcome, 10)
        await eventually(lambda: scene.events("drained"))
        await scene.queue.add("n", 1)
        await sink.next(JobOutcome)
        await eventually(lambda: len(scene.events("drained")) == 2)
    for drained in scene.events("drained"):
        assert (drained.job_id, drained.job_name) == (None, "")
