"""The consumer group: made at the start, one per queue, made again when it is lost."""

import asyncio

import pytest

from chasquimq import ConfigError
from chasquimq.metrics import JobOutcome
from tests.support.eventually import eventually
from tests.support.scene import Scene, running, soon


async def nothing(job):
    return None


async def test_a_first_worker_sees_what_was_added_before_it(scene):
    await scene.queue.add_bulk([{"name": "n", "data": n} for n in range(5)])
    async with scene.working(nothing) as sink:
        await sink.take(JobOutcome, 5)
    (group,) = scene.client.xinfo_groups(scene.keys.stream)
    assert group["name"] == b"default"


async def test_workers_of_one_group_share_the_jobs_and_none_is_lost_or_run_twice(scene):
    ran = []

    async def handler(job):
        await asyncio.sleep(0)
        ran.append(job.id)

    async with scene.working(handler) as one, scene.working(handler) as two:
        jobs = await scene.queue.add_bulk([{"name": "n", "data": n} for n in range(300)])
        await eventually(lambda: len(one.seen(JobOutcome)) + len(two.seen(JobOutcome)) == 300)
    assert sorted(ran) == sorted(job.id for job in jobs)
    assert scene.is_empty()


async def test_a_second_group_on_a_queue_is_refused_with_a_reason(scene):
    async with scene.working(nothing) as sink:
        await scene.queue.add("n", 1)
        await sink.next(JobOutcome)
        other = scene.worker(nothing, group="other")
        with pytest.raises(ConfigError, match="is read by group 'default'"):
            await soon(other.run())
    assert [group["name"] for group in scene.client.xinfo_groups(scene.keys.stream)] == [b"default"]


async def test_a_group_of_another_name_is_fine_while_it_is_the_only_one(scene):
    job = await scene.queue.add("n", 1)
    async with scene.working(nothing, group="reports") as sink:
        await sink.next(JobOutcome)
    assert scene.story(job.id) == ["waiting", "active", "completed"]


async def test_a_worker_goes_on_after_its_group_was_destroyed(scene):
    async with scene.working(nothing, read_block_ms=50) as sink:
        await scene.queue.add("n", 1)
        await sink.next(JobOutcome)
        scene.client.xgroup_destroy(scene.keys.stream, "default")
        await scene.queue.add("n", 2)
        await sink.next(JobOutcome)
    assert scene.is_empty()


async def test_a_worker_goes_on_after_the_stream_was_deleted(scene):
    async with scene.working(nothing, read_block_ms=50) as sink:
        await scene.queue.add("n", 1)
        await sink.next(JobOutcome)
        scene.client.delete(scene.keys.stream)
        await scene.queue.add("n", 2)
        await sink.next(JobOutcome)
    assert scene.is_empty()


async def test_a_worker_goes_on_after_everything_was_flushed(server, start_server, queue_name):
    scene = Scene(start_server(), queue_name)
    async with scene.working(nothing, read_block_ms=50) as sink:
        await scene.queue.add("n", 1)
        await sink.next(JobOutcome)
        scene.client.flushall()
        await scene.queue.add("n", 2)
        await scene.queue.add("later", 3, delay_ms=1)
        await sink.take(JobOutcome, 2)
    await scene.queue.close()


async def test_a_job_that_fails_while_its_group_is_destroyed_is_run_again(scene):
    ran = []

    async def handler(job):
        ran.append(job.attempt)
        if len(ran) == 1:
            scene.client.xgroup_destroy(scene.keys.stream, "default")
            message = "its group is gone"
            raise ValueError(message)

    await scene.queue.add("n", 1)
    # If the new group gives the entry to us again before its retry is refused, it is still in our
    # hands and is not started beside itself: then it waits for its lease, which is short here.
    async with scene.working(handler, read_block_ms=50, lease_ms=300) as sink:
        await sink.take(JobOutcome, 2)
        await eventually(scene.is_empty)


async def test_a_queue_taken_over_by_another_group_ends_the_worker_with_the_reason(scene):
    worker = scene.worker(nothing, read_block_ms=50)
    running_worker = asyncio.create_task(worker.run())
    await eventually(lambda: scene.client.exists(scene.keys.stream))
    scene.client.xgroup_create(scene.keys.stream, "other", "0")
    scene.client.xgroup_destroy(scene.keys.stream, "default")
    with pytest.raises(ConfigError, match="is read by group 'other'"):
        await soon(running_worker)


async def test_workers_of_two_queues_do_not_see_each_others_jobs(scene):
    other = Scene(scene.server, scene.name + "-other")
    seen = []

    async def handler(job):
        seen.append(job.data)

    async with scene.working(handler) as sink, running(other.worker(nothing)):
        await other.queue.add("n", "theirs")
        await scene.queue.add("n", "ours")
        await sink.next(JobOutcome)
    assert seen == ["ours"]
    await other.queue.close()
