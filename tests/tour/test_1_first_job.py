"""Chapter 1: a queue, a worker, a job."""

import asyncio
import threading

from chasquimq import Queue, Worker
from chasquimq.testing import run_until_idle, running


async def test_a_queue_adds_a_job_and_a_worker_runs_it(server, queue_name):
    greeted = []

    async def greet(job):
        greeted.append(job.data["name"])
        await worker.close()

    worker = Worker(queue_name, greet, redis_url=server.url)
    async with Queue(queue_name, redis_url=server.url) as queue:
        await queue.add("greet", {"name": "Ada"})
        await worker.run()

    assert greeted == ["Ada"]


async def test_a_handler_is_told_which_job_it_runs(queue, make_worker):
    seen = []

    async def handler(job):
        seen.append(job)

    added = await queue.add("resize", {"image": 7, "sizes": [64, 128]})
    await run_until_idle(make_worker(handler), queue)

    [job] = seen
    assert job.id == added.id
    assert job.name == "resize"
    assert job.data == {"image": 7, "sizes": [64, 128]}
    assert job.attempt == 1
    assert job.created_at_ms == added.created_at_ms


async def test_a_worker_runs_many_jobs_at_the_same_time(queue, make_worker):
    everyone_is_here = asyncio.Barrier(5)

    async def handler(_):
        await everyone_is_here.wait()

    for number in range(5):
        await queue.add("meet", number)
    await run_until_idle(make_worker(handler, concurrency=5), queue)

    assert (await queue.counts()).dead == 0


async def test_many_jobs_are_added_in_one_go_each_with_options_of_its_own(queue, make_worker):
    seen = []

    async def handler(job):
        seen.append(job.data)

    jobs = await queue.add_bulk(
        [
            {"name": "send", "data": "now"},
            {"name": "send", "data": "soon", "delay_ms": 20},
            {"name": "send", "data": "stubborn", "attempts": 10, "backoff": 5},
            {"name": "send", "data": "only once", "job_id": "newsletter-42"},
        ]
    )
    assert [job.data for job in jobs] == ["now", "soon", "stubborn", "only once"]

    await run_until_idle(make_worker(handler), queue)
    assert sorted(seen) == ["now", "only once", "soon", "stubborn"]


async def test_a_plain_function_is_a_handler_too_and_runs_in_a_thread(queue, make_worker):
    threads = []

    def handler(_):
        threads.append(threading.current_thread())

    await queue.add("crunch", None)
    await run_until_idle(make_worker(handler), queue)

    assert threads != [threading.main_thread()]


async def test_a_worker_that_is_closed_finishes_what_it_has_begun(queue, make_worker):
    has_begun, may_end, finished = asyncio.Event(), asyncio.Event(), []

    async def handler(job):
        has_begun.set()
        await may_end.wait()
        finished.append(job.data)

    await queue.add("slow", "a long story")
    async with running(make_worker(handler)) as worker:
        await has_begun.wait()
        await worker.close()
        may_end.set()

    assert finished == ["a long story"]
