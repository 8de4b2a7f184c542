"""Chapter 5: seeing what goes on."""

import asyncio

from chasquimq import Counts, JobState, QueueEvents
from chasquimq.testing import running


async def test_events_tell_the_life_of_a_job_to_any_process(server, queue, queue_name, make_worker):
    async def fails_once(job):
        if job.attempt == 1:
            message = "the line is busy"
            raise ConnectionError(message)

    told = []
    watching = QueueEvents(queue_name, redis_url=server.url)
    async with watching as events, running(make_worker(fails_once)):
        job = await queue.add("call", None)
        async for event in events:
            if event.job_id == job.id:
                told.append(event)
            if event.name == "completed":
                break

    assert sorted(event.name for event in told) == sorted(
        ["waiting", "active", "failed", "retry-scheduled", "waiting", "active", "completed"]
    )
    assert {event.job_name for event in told} == {"call"}
    [failed] = [event for event in told if event.name == "failed"]
    assert failed.fields["reason"] == "the line is busy"
    assert failed.fields["attempt"] == 1


async def test_a_queue_counts_its_jobs(queue, make_worker):
    has_begun, may_end = asyncio.Event(), asyncio.Event()

    async def handler(_):
        has_begun.set()
        await may_end.wait()

    await queue.add("now", 1)
    await queue.add("now", 2)
    await queue.add("later", 3, delay_ms=60_000)
    assert await queue.counts() == Counts(waiting=2, active=0, delayed=1, dead=0)

    async with running(make_worker(handler, concurrency=1)):
        await has_begun.wait()
        assert await queue.counts() == Counts(waiting=1, active=1, delayed=1, dead=0)
        may_end.set()


async def test_a_job_is_looked_up_by_its_id(queue):
    job = await queue.add("later", {"to": "ada"}, delay_ms=60_000)

    assert await queue.get_job_state(job.id) is JobState.DELAYED
    assert await queue.get_job(job.id) == job
    assert await queue.get_job("no such job") is None
