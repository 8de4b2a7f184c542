"""`QueueEvents`: what is told, from where on, and that nothing is missed."""

import asyncio
import dataclasses

import pytest

from chasquimq import ConnectionFailedError, Queue, QueueEvent, QueueEvents
from chasquimq.testing import run_until_idle, running
from tests.api.conftest import NOWHERE
from tests.support.eventually import eventually

SOON_S = 8


@pytest.fixture
async def watch(server, queue_name):
    """Watch this test's queue; closed in the end."""
    watchers = []

    def make(**options):
        watchers.append(QueueEvents(queue_name, redis_url=server.url, **options))
        return watchers[-1]

    yield make
    for each in watchers:
        await each.close()


async def some(events, count):
    async with asyncio.timeout(SOON_S):
        return [await anext(events) for _ in range(count)]


async def test_from_0_everything_that_is_kept_is_told(watch, queue):
    jobs = await queue.add_bulk([{"name": "send", "data": number} for number in range(250)])
    told = await some(watch(last_event_id="0"), 250)
    assert [event.job_id for event in told] == [job.id for job in jobs]


async def test_from_a_dollar_nothing_before_and_everything_after_ready_is_told(watch, queue):
    await queue.add("before", 0)
    events = watch()
    await events.wait_until_ready()
    job = await queue.add("after", 1)
    [event] = await some(events, 1)
    assert (event.name, event.job_id, event.job_name) == ("waiting", job.id, "after")


async def test_nothing_is_missed_on_a_queue_that_has_no_events_yet(watch, queue):
    events = watch(block_ms=1)
    await events.wait_until_ready()
    for number in range(20):
        job = await queue.add("send", number)
        [event] = await some(events, 1)
        assert event.job_id == job.id


async def test_entering_the_context_makes_ready(watch, queue):
    async with watch() as events:
        job = await queue.add("send", 1)
        assert (await anext(events)).job_id == job.id
    assert [event async for event in events] == []


async def test_reading_goes_on_after_the_id_of_any_event(watch, queue):
    jobs = await queue.add_bulk([{"name": "send", "data": number} for number in range(3)])
    first = await anext(watch(last_event_id="0"))
    told = await some(watch(last_event_id=first.event_id), 2)
    assert [event.job_id for event in told] == [job.id for job in jobs[1:]]


async def test_the_events_of_a_job_that_fails_once_and_then_succeeds(watch, queue, make_worker):
    async def fails_once(job):
        if job.attempt == 1:
            message = "the line is busy"
            raise ConnectionError(message)

    job = await queue.add("call", 1, backoff=3)
    await run_until_idle(make_worker(fails_once), queue)
    told = {}
    for event in await some(watch(last_event_id="0"), 7):
        assert (event.job_id, event.job_name) == (job.id, "call")
        assert isinstance(event.fields.pop("ts"), int)
        told.setdefault(event.name, []).append(event.fields)

    for active in told["active"]:
        assert active.pop("wait_ms") >= 0
        assert active.pop("created_at_ms") == job.created_at_ms
    for ended in told["failed"] + told["completed"]:
        assert ended.pop("duration_us") > 0
    assert told == {
        "waiting": [{}, {}],
        "active": [{"attempt": 1}, {"attempt": 2}],
        "failed": [{"attempt": 1, "reason": "the line is busy"}],
        "retry-scheduled": [{"attempt": 2, "backoff_ms": 3}],
        "completed": [{"attempt": 2}],
    }


async def test_a_dead_job_a_delayed_one_and_an_empty_queue_are_told(watch, queue, make_worker):
    async def fails(_):
        raise ValueError

    events = watch()
    await events.wait_until_ready()
    delayed = await queue.add("later", 1, delay_ms=60_000)
    dead = await queue.add("send", 1, attempts=1)
    told = {}
    async with running(make_worker(fails, read_block_ms=1)), asyncio.timeout(SOON_S):
        async for event in events:
            told[event.name] = event
            if {"drained", "dlq"} <= told.keys():
                break
    assert told["delayed"].job_id == delayed.id
    assert told["delayed"].fields["delay_ms"] == 60_000
    assert told["dlq"].job_id == dead.id
    assert told["dlq"].fields["reason"] == "retries_exhausted"
    assert told["dlq"].fields["attempt"] == 1
    assert told["drained"].job_id is None, "it concerns the queue"
    assert told["drained"].job_name == ""


async def test_a_worker_that_tells_no_events_writes_none(watch, server, queue_name, make_worker):
    async def handler(_):
        return None

    async with Queue(queue_name, redis_url=server.url, events_enabled=False) as quiet:
        await quiet.add("send", 1)
        await quiet.add("send", 1, delay_ms=1)
        await run_until_idle(make_worker(handler, events_enabled=False), quiet)
    assert server.client().exists(f"{{chasqui:{queue_name}}}:events") == 0


async def test_documented_numbers_are_ints_and_what_is_not_a_number_stays_text(
    watch, server, queue_name
):
    numbers = ("attempt", "backoff_ms", "delay_ms", "duration_us", "ts")
    client, key = server.client(), f"{{chasqui:{queue_name}}}:events"
    client.xadd(key, {"e": "new-kind", "id": "j1", "n": "send"} | dict.fromkeys(numbers, "7"))
    client.xadd(key, {"e": "completed", "id": "", "ts": "soon", "extra": "9"})
    known, odd = await some(watch(last_event_id="0"), 2)
    assert known == QueueEvent("new-kind", "j1", "send", dict.fromkeys(numbers, 7))
    assert odd == QueueEvent("completed", None, "", {"ts": "soon", "extra": "9"})


def test_an_event_cannot_be_changed():
    event = QueueEvent("completed", "j1", "send", {})
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.name = "failed"


async def test_close_ends_an_iteration_that_waits_and_one_that_begins_later(watch, server):
    events = watch()
    iterating = asyncio.create_task(anext(events, "ended"))
    await eventually(lambda: [c for c in server.client().client_list() if c["cmd"] == "xread"])
    async with asyncio.timeout(SOON_S):
        await events.close()
        assert await iterating == "ended"
        await events.close()
        assert [event async for event in events] == []


async def test_a_server_that_was_never_there_is_an_error_not_a_long_silence():
    events = QueueEvents("emails", redis_url=NOWHERE)
    with pytest.raises(ConnectionFailedError):
        await anext(events)
    with pytest.raises(ConnectionFailedError):
        await events.wait_until_ready()


async def test_a_broken_connection_keeps_its_place(watch, server, queue):
    events = watch()
    await events.wait_until_ready()
    told, expected = [], []

    async def listen():
        async for event in events:
            told.append(event)  # noqa: PERF401 -- watched while it grows

    listening = asyncio.create_task(listen())
    for number in range(3):
        expected.append((await queue.add("send", number)).id)
        await eventually(lambda: job_ids(told) == expected)
        await eventually(lambda: kill_readers_of_events(server))
        expected.append((await queue.add("send", number)).id)
    await eventually(lambda: job_ids(told) == expected)
    await events.close()
    async with asyncio.timeout(SOON_S):
        await listening


def job_ids(told):
    return [event.job_id for event in told]


def kill_readers_of_events(server):
    client = server.client()
    readers = [each for each in client.client_list() if each["cmd"] == "xread"]
    for each in readers:
        client.client_kill_filter(_id=each["id"])
    return readers


async def test_a_restarted_server_is_waited_for(start_server, queue_name):
    server = start_server()
    async with (
        Queue(queue_name, redis_url=server.url) as queue,
        QueueEvents(queue_name, redis_url=server.url) as events,
    ):
        await queue.add("send", 1)
        assert (await anext(events)).job_name == "send"
        server.kill()
        waiting = asyncio.create_task(anext(events))
        server.restart()
        job = await queue.add("again", 1)
        async with asyncio.timeout(SOON_S):
            assert (await waiting).job_id == job.id
