"""Waiting for a result: who ends the wait, how soon, and with what."""

import asyncio
import warnings

import pytest

from chasquimq import ConnectionFailedError, JobFailedError, Queue, UnrecoverableError, Worker
from chasquimq.testing import run_until_idle, running
from tests.support.eventually import eventually

# Longer than any test may take: whoever only polls finds out too late.
NEVER_POLL = {"timeout": 20, "poll_interval": 60}
SOON_S = 8


async def echo(job):
    return job.data


def blocked_readers_of_events(server):
    return [
        client
        for client in server.client().client_list()
        if client["cmd"] == "xread" and "b" in client["flags"]
    ]


@pytest.fixture
def gate():
    """A handler that returns its data once the gate is open."""

    class Gate:
        opened = asyncio.Event()

        async def handler(self, job):
            await self.opened.wait()
            return job.data

    return Gate()


async def test_a_wait_ends_with_the_completed_event_and_not_with_the_next_poll(
    door, server, make_worker, gate
):
    job = await door.add("echo", {"k": [1, None, "x"]})
    async with running(make_worker(gate.handler, store_results=True)):
        waiting = asyncio.create_task(door.wait_for_result(job.id, **NEVER_POLL))
        await eventually(lambda: blocked_readers_of_events(server))
        gate.opened.set()
        async with asyncio.timeout(SOON_S):
            assert await waiting == {"k": [1, None, "x"]}


async def test_a_wait_ends_with_the_failure_of_the_job_and_its_reason(door, server, make_worker):
    begun, may_fail = asyncio.Event(), asyncio.Event()

    async def handler(_):
        begun.set()
        await may_fail.wait()
        message = "no such user"
        raise UnrecoverableError(message)

    job = await door.add("echo", 1)
    # Results are not stored: the events alone tell.
    async with running(make_worker(handler, store_results=False)):
        waiting = asyncio.create_task(door.wait_for_result(job.id, **NEVER_POLL))
        await eventually(lambda: blocked_readers_of_events(server))
        await begun.wait()
        may_fail.set()
        async with asyncio.timeout(SOON_S):
            with pytest.raises(JobFailedError) as failure:
                await waiting
    assert failure.value.job_id == job.id
    assert failure.value.reason == "unrecoverable"
    assert "no such user" in failure.value.error
    assert "no such user" in str(failure.value)


async def test_a_failure_that_will_be_retried_does_not_end_the_wait(door, make_worker):
    async def fails_twice(job):
        if job.attempt < 3:
            raise ValueError
        return job.attempt

    async with running(make_worker(fails_twice, store_results=True)):
        job = await door.add("echo", 1)
        async with asyncio.timeout(SOON_S):
            assert await door.wait_for_result(job.id, **NEVER_POLL) == 3


async def test_a_job_that_has_ended_is_not_waited_for(door, queue, make_worker):
    async def handler(job):
        if job.data is None:
            raise UnrecoverableError
        return job.data

    done = await door.add("echo", 7)
    failed = await door.add("echo", None)
    await run_until_idle(make_worker(handler, store_results=True), queue)
    async with asyncio.timeout(SOON_S):
        assert await door.wait_for_result(done.id, **NEVER_POLL) == 7
        with pytest.raises(JobFailedError, match="unrecoverable"):
            await door.wait_for_result(failed.id, **NEVER_POLL)


async def test_waiting_for_one_job_after_another_costs_nothing_but_the_jobs(
    queue, server, make_worker
):
    """A read of events that is still blocked from the wait before must not hold up the next."""
    async with running(make_worker(echo, store_results=True, delayed_enabled=False)):
        loop = asyncio.get_running_loop()
        first = await queue.add("echo", 0)
        await first.wait_for_result(**NEVER_POLL)
        began = loop.time()
        for number in range(20):
            job = await queue.add("echo", number)
            assert await job.wait_for_result(**NEVER_POLL) == number
            assert await job.wait_for_result(**NEVER_POLL) == number
        assert loop.time() - began < 5.0


async def test_many_waits_at_once_each_get_their_own_result(queue, make_worker):
    async with running(make_worker(echo, store_results=True)):
        jobs = await queue.add_bulk([{"name": "echo", "data": number} for number in range(50)])
        async with asyncio.timeout(SOON_S):
            results = await asyncio.gather(*(job.wait_for_result(**NEVER_POLL) for job in jobs))
    assert results == list(range(50))


async def test_a_job_in_its_own_handler_cannot_be_waited_for(queue, make_worker):
    raised = []

    async def handler(job):
        try:
            await job.wait_for_result(timeout=1)
        except RuntimeError as error:
            raised.append(str(error))

    await queue.add("echo", 1)
    await run_until_idle(make_worker(handler), queue)
    assert raised == [
        (
            "this job cannot wait for its result: only one that Queue.add returned can, not one "
            "in a handler, of a SyncQueue (use queue.wait_for_result(job.id)) or one that recurs "
            "[CMQ-000]"
        )
    ]


async def test_several_may_wait_for_the_same_job(queue, make_worker):
    job = await queue.add("echo", 7)
    waits = [asyncio.create_task(job.wait_for_result(**NEVER_POLL)) for _ in range(3)]
    async with running(make_worker(echo, store_results=True)), asyncio.timeout(SOON_S):
        assert await asyncio.gather(*waits) == [7, 7, 7]


async def test_without_events_a_wait_looks_now_and_then(make_door, make_worker):
    door = make_door(events_enabled=False)
    async with running(make_worker(echo, store_results=True, events_enabled=False)):
        job = await door.add("echo", 7)
        assert await door.wait_for_result(job.id, timeout=SOON_S, poll_interval=0.01) == 7


async def test_a_wait_that_takes_too_long_is_a_timeout(door):
    job = await door.add("echo", 7)
    with pytest.raises(asyncio.TimeoutError, match=r"not ended after 0\.05 s.*store_results=True"):
        await door.wait_for_result(job.id, timeout=0.05, poll_interval=0.01)


async def test_a_timeout_holds_while_the_server_does_not_answer(start_server, queue_name):
    server = start_server()
    async with Queue(queue_name, redis_url=server.url) as queue:
        job = await queue.add("echo", 7)
        server.pause()
        try:
            async with asyncio.timeout(SOON_S):
                with pytest.raises(TimeoutError, match=r"not ended after 0\.1 s"):
                    await job.wait_for_result(timeout=0.1)
        finally:
            server.resume()


async def test_a_wait_outlives_a_restart_of_the_server_and_still_hears_the_event(
    start_server, queue_name
):
    server = start_server()
    async with Queue(queue_name, redis_url=server.url) as queue:
        await queue.counts()
        server.kill()
        waiting = asyncio.create_task(queue.wait_for_result("mine", **NEVER_POLL))
        await asyncio.sleep(0)
        with pytest.raises(ConnectionFailedError):
            await Queue(queue_name, redis_url=server.url).counts()
        server.restart()
        await eventually(lambda: blocked_readers_of_events(server))
        await queue.add("echo", 7, job_id="mine")
        worker = Worker(
            queue_name, echo, redis_url=server.url, store_results=True, handle_signals=False
        )
        async with running(worker), asyncio.timeout(SOON_S):
            assert await waiting == 7


async def test_a_cancelled_wait_leaves_nothing_running(queue, server):
    """Whether it is cancelled while it connects or later; other waits go on."""

    def watchers():
        return [task for task in asyncio.all_tasks() if task.get_name() == "watcher"]

    job = await queue.add("echo", 7)
    waiting = asyncio.create_task(job.wait_for_result(**NEVER_POLL))
    await eventually(watchers)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    waiting = asyncio.create_task(job.wait_for_result(**NEVER_POLL))
    await eventually(lambda: blocked_readers_of_events(server))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await queue.add("another", 7)  # an event, which ends the blocked read
    await eventually(lambda: not watchers())


async def test_a_cancelled_wait_does_not_disturb_the_others(queue, server, make_worker):
    job = await queue.add("echo", 7)
    waits = [asyncio.create_task(job.wait_for_result(**NEVER_POLL)) for _ in range(2)]
    await eventually(lambda: blocked_readers_of_events(server))
    waits[0].cancel()
    async with running(make_worker(echo, store_results=True)), asyncio.timeout(SOON_S):
        assert await waits[1] == 7
    assert waits[0].cancelled()


async def test_closing_the_queue_does_not_leave_a_wait_hanging(queue, server):
    job = await queue.add("echo", 7)
    waiting = asyncio.create_task(job.wait_for_result(timeout=0.3, poll_interval=0.05))
    await eventually(lambda: blocked_readers_of_events(server))
    await queue.close()
    async with asyncio.timeout(SOON_S):
        with pytest.raises((TimeoutError, RuntimeError)):
            await waiting
    await queue.close()


async def test_a_completed_job_whose_worker_stores_nothing_warns_and_gives_none(
    door, server, make_worker, gate
):
    job = await door.add("echo", 7)
    async with running(make_worker(gate.handler, store_results=False)):
        waiting = asyncio.create_task(door.wait_for_result(job.id, **NEVER_POLL))
        await eventually(lambda: blocked_readers_of_events(server))
        gate.opened.set()
        with pytest.warns(RuntimeWarning, match="store_results=True"):
            assert await waiting is None


async def test_a_stored_none_is_no_reason_to_warn(door, make_worker):
    async def returns_none(_):
        return None

    async with running(make_worker(returns_none, store_results=True)):
        job = await door.add("echo", 7)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert await door.wait_for_result(job.id, **NEVER_POLL) is None


async def test_a_job_that_completed_before_anybody_waited_is_told_though_nothing_was_stored(
    queue, make_worker
):
    async def handler(job):
        return 7

    job = await queue.add("send", 1)
    await run_until_idle(make_worker(handler, store_results=False), queue)
    with pytest.warns(RuntimeWarning, match="store_results=True"):
        assert await job.wait_for_result(timeout=SOON_S) is None


async def test_a_replayed_job_is_waited_for_anew(queue, make_worker):
    async def handler(job):
        if not is_mended:
            raise UnrecoverableError(job.name)
        return "mended"

    is_mended = False
    job = await queue.add("send", 1)
    async with running(make_worker(handler, store_results=True)):
        with pytest.raises(JobFailedError):
            await job.wait_for_result(timeout=SOON_S)
        is_mended = True
        await queue.replay_dlq()
        assert await job.wait_for_result(timeout=SOON_S) == "mended"
