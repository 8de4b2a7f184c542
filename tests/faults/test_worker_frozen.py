"""A worker that stands still for longer than its lease, and then goes on as if nothing was."""

import signal

import pytest

from chasquimq.metrics import JobOutcome
from tests.support.eventually import eventually

LEASE_MS = 300

pytestmark = pytest.mark.servers("redis-8.6", "redis-6.2")


async def value(job):
    return "from the rescuer"


@pytest.mark.parametrize("name", ["hold", "hold-and-fail"])
async def test_the_late_end_of_a_job_that_another_worker_rescued_does_no_harm(
    scene, start_worker, name
):
    job = await scene.queue.add(name, 1)
    options = {"lease_ms": LEASE_MS, "store_results": True}
    frozen = await start_worker(scene, **options)
    await frozen.until("started")
    frozen.send(signal.SIGSTOP)
    async with scene.working(value, **options) as sink:
        # Where reads claim, the frozen worker's own open read may have been given its job once
        # more by the server: nobody can tell that from a run, so it counts as one.
        assert (await sink.next(JobOutcome)).attempt in (2, 3)
        assert await job.wait_for_result(timeout=10) == "from the rescuer"
        frozen.release()
        frozen.send(signal.SIGCONT)
        await frozen.until("ended")
        frozen.send(signal.SIGTERM)
        assert await frozen.ended() == 0
        assert len(sink.seen(JobOutcome)) == 1
    assert scene.story(job.id).count("completed") == 1
    assert "retry-scheduled" not in scene.story(job.id)
    assert (await scene.queue.get_outcome(job.id)).value == "from the rescuer"
    assert scene.is_empty()
    assert await scene.dead() == []


async def test_a_job_that_a_frozen_worker_was_given_and_did_not_see_runs_elsewhere(
    scene, start_worker
):
    options = {"lease_ms": LEASE_MS}
    frozen = await start_worker(scene, **options)
    await scene.queue.add("hold", 1)
    await frozen.until("started")
    frozen.send(signal.SIGSTOP)
    await scene.queue.add("unseen", 2)
    ran = []

    async def rescue(job):
        ran.append(job.name)

    async with scene.working(rescue, **options) as sink:
        await sink.take(JobOutcome, 2)
        frozen.release()
        frozen.send(signal.SIGCONT)
        await frozen.until("ended", name="hold")
        frozen.send(signal.SIGTERM)
        assert await frozen.ended() == 0
    assert sorted(ran) == ["hold", "unseen"]
    assert [report["name"] for report in frozen.told("started")] == ["hold"]
    assert scene.is_empty()


async def test_a_job_that_a_frozen_worker_had_read_and_not_begun_is_not_begun_when_it_wakes(
    scene, start_worker
):
    await scene.queue.add_bulk([{"name": "freeze", "data": 1}, {"name": "behind", "data": 2}])
    options = {"lease_ms": LEASE_MS}
    frozen = await start_worker(scene, concurrency=2, **options)
    await frozen.until("started", name="freeze")
    ran = []

    async def rescue(job):
        ran.append(job.name)

    async with scene.working(rescue, **options) as sink:
        await sink.take(JobOutcome, 2)
        frozen.send(signal.SIGCONT)
        await frozen.until("ended", name="freeze")
        frozen.send(signal.SIGTERM)
        assert await frozen.ended() == 0
    assert sorted(ran) == ["behind", "freeze"]
    assert [report["name"] for report in frozen.told("started")] == ["freeze"]
    assert scene.is_empty()


async def test_a_job_that_a_frozen_worker_had_read_and_not_begun_runs_if_nobody_took_it(
    scene, start_worker
):
    await scene.queue.add_bulk([{"name": "freeze", "data": 1}, {"name": "behind", "data": 2}])
    frozen = await start_worker(scene, concurrency=2, lease_ms=LEASE_MS)
    await frozen.until("started", name="freeze")
    (entry_id,) = [
        row["message_id"]
        for row in scene.client.xpending_range(scene.keys.stream, "default", "-", "+", 2)
    ][1:]
    await eventually(
        lambda: scene.client.xpending_range(
            scene.keys.stream, "default", entry_id, entry_id, 1, idle=LEASE_MS
        )
    )
    frozen.send(signal.SIGCONT)
    await frozen.until("ended", name="behind")
    await eventually(scene.is_empty)
    assert len(frozen.told("started", name="behind")) == 1
    frozen.send(signal.SIGTERM)
    assert await frozen.ended() == 0
