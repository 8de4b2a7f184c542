"""Ids of the caller's choosing run once, whichever process added them."""

import asyncio
import sys

from chasquimq.metrics import JobOutcome
from tests.support.scene import soon

PRODUCER = """
import sys
from chasquimq import SyncQueue

url, name, road = sys.argv[1:]
with SyncQueue(name, redis_url=url) as queue:
    sys.stdin.readline()
    for n in range(30):
        delay_ms = 1 if road == "delayed" else None
        job = queue.add("n", n, job_id=f"id-{n}", delay_ms=delay_ms)
        print(int(job.deduplicated), flush=True)
"""


async def test_ids_added_by_several_processes_on_both_roads_run_once(scene):
    ran = []

    async def handler(job):
        ran.append(job.id)

    pipe = asyncio.subprocess.PIPE
    producers = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", PRODUCER, scene.server.socket_url, scene.name, road,
            stdin=pipe, stdout=pipe,
        )
        for road in ("immediate", "immediate", "delayed")
    ]  # fmt: skip
    async with scene.working(handler) as sink:
        outputs = await soon(asyncio.gather(*(each.communicate(b"go\n") for each in producers)))
        await sink.take(JobOutcome, 30)
        assert [each.returncode for each in producers] == [0, 0, 0]
        flags = [flag for output, _ in outputs for flag in output.split()]
        assert (flags.count(b"0"), flags.count(b"1")) == (30, 60)
        # Had an id been added twice it would be in the stream before this one.
        await scene.queue.add("last", 0)
        while (await sink.next(JobOutcome)).name != "last":
            pass
    assert sorted(ran[:-1]) == sorted(f"id-{n}" for n in range(30))
    assert scene.is_empty()


async def test_an_id_stays_taken_after_its_job_has_run(scene):
    async def nothing(job):
        return None

    async with scene.working(nothing) as sink:
        first = await scene.queue.add("n", 1, job_id="chosen")
        await sink.next(JobOutcome)
        second = await scene.queue.add("n", 2, job_id="chosen")
        later = await scene.queue.add("n", 3, job_id="chosen", delay_ms=1)
    assert [first.deduplicated, second.deduplicated, later.deduplicated] == [False, True, True]
    assert scene.is_empty()
    assert len(sink.seen(JobOutcome)) == 1


async def test_a_retry_of_a_job_with_a_chosen_id_is_not_taken_for_a_duplicate(scene):
    async def handler(job):
        if job.attempt < 3:
            message = "again"
            raise ValueError(message)

    await scene.queue.add("n", 1, job_id="chosen")
    async with scene.working(handler) as sink:
        outcomes = await sink.take(JobOutcome, 3)
    assert [outcome.attempt for outcome in outcomes] == [1, 2, 3]
    assert scene.story("chosen")[-1] == "completed"
