"""Listeners of workers and of `QueueEvents`: told after the fact, in nobody's way."""

import asyncio
import logging

import pytest

from chasquimq import ConnectionFailedError, QueueEvents, ShutdownError, Worker
from chasquimq.testing import running
from chasquimq.worker import EVENTS
from tests.api.conftest import NOWHERE
from tests.support.eventually import eventually


async def quick(job):
    return job.data


def record(worker, *events):
    told = []

    def listen(event):
        worker.on(event, lambda *arguments: told.append((event, *arguments)))

    for event in events or EVENTS:
        listen(event)
    return told


def names(told):
    return [event for event, *_ in told]


async def test_a_worker_tells_the_life_of_a_job_and_its_own(queue, make_worker):
    worker = make_worker(quick, store_results=True, read_block_ms=10)
    told = record(worker)
    async with running(worker):
        job = await queue.add("send", {"k": 1})
        await eventually(lambda: "drained" in names(told))
    assert names(told) == ["ready", "active", "completed", "drained", "closing", "closed"]
    active, completed = told[1:3]
    assert (active[1].id, active[2]) == (job.id, "")
    assert (completed[1].id, completed[2], completed[3]) == (job.id, {"k": 1}, "active")
    assert told[4] == ("closing", "close was called")


async def test_failed_brings_the_error_itself_once_for_each_run(queue, make_worker):
    async def handler(job):
        message = f"run {job.attempt}"
        raise LookupError(message)

    worker = make_worker(handler)
    told = record(worker, "failed", "completed")
    async with running(worker):
        await queue.add("send", 1, attempts=2)
        await eventually(lambda: len(told) == 2)
    assert [(event, job.attempt, str(error)) for event, job, error, _ in told] == [
        ("failed", 1, "run 1"),
        ("failed", 2, "run 2"),
    ]
    assert all(type(error) is LookupError for _, _, error, _ in told)


async def test_progress_is_told_with_the_job_and_the_value(queue, make_worker):
    async def handler(job):
        await job.update_progress(40)

    worker = make_worker(handler)
    told = record(worker, "progress")
    async with running(worker):
        job = await queue.add("send", 1)
        await eventually(lambda: told)
    assert [(each.id, value) for _, each, value in told] == [(job.id, 40)]


async def test_asynchronous_listeners_are_awaited_before_run_returns(queue, make_worker):
    done = []

    async def listener(job, result, previous):
        await asyncio.sleep(0.05)
        done.append(result)

    async def closed():
        await asyncio.sleep(0)
        done.append("closed")

    worker = make_worker(quick)
    worker.on("completed", listener)
    worker.on("closed", closed)
    async with running(worker):
        await queue.add("send", 1)
        await eventually(lambda: worker._crew.running == 0 and worker._listeners._tasks)  # noqa: SLF001
    assert sorted(map(str, done)) == ["1", "closed"]


async def test_a_listener_that_never_ends_is_cut_off_at_the_deadline(queue, make_worker, caplog):
    begun = asyncio.Event()

    async def listener(job, previous):
        begun.set()
        await asyncio.Event().wait()

    worker = make_worker(quick, shutdown_deadline_secs=0.05)
    worker.on("active", listener)
    with caplog.at_level(logging.WARNING, "chasquimq.listeners"):
        async with running(worker):
            await queue.add("send", 1)
            await asyncio.wait_for(begun.wait(), 10)
    assert "were cancelled" in caplog.text


@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_a_listener_that_fails_is_logged_and_harms_nobody(queue, make_worker, caplog, kind):
    def plain(*arguments):
        message = "listener broke"
        raise RuntimeError(message)

    async def asynchronous(*arguments):
        plain()

    worker = make_worker(quick, store_results=True)
    for event in ("ready", "active", "completed", "closed"):
        worker.on(event, plain if kind == "plain" else asynchronous)
    told = record(worker, "completed")
    with caplog.at_level(logging.ERROR, "chasquimq.listeners"):
        async with running(worker):
            job = await queue.add("send", 5)
            assert await job.wait_for_result() == 5
    assert names(told) == ["completed"]
    assert caplog.text.count("listener broke") >= 4


async def test_once_is_once_and_off_takes_back(queue, make_worker):
    worker = make_worker(quick)
    told = []

    def listener(*arguments):
        told.append("every")

    worker.once("completed", lambda *_: told.append("first"))
    worker.on("completed", listener)
    assert worker.listener_count("completed") == 2
    async with running(worker):
        for number in range(2):
            await queue.add("send", number)
        await eventually(lambda: told.count("every") == 2)
        assert worker.listener_count("completed") == 1
        assert worker.off("completed", listener)
        assert not worker.remove_listener("completed", listener)
    assert sorted(told) == ["every", "every", "first"]


def test_an_unknown_event_and_something_that_is_no_function_are_refused():
    worker = Worker("emails", quick, redis_url=NOWHERE)
    with pytest.raises(ValueError, match=r"no event 'complete'.*completed"):
        worker.on("complete", print)
    with pytest.raises(TypeError, match="function"):
        worker.on("completed", "print")
    with pytest.raises(ValueError, match="no event 'finished'"):
        QueueEvents("emails", redis_url=NOWHERE).on("finished", print)


async def test_pauses_of_worker_and_queue_are_told(queue, make_worker, server):
    worker = make_worker(quick)
    told = record(worker, "paused", "resumed")
    async with running(worker):
        await worker.wait_until_ready()
        worker.pause()
        worker.pause()
        worker.resume()
        await eventually(lambda: len(told) == 2)
    assert names(told) == ["paused", "resumed"]


# --- ready


async def test_a_ready_worker_reads(queue, make_worker, queue_name):
    worker = make_worker(quick)
    waiting = asyncio.create_task(worker.wait_until_ready())
    await asyncio.sleep(0)
    assert not waiting.done()
    async with running(worker):
        await asyncio.wait_for(waiting, 10)
        await asyncio.wait_for(worker.wait_until_ready(), 10)


async def test_a_worker_that_cannot_start_says_so_to_whoever_waits_for_it():
    worker = Worker("emails", quick, redis_url=NOWHERE, handle_signals=False)
    told = record(worker, "error", "closed")
    run = asyncio.create_task(worker.run())
    with pytest.raises(ConnectionFailedError):
        await worker.wait_until_ready()
    with pytest.raises(ConnectionFailedError) as failed:
        await run
    assert told == [("error", failed.value), ("closed",)]
    with pytest.raises(ConnectionFailedError):
        await worker.wait_until_ready()


async def test_a_worker_that_was_closed_is_never_ready(make_worker):
    worker = make_worker(quick)
    await worker.close()
    with pytest.raises(ShutdownError, match="closed before it was ready"):
        await worker.wait_until_ready()


# --- QueueEvents


@pytest.fixture
async def watcher(server, queue_name):
    events = QueueEvents(queue_name, redis_url=server.url)
    await events.wait_until_ready()
    run = asyncio.create_task(events.run())
    yield events
    await events.close()
    await asyncio.wait_for(run, 10)


async def test_queue_events_call_listeners_by_name_and_by_job(watcher, queue):
    told = []
    job = None

    async def slow(event):
        await asyncio.sleep(0)
        told.append(("async", event.job_id))

    watcher.on("waiting", lambda event: told.append((event.name, event.job_id)))
    watcher.once("waiting", slow)
    watcher.on("waiting:mine", lambda event: told.append(("mine", event.job_id)))
    job = await queue.add("send", 1)
    await queue.add("send", 2, job_id="mine")
    await eventually(lambda: len(told) == 4)
    assert sorted(told) == sorted(
        [("waiting", job.id), ("async", job.id), ("waiting", "mine"), ("mine", "mine")]
    )


async def test_a_dead_letter_is_told_under_both_names(watcher, queue, make_worker):
    async def handler(job):
        message = "no"
        raise RuntimeError(message)

    told = []
    watcher.on("dlq", lambda event: told.append(("dlq", event.job_id)))
    watcher.on("retries-exhausted", lambda event: told.append(("exhausted", event.job_id)))
    async with running(make_worker(handler)):
        job = await queue.add("send", 1, attempts=1)
        await eventually(lambda: len(told) == 2)
    assert told == [("dlq", job.id), ("exhausted", job.id)]


async def test_events_of_a_newer_release_are_told_as_unknown(watcher, queue, server, queue_name):
    told = []
    watcher.on("unknown", lambda event: told.append((event.name, event.fields)))
    server.client().xadd(
        "{chasqui:" + queue_name + "}:events", {"e": "teleported", "id": "j", "ts": 1}
    )
    await eventually(lambda: told)
    assert told == [("teleported", {"ts": 1})]


async def test_a_listener_that_fails_does_not_end_the_others(watcher, queue, caplog):
    told = []

    def broken(event):
        raise RuntimeError(event.name)

    watcher.on("waiting", broken)
    watcher.on("waiting", lambda event: told.append(event.job_id))
    await queue.add("send", 1)
    await queue.add("send", 2)
    await eventually(lambda: len(told) == 2)
    assert watcher.off("waiting", broken)
