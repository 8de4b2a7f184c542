"""`Promoter` and `Scheduler` in processes without a worker."""

import asyncio
import math
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from chasquimq import ConfigError, ConnectionFailedError
from chasquimq.engine import (
    Consumer,
    Producer,
    Promoter,
    PromoterConfig,
    RepeatableSpec,
    RepeatPattern,
    Scheduler,
    SchedulerConfig,
)
from chasquimq.metrics import LockOutcome, PromoterTick
from chasquimq.wire.keys import QueueKeys
from tests.support.eventually import eventually
from tests.support.scene import soon
from tests.support.sink import RecordingSink

NOWHERE = "redis://127.0.0.1:1"


@pytest.fixture
async def producer(server, queue_name):
    async with Producer(server.url, queue_name) as producer:
        yield producer


@pytest.fixture
def client(server):
    return server.client()


@pytest.fixture
def keys(queue_name):
    return QueueKeys(queue_name)


@asynccontextmanager
async def running(leader):
    working = asyncio.create_task(leader.run())
    try:
        yield leader
    finally:
        leader.shutdown()
        await soon(working)


async def test_a_promoter_moves_what_is_due_and_reports(producer, server, queue_name, client, keys):
    sink = RecordingSink()
    config = PromoterConfig(queue_name=queue_name, metrics=sink)
    await producer.add_in_bulk(5, [b"1", b"2"])
    await producer.add_in(60_000, b"3")
    async with running(Promoter.from_config(server.url, config)):
        assert await sink.next(LockOutcome) is LockOutcome.ACQUIRED
        promoted = 0
        while promoted < 2:
            promoted += (await sink.next(PromoterTick)).promoted
        assert client.get(keys.promoter_lock).decode() == config.holder_id
    assert (client.xlen(keys.stream), client.zcard(keys.delayed)) == (2, 1)
    assert client.get(keys.promoter_lock) is None


async def test_a_scheduler_fires_what_recurs(producer, server, queue_name, client, keys):
    spec = RepeatableSpec(
        job_name="tick", pattern=RepeatPattern.every(timedelta(milliseconds=100)), payload=b"1"
    )
    await producer.upsert_repeatable(spec)
    async with running(Scheduler(server.url, queue_name, holder_id="me")) as scheduler:
        await eventually(lambda: client.xlen(keys.stream) >= 2)
        assert client.get(keys.scheduler_lock) == b"me"
        assert scheduler.is_running
    assert client.get(keys.scheduler_lock) is None


@pytest.mark.parametrize("kind", [Promoter, Scheduler])
async def test_one_leads_and_another_follows_when_it_stops(kind, server, queue_name, client, keys):
    lock = keys.promoter_lock if kind is Promoter else keys.scheduler_lock
    second = kind(server.url, queue_name, holder_id="second")
    async with running(kind(server.url, queue_name, holder_id="first")):
        await eventually(lambda: client.get(lock) == b"first")
        working = asyncio.create_task(second.run())
        await eventually(lambda: second.is_running)
    await eventually(lambda: client.get(lock) == b"second")
    second.shutdown()
    await soon(working)


@pytest.mark.parametrize("kind", [Promoter, Scheduler])
async def test_an_event_stops_it_and_a_cancellation_too(kind, server, queue_name, client, keys):
    lock = keys.promoter_lock if kind is Promoter else keys.scheduler_lock
    stop = asyncio.Event()
    working = asyncio.create_task(kind(server.url, queue_name).run(stop))
    await eventually(lambda: client.get(lock))
    stop.set()
    await soon(working)
    assert client.get(lock) is None

    working = asyncio.create_task(kind(server.url, queue_name).run())
    await eventually(lambda: client.get(lock))
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(working)
    assert client.get(lock) is None


@pytest.mark.parametrize("kind", [Promoter, Scheduler])
async def test_it_leaves_a_lock_that_another_holds(kind, server, queue_name, client, keys):
    lock = keys.promoter_lock if kind is Promoter else keys.scheduler_lock
    client.set(lock, "another", ex=60)
    async with running(kind(server.url, queue_name)) as leader:
        await eventually(lambda: leader.is_running)
    assert client.get(lock) == b"another"


@pytest.mark.parametrize("kind", [Promoter, Scheduler])
async def test_no_server_at_the_start_is_an_error(kind):
    with pytest.raises(ConnectionFailedError):
        await soon(kind(NOWHERE, "emails", reconnect_max_attempts=1).run())


@pytest.mark.parametrize("kind", [Promoter, Scheduler])
async def test_it_stops_soon_though_the_server_does_not_answer(kind, start_server, queue_name):
    server = start_server()
    lock = QueueKeys(queue_name).promoter_lock
    if kind is Scheduler:
        lock = QueueKeys(queue_name).scheduler_lock
    leader = kind(server.url, queue_name)
    working = asyncio.create_task(leader.run())
    await eventually(lambda: server.client().get(lock))
    server.pause()
    try:
        leader.shutdown()
        await soon(working)
    finally:
        server.resume()


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (Promoter, SchedulerConfig()),
        (Scheduler, PromoterConfig()),
        (Consumer, "emails"),
        (Producer, "emails"),
    ],
    ids=lambda each: getattr(each, "__name__", type(each).__name__),
)
def test_a_config_of_another_kind_is_refused(kind, wrong):
    with pytest.raises(TypeError, match=f"config must be a {kind.__name__}Config, got "):
        kind.from_config(NOWHERE, wrong)


def test_the_arguments_are_the_fields_of_the_config():
    scheduler = Scheduler(
        NOWHERE, "emails", tick_interval_ms=timedelta(seconds=2), batch=3, max_stream_len=4,
        lock_ttl_secs=6, holder_id="me",
    )  # fmt: skip
    assert scheduler.config == SchedulerConfig(
        queue_name="emails", tick_interval_ms=2_000, batch=3, max_stream_len=4, lock_ttl_secs=6,
        holder_id="me",
    )  # fmt: skip
    promoter = Promoter(
        NOWHERE, "emails", poll_interval_ms=50, promote_batch=3, max_stream_len=4,
        lock_ttl_secs=timedelta(seconds=6), holder_id="me",
    )  # fmt: skip
    assert promoter.config == PromoterConfig(
        queue_name="emails", poll_interval_ms=50, promote_batch=3, max_stream_len=4,
        lock_ttl_secs=6, holder_id="me",
    )  # fmt: skip
    assert (promoter.queue_name, promoter.is_running) == ("emails", False)
    assert repr(promoter) == "<Promoter emails idle at redis://127.0.0.1:1>"
    with pytest.raises(ConfigError, match="batch must be 1 or more"):
        Scheduler(NOWHERE, "emails", batch=0)


@pytest.mark.parametrize("make", [Promoter, Scheduler])
@pytest.mark.parametrize("times", [1, 2, 3, 4, math.inf])
async def test_a_leader_that_is_cancelled_has_ended_when_it_says_so_however_often_that_is(
    start_server, queue_name, keys, make, times
):
    """A bell that stayed open would take rings that are meant for another."""
    server = start_server()
    client = server.client()
    lock = keys.promoter_lock if make is Promoter else keys.scheduler_lock

    def is_listening():
        return any(each["cmd"] == "blpop" for each in client.client_list())

    before = asyncio.all_tasks()
    leader = make(server.url, queue_name)
    working = asyncio.create_task(leader.run(asyncio.Event()))
    await eventually(is_listening)
    while not working.done() and times:
        working.cancel()
        await asyncio.sleep(0)
        times -= 1
    await soon(asyncio.wait([working]))
    assert asyncio.all_tasks() == before
    assert (working.cancelled(), leader.is_running) == (True, False)
    assert client.get(lock) is None
    await eventually(lambda: not is_listening())


@pytest.mark.parametrize("make", [Promoter, Scheduler])
async def test_one_that_is_cancelled_twice_ends_soon_though_the_server_does_not_answer(
    start_server, queue_name, keys, make
):
    server = start_server()
    lock = keys.promoter_lock if make is Promoter else keys.scheduler_lock
    before = asyncio.all_tasks()
    working = asyncio.create_task(make(server.url, queue_name).run())
    await eventually(lambda: server.client().get(lock))
    server.pause()
    try:
        for _ in range(2):
            working.cancel()
            await asyncio.sleep(0)
        await soon(asyncio.wait([working]))
        assert asyncio.all_tasks() == before
    finally:
        server.resume()
    assert working.cancelled()
