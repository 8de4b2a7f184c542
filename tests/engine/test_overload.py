"""More work than workers: the cap holds, nothing is lost, and what is new still gets through."""

import asyncio

from chasquimq import Queue, QueueFullError
from chasquimq.wire.envelope import encode
from chasquimq.wire.member import encode_member
from tests.support.builders import an_envelope
from tests.support.eventually import eventually

CAP = 40
PRODUCERS = 4
EACH = 120
DUE_AT_ONCE = 4_000


async def test_producers_that_outrun_the_workers_wait_at_the_cap_and_lose_nothing(scene):
    ran, deepest = [], 0

    async def handle(job):
        nonlocal deepest
        deepest = max(deepest, scene.depth())
        ran.append(job.data)

    async def produce(number):
        options = {"max_stream_len": CAP, "overflow": "wait", "overflow_timeout_ms": 30_000}
        async with Queue(scene.name, redis_url=scene.server.socket_url, **options) as queue:
            for n in range(EACH):
                await queue.add("n", [number, n])

    async with scene.working(handle, concurrency=5):
        await asyncio.gather(*map(produce, range(PRODUCERS)))
        await eventually(lambda: len(ran) == PRODUCERS * EACH)
        await eventually(scene.is_empty)
    assert sorted(ran) == [[number, n] for number in range(PRODUCERS) for n in range(EACH)]
    assert deepest <= CAP


async def test_producers_that_are_refused_at_the_cap_lose_nothing_and_run_nothing_refused(scene):
    ran, added, refused, deepest, largest = [], [], [], 0, 0

    async def handle(job):
        nonlocal deepest, largest
        deepest, largest = max(deepest, scene.depth()), max(largest, stored_bytes(scene))
        ran.append(tuple(job.data[:2]))

    async def produce(number):
        options = {"max_stream_len": CAP, "events_enabled": False}
        async with Queue(scene.name, redis_url=scene.server.socket_url, **options) as queue:
            for n in range(EACH):
                try:
                    await queue.add("n", [number, n, "x" * 1_000])
                except QueueFullError:
                    refused.append((number, n))
                else:
                    added.append((number, n))

    # Nobody works at first, so that the cap is reached whatever the machine does.
    await produce(PRODUCERS)
    assert (len(added), len(refused)) == (CAP, EACH - CAP)
    full = stored_bytes(scene)
    await produce(PRODUCERS + 1)
    assert len(added) == CAP
    async with scene.working(handle, concurrency=5, events_enabled=False):
        await asyncio.gather(*map(produce, range(PRODUCERS)))
        await eventually(scene.is_empty)
    assert sorted(ran) == sorted(added)
    assert set(ran).isdisjoint(refused)
    assert len(added) + len(refused) == (PRODUCERS + 2) * EACH
    assert deepest <= CAP
    # Besides, the server holds the last calls of each producer, to recognise those sent again.
    assert largest < full + (PRODUCERS + 1) * 20_000


def stored_bytes(scene):
    """What all keys of the queue take on the server."""
    found = scene.client.scan_iter(match=scene.keys.tag + b"*", count=1_000)
    return sum(scene.client.memory_usage(key, samples=0) or 0 for key in found)


async def test_a_flood_of_due_jobs_drains_while_new_jobs_get_through(scene):
    """However slow the handlers: a new job waits for some batches of the flood, not for all."""
    pipeline = scene.client.pipeline()
    for n in range(DUE_AT_ONCE):
        pipeline.zadd(scene.keys.delayed, {encode_member("old", encode(an_envelope(n))): 1})
    pipeline.execute()
    ran: dict[str, int] = {"old": 0, "new": 0}
    old_before_new: list[int] = []

    async def handle(job):
        await asyncio.sleep(0)  # the promoter has its turns too, and could be far ahead
        ran[job.name] += 1
        if job.name == "new":
            old_before_new.append(ran["old"] - job.data)

    async with scene.working(handle, concurrency=10, read_count=10, events_enabled=False):
        await eventually(lambda: ran["old"] > 0)
        for _ in range(5):
            seen = len(old_before_new) + 1  # before the add: the job may run while it returns
            await scene.queue.add("new", ran["old"])
            await eventually(lambda wanted=seen: len(old_before_new) >= wanted, timeout=30)
        await eventually(lambda: ran["old"] == DUE_AT_ONCE, timeout=50)
    assert ran == {"old": DUE_AT_ONCE, "new": 5}
    # Four batches, what was read already, and what was promoted while the add was on its way.
    assert max(old_before_new) < 6 * 256
