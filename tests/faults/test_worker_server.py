"""A server that crashes, forgets its scripts, or drops connections, while jobs run."""

import asyncio
from collections import Counter

import pytest

from chasquimq import ChasquiError
from chasquimq.metrics import JobOutcome, PromoterTick
from tests.support.eventually import eventually
from tests.support.scene import Scene, soon


async def test_no_job_that_was_acknowledged_is_lost_when_the_server_crashes(
    server, start_server, queue_name
):
    own = start_server(None, "--appendonly", "yes", "--appendfsync", "always")
    scene = Scene(own, queue_name)
    ran = Counter()
    accepted = []
    is_over = asyncio.Event()

    async def handler(job):
        await asyncio.sleep(0)
        ran[job.id] += 1

    async def produce(n):
        while not is_over.is_set():
            try:
                delay_ms = 1 if len(accepted) % 5 == 0 else None
                accepted.append((await scene.queue.add("n", n, delay_ms=delay_ms)).id)
            except ChasquiError:
                continue  # not acknowledged: it may be there or not

    async with scene.working(handler, lease_ms=300, read_block_ms=100) as sink:
        producers = [asyncio.create_task(produce(n)) for n in range(5)]
        await sink.take(JobOutcome, 200)
        await sink.next(PromoterTick)
        own.kill()
        before = len(accepted)
        own.restart()
        await eventually(lambda: len(accepted) >= before + 200, timeout=20)
        is_over.set()
        await soon(asyncio.gather(*producers))
        await eventually(lambda: not set(accepted) - ran.keys(), timeout=20)
        await eventually(scene.is_empty, timeout=20)
    assert len(accepted) >= 400
    await scene.queue.close()


async def test_scripts_that_the_server_forgets_are_loaded_again_under_load(scene):
    async def handler(job):
        if job.data % 10 == 0 and job.attempt == 1:
            message = "once"
            raise ValueError(message)
        return job.data

    jobs = [{"name": "n", "data": n} for n in range(500)]
    later = [{"name": "n", "data": n, "delay_ms": 20} for n in range(501, 510)]
    async with scene.working(handler, store_results=True, concurrency=20) as sink:
        scene.client.script_flush()
        added = await scene.queue.add_bulk([*jobs, *later])
        for _ in range(50):
            await sink.take(JobOutcome, 11)
            scene.client.script_flush()
        await sink.take(JobOutcome, 9)
        await eventually(scene.is_empty)
    values = await scene.queue.get_job_result_bulk([job.id for job in added])
    assert values == [job.data for job in added]


async def test_connections_that_are_dropped_cost_no_job_and_no_attempt(scene):
    attempts = {}

    async def handler(job):
        await asyncio.sleep(0)
        attempts.setdefault(job.data, []).append(job.attempt)

    def drop():
        for client in scene.client.client_list():
            if client["name"] == "chasquimq-worker-c-1":
                scene.client.client_kill_filter(_id=client["id"])

    options = {"consumer_id": "c-1", "claim_min_idle_ms": 600_000, "concurrency": 10}
    async with scene.working(handler, **options) as sink:
        await sink.next(PromoterTick)
        for part in range(4):
            numbers = range(100 * part, 100 * part + 100)
            await scene.queue.add_bulk([{"name": "n", "data": n} for n in numbers])
            await eventually(lambda part=part: len(attempts) > 100 * part + 20)
            drop()
        await eventually(lambda: len(attempts) == 400)
        await eventually(scene.is_empty)
    assert {attempt for seen in attempts.values() for attempt in seen} == {1}


@pytest.mark.servers("redis-8.6", "redis-6.2")
async def test_a_server_that_hangs_for_a_while_is_waited_for(server, start_server, queue_name):
    own = start_server()
    scene = Scene(own, queue_name)
    ran = []

    async def handler(job):
        ran.append(job.data)

    async with scene.working(handler) as sink:
        await scene.queue.add("n", 1)
        await sink.next(JobOutcome)
        own.pause()
        adding = asyncio.create_task(scene.queue.add("n", 2))
        await asyncio.sleep(0)
        own.resume()
        await soon(adding)
        await sink.next(JobOutcome)
    assert ran == [1, 2]
    await scene.queue.close()
