"""A full queue: refuse, wait or drop, and never lose or double a job silently."""

import asyncio
import time

import pytest

from chasquimq import Counts, Queue, QueueFullError
from chasquimq.testing import running
from tests.support.eventually import eventually


async def test_a_full_queue_refuses_a_job_and_says_what_to_do(make_door):
    door = make_door(max_stream_len=2)
    await door.add("send", 1)
    await door.add("send", 2, job_id="mine")
    with pytest.raises(QueueFullError, match=r"max_stream_len of 2.*overflow='wait'") as refused:
        await door.add("send", 3)
    assert refused.value.code == "CMQ-006"
    with pytest.raises(QueueFullError):
        await door.add("send", 4, job_id="other")
    assert (await door.counts()).waiting == 2


async def test_a_job_that_is_there_already_needs_no_room(make_door):
    door = make_door(max_stream_len=1)
    await door.add("send", 1, job_id="mine")
    assert (await door.add("send", 1, job_id="mine")).deduplicated


async def test_a_refused_id_is_not_taken(make_door, queue):
    door = make_door(max_stream_len=1)
    await door.add("send", 1)
    with pytest.raises(QueueFullError):
        await door.add("send", 2, job_id="mine")
    roomy = make_door(max_stream_len=2)
    assert not (await roomy.add("send", 2, job_id="mine")).deduplicated


async def test_delayed_jobs_are_taken_whatever_the_depth(make_door):
    door = make_door(max_stream_len=1)
    await door.add("send", 1)
    await door.add("send", 2, delay_ms=60_000)
    assert await door.counts() == Counts(waiting=1, active=0, delayed=1, dead=0)


async def test_a_bulk_that_does_not_fit_is_refused_whole(make_door):
    door = make_door(max_stream_len=3)
    await door.add("send", 0)
    with pytest.raises(QueueFullError):
        await door.add_bulk([{"name": "send", "data": number} for number in range(3)])
    with pytest.raises(QueueFullError):
        await door.add_bulk(
            [{"name": "send", "data": number} for number in range(3)]
            + [{"name": "later", "data": 0, "delay_ms": 60_000}]
        )
    assert await door.counts() == Counts(waiting=1, active=0, delayed=0, dead=0)
    await door.add_bulk([{"name": "send", "data": number} for number in range(2)])
    assert (await door.counts()).waiting == 3


async def test_a_bulk_refused_for_its_unique_jobs_can_be_sent_again_without_doubling(make_door):
    bulk = [
        {"name": "plain", "data": 0},
        {"name": "unique", "data": 1, "job_id": "a"},
        {"name": "unique", "data": 2, "job_id": "b"},
        {"name": "later", "data": 3, "delay_ms": 60_000},
    ]
    door = make_door(max_stream_len=2)
    with pytest.raises(QueueFullError):
        await door.add_bulk(bulk)
    await make_door().add_bulk(bulk)
    assert await door.counts() == Counts(waiting=3, active=0, delayed=1, dead=0)


async def test_concurrent_adds_fill_a_queue_exactly(make_door):
    door = make_door(max_stream_len=5)
    outcomes = await asyncio.gather(
        *(door.add("send", number) for number in range(12)), return_exceptions=True
    )
    assert [type(each) for each in outcomes].count(QueueFullError) == 7
    assert (await door.counts()).waiting == 5


async def test_a_patient_queue_waits_for_room(make_door, make_worker):
    door = make_door(max_stream_len=1, overflow="wait", overflow_timeout_ms=10_000)
    await door.add("send", 1)
    adding = asyncio.create_task(door.add("send", 2))
    seen = []

    async def handler(job):
        seen.append(job.data)

    async with running(make_worker(handler)):
        await adding
        await eventually(lambda: seen == [1, 2])


async def test_patience_ends_after_its_time_and_not_before(make_door):
    door = make_door(max_stream_len=1, overflow="wait", overflow_timeout_ms=50)
    await door.add("send", 1)
    began = time.monotonic()
    with pytest.raises(QueueFullError, match=r"1 more does not fit.*wait for longer"):
        await door.add("send", 2)
    assert time.monotonic() - began >= 0.05


async def test_many_tasks_that_wait_for_room_are_all_served_each_once(
    server, queue_name, make_worker
):
    seen = []

    async def handler(job):
        seen.append(job.data)

    async with Queue(queue_name, redis_url=server.url, max_stream_len=5, overflow="wait") as queue:
        await queue.add_bulk([{"name": "send", "data": n} for n in range(5)])
        adding = asyncio.gather(*(queue.add("send", n) for n in range(5, 65)))
        async with running(make_worker(handler, concurrency=1)):
            await adding
            await eventually(lambda: len(seen) == 65)
    assert seen[:5] == list(range(5))
    assert sorted(seen) == list(range(65))


async def test_a_patient_bulk_adds_every_job_once_however_often_it_had_to_try(
    make_door, make_worker
):
    door = make_door(max_stream_len=2, overflow="wait", overflow_timeout_ms=10_000)
    seen = []

    async def handler(job):
        seen.append(job.data)

    adding = asyncio.create_task(
        door.add_bulk(
            [{"name": "plain", "data": "p"}]
            + [{"name": "unique", "data": n, "job_id": f"u-{n}"} for n in range(6)]
            + [{"name": "later", "data": "l", "delay_ms": 60_000}]
        )
    )
    await eventually(lambda: adding.done() or door_is_full(door))
    async with running(make_worker(handler)):
        jobs = await adding
        await eventually(lambda: len(seen) >= 7)
    assert sorted(map(str, seen)) == ["0", "1", "2", "3", "4", "5", "p"]
    assert not any(job.deduplicated for job in jobs)
    assert (await door.counts()).delayed == 1


async def door_is_full(door):
    return (await door.counts()).waiting == 2


async def test_a_queue_may_drop_the_oldest_instead(make_door):
    door = make_door(max_stream_len=10, overflow="trim")
    for start in range(0, 1_000, 250):
        await door.add_bulk([{"name": "send", "data": start + n} for n in range(250)])
    await door.add("send", 1_000)
    assert 10 <= (await door.counts()).waiting < 250


async def test_a_bulk_of_any_size_never_holds_the_server_up_with_one_script(server, queue_name):
    server.client().config_resetstat()
    async with Queue(queue_name, redis_url=server.url) as queue:
        await queue.add_bulk([{"name": "n", "data": n} for n in range(5_000)])
        assert (await queue.counts()).waiting == 5_000
    assert server.client().info("commandstats")["cmdstat_evalsha"]["calls"] >= 5


async def test_a_large_bulk_that_does_not_fit_adds_nothing(server, queue_name):
    async with Queue(queue_name, redis_url=server.url, max_stream_len=2_500) as queue:
        with pytest.raises(QueueFullError):
            await queue.add_bulk([{"name": "n", "data": n} for n in range(3_000)])
        assert (await queue.counts()).waiting == 0
