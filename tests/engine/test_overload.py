"""More work than workers: the cap holds, nothing is lost, and what is new still gets through."""

import asyncio

from chasquimq import Queue
from chasquimq.wire.envelope import encode
from chasquimq.wire.member import encode_member
from tests.support.builders import an_envelope
from tests.support.eventually import eventually

CAP = 100
PRODUCERS = 4
EACH = 300
DUE_AT_ONCE = 5_000


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


async def test_a_flood_of_due_jobs_drains_while_new_jobs_get_through(scene):
    """Promotion works in batches, and new jobs stand in the same line as what was promoted."""
    pipeline = scene.client.pipeline()
    for n in range(DUE_AT_ONCE):
        pipeline.zadd(scene.keys.delayed, {encode_member("old", encode(an_envelope(n))): 1})
    pipeline.execute()
    ran: dict[str, int] = {"old": 0, "new": 0}
    old_before_new: list[int] = []

    async def handle(job):
        ran[job.name] += 1
        if job.name == "new":
            old_before_new.append(ran["old"])

    async with scene.working(handle, events_enabled=False):
        for _ in range(10):
            seen = len(old_before_new) + 1  # before the add: the job may run while it returns
            await scene.queue.add("new", 1)
            await eventually(lambda wanted=seen: len(old_before_new) >= wanted, timeout=30)
        await eventually(lambda: ran["old"] == DUE_AT_ONCE, timeout=50)
    assert ran == {"old": DUE_AT_ONCE, "new": 10}
    assert old_before_new[0] < DUE_AT_ONCE / 2
