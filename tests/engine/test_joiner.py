"""Adds of many tasks that travel together: what leaves with what, and who is told when."""

import asyncio

import pytest

from chasquimq import OutcomeUnknownError, Queue, QueueFullError, ServerReplyError
from chasquimq.engine import joiner
from chasquimq.engine.joiner import Joiner
from chasquimq.engine.portions import CHUNK_BYTES

CROWD = 40


@pytest.fixture
def sizes(monkeypatch):
    """How many jobs each joined call had."""
    seen, flush = [], Joiner._flush  # noqa: SLF001 -- where batches leave

    def noting(self, batch):
        seen.append(len(batch))
        return flush(self, batch)

    monkeypatch.setattr(joiner.Joiner, "_flush", noting)
    return seen


async def told_in_turns(queue, count):
    """Add so many jobs at once; how many were told in each turn of the event loop, the jobs."""
    loop, turn, is_over = asyncio.get_running_loop(), 0, False

    def count_turns():
        nonlocal turn
        turn += 1
        if not is_over:
            loop.call_soon(count_turns)

    async def add(number):
        job = await queue.add("n", number)
        return turn, job

    count_turns()
    told = await asyncio.gather(*(add(number) for number in range(count)))
    is_over = True
    turns = [turn for turn, _ in told]
    return [turns.count(each) for each in sorted(set(turns))], [job for _, job in told]


async def test_a_job_alone_is_sent_at_once_and_others_leave_together(scene, sizes):
    await scene.queue.add("n", 0)
    assert sizes == []
    await asyncio.gather(*(scene.queue.add("n", n) for n in range(CROWD)))
    assert sizes == [CROWD - 1]
    assert scene.depth() == 1 + CROWD


async def test_callers_of_a_crowd_are_told_in_two_halves_a_turn_apart(scene):
    """What the first half adds next can leave while the other half runs."""
    await scene.queue.add("n", 0)  # the connection is there
    told, jobs = await told_in_turns(scene.queue, CROWD + 1)
    assert told[-1] == CROWD // 2
    assert sum(told) == CROWD + 1
    assert len({job.id for job in jobs}) == CROWD + 1


async def test_callers_of_a_few_are_told_at_once(scene):
    await scene.queue.add("n", 0)
    told, _ = await told_in_turns(scene.queue, 1 + 10)
    assert told[-1] == 10


async def test_tasks_that_add_one_after_the_other_become_two_crowds(scene, sizes):
    async def add_some():
        for number in range(50):
            await scene.queue.add("n", number)

    await asyncio.gather(*(add_some() for _ in range(100)))
    assert scene.depth() == 5_000
    assert sum(size for size in sizes if size > 75) < 4_000  # without halves all would be


async def test_plain_jobs_and_jobs_with_rules_of_their_own_leave_together_in_order(scene, sizes):
    await scene.queue.add("first", 0)
    jobs = await asyncio.gather(
        *(scene.queue.add("n", n, attempts=2 if n % 3 else None) for n in range(CROWD))
    )
    assert sizes == [CROWD - 1]
    assert [job.data for job in jobs] == list(range(CROWD))
    waiting = await scene.queue.get_jobs("waiting", end=CROWD)
    assert [job.id for job in waiting][1:] == [job.id for job in jobs]


async def test_what_does_not_fit_is_told_to_those_who_came_last(server, queue_name):
    async with Queue(queue_name, redis_url=server.socket_url, max_stream_len=30) as queue:
        outcomes = await asyncio.gather(
            *(queue.add("n", n) for n in range(CROWD)), return_exceptions=True
        )
        refused = [isinstance(each, QueueFullError) for each in outcomes]
        assert refused == [False] * 30 + [True] * 10


async def test_who_gives_up_waiting_keeps_nobody_else_from_being_told(scene):
    await scene.queue.add("n", 0)
    tasks = [asyncio.create_task(scene.queue.add("n", n)) for n in range(CROWD)]
    await asyncio.sleep(0)
    tasks[7].cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(outcomes.pop(7), asyncio.CancelledError)
    assert [job.data for job in outcomes] == [n for n in range(CROWD) if n != 7]
    assert scene.depth() == 1 + CROWD


def the_flush():
    """The task that adds for all who joined."""
    [flush] = [task for task in asyncio.all_tasks() if task.get_name() == "chasquimq-adds"]
    return flush


async def test_who_cancels_the_task_that_adds_leaves_nobody_waiting(scene):
    await scene.queue.add("n", 0)
    tasks = [asyncio.create_task(scene.queue.add("n", n)) for n in range(CROWD)]
    for _ in range(3):
        await asyncio.sleep(0)
    the_flush().cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    cut_off = [each for each in outcomes if isinstance(each, OutcomeUnknownError)]
    assert len(cut_off) == CROWD - 1
    assert "may be stored" in str(cut_off[0])


async def test_a_queue_that_is_closed_tells_both_halves_first(scene):
    await scene.queue.add("n", 0)
    tasks = [asyncio.create_task(scene.queue.add("n", n)) for n in range(CROWD)]
    for _ in range(3):
        await asyncio.sleep(0)
    await scene.queue.close()
    assert all(task.done() for task in tasks[1:])
    assert {(await task).name for task in tasks} == {"n"}


async def test_an_error_is_told_to_all_who_joined(scene):
    await scene.queue.add("n", 0)
    scene.client.delete(scene.keys.stream)
    scene.client.set(scene.keys.stream, "in the way", ex=60)
    outcomes = await asyncio.gather(
        *(scene.queue.add("n", n) for n in range(CROWD)), return_exceptions=True
    )
    assert [type(each) for each in outcomes] == [ServerReplyError] * CROWD
    scene.client.delete(scene.keys.stream)


@pytest.mark.servers("redis-8.6")
async def test_one_that_joins_alone_needs_no_script(scene, sizes):
    await scene.queue.add("n", 0)
    before = scene.client.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"]
    await asyncio.gather(scene.queue.add("n", 1), scene.queue.add("n", 2))
    assert sizes == [1]
    after = scene.client.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"]
    assert after == before


async def test_large_data_of_many_is_cut_into_calls_by_its_bytes(scene, sizes):
    large = b"x" * (CHUNK_BYTES // 10)
    await scene.queue.add("n", 0)
    await asyncio.gather(*(scene.queue.add("n", large) for _ in range(1 + 25)))
    assert len(sizes) == 3
    assert sum(sizes) == 25
    assert scene.depth() == 27


async def test_data_that_is_nearly_or_quite_too_large_is_measured_to_the_byte(scene, server):
    most = 1_000
    overhead = 26 + 1 + 1 + 3 + 3 + 9 + 1  # id, array, text, inner and outer bytes, time, attempt
    async with Queue(scene.name, redis_url=server.socket_url, max_payload_bytes=most) as queue:
        await queue.add("n", b"x" * (most - overhead))
        with pytest.raises(ValueError, match="max_payload_bytes"):
            await queue.add("n", b"x" * (most - overhead + 1))
    assert scene.depth() == 1
