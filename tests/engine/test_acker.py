"""The acker on a real server that refuses what it is told."""

import asyncio
import logging
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from chasquimq.broker.blocking import BlockingConnection
from chasquimq.broker.connection import Connection
from chasquimq.broker.options import ConnectionOptions
from chasquimq.broker.stream import Completion
from chasquimq.broker.url import parse_url
from chasquimq.clock import ManualClock
from chasquimq.config import ConsumerConfig
from chasquimq.engine.acker import Acker
from chasquimq.engine.leases import Leases
from chasquimq.engine.portions import SETTLED_BYTES
from chasquimq.engine.teller import Teller
from tests.support.eventually import eventually
from tests.support.scene import Scene

COMPLETION = Completion(b"1-1", "j", "n", 1, 10)


async def test_what_cannot_be_acknowledged_is_let_go_and_has_had_its_run(scene, caplog):
    scene.client.set(scene.keys.stream, "not a stream")
    async with acking(scene) as (acker, leases):
        leases.take(b"1-1")
        acker.gatherer.add(COMPLETION)
        with caplog.at_level(logging.ERROR, "chasquimq.engine"):
            acker.gatherer.start()
            await acker.gatherer.end()
        assert "could not be acknowledged and will run again" in caplog.text
        assert leases.held() == set()
        assert leases.had_its_run(b"1-1")
        leases.take(b"1-1")  # it came back, and runs again
        assert not leases.had_its_run(b"1-1")


@pytest.mark.parametrize("error", [RuntimeError("a slip"), asyncio.CancelledError()])
async def test_what_a_slip_kept_from_being_acknowledged_is_let_go_and_has_had_its_run(
    scene, caplog, monkeypatch, error
):
    async def slip(*_):
        raise error

    monkeypatch.setattr(Acker, "_complete", slip)
    async with acking(scene) as (acker, leases):
        leases.take(b"1-1")
        acker.gatherer.add(COMPLETION)
        acker.gatherer.start()
        await acker.gatherer.end()
        assert leases.held() == set()
        assert leases.had_its_run(b"1-1")
    assert "acker: a batch of 1 was not written" in caplog.text


async def test_large_values_are_kept_by_a_server_that_takes_them_one_by_one_only(
    server, start_server, queue_name
):
    """All of a batch in one argument would be refused again and again, small ones with it."""
    scene = Scene(start_server(None, "--proto-max-bulk-len", "1mb"), queue_name)
    jobs = await scene.queue.add_bulk([{"name": "n", "data": n} for n in range(20)])
    async with scene.working(lambda _: "x" * 200_000, store_results=True):
        await eventually(scene.is_empty)
    values = await scene.queue.get_job_result_bulk([job.id for job in jobs])
    await scene.queue.close()
    assert {len(value) for value in values} == {200_000}


async def test_what_is_left_when_a_portion_is_broken_off_is_let_go_too(scene, monkeypatch):
    async def cancelled(*_):
        raise asyncio.CancelledError

    monkeypatch.setattr(Acker, "_complete", cancelled)
    async with acking(scene) as (acker, leases):
        for entry_id in (b"1-1", b"1-2"):
            leases.take(entry_id)
            acker.gatherer.add(Completion(entry_id, "j", "n", 1, 10, b"x" * SETTLED_BYTES))
        acker.gatherer.start()
        await acker.gatherer.end()
        assert leases.held() == set()
        assert [leases.had_its_run(each) for each in (b"1-1", b"1-2")] == [True, True]


async def test_answers_that_are_fewer_than_the_jobs_settle_none(scene, caplog, monkeypatch):
    async with acking(scene) as (acker, leases):
        real = acker._connection.run  # noqa: SLF001 -- a server that only looks like one

        async def short(call):
            return await real(replace(call, parse=lambda _: call.parse([[]])))

        await acker._connection.ready()  # noqa: SLF001
        monkeypatch.setattr(acker._connection, "run", short)  # noqa: SLF001
        leases.take(b"1-1")
        acker.gatherer.add(COMPLETION)
        acker.gatherer.start()
        await acker.gatherer.end()
        assert leases.had_its_run(b"1-1")
    assert "0 answers about 1 jobs" in caplog.text


@asynccontextmanager
async def acking(scene):
    """An acker, and the leases it lets go."""
    target, options = parse_url(scene.server.socket_url), ConnectionOptions()
    connection = Connection(target, options, slot_key=scene.keys.tag)
    blocking = BlockingConnection(target, options, slot_key=scene.keys.tag)
    clock, config = ManualClock(), ConsumerConfig(queue_name=scene.name)
    leases = Leases(
        blocking, scene.keys, group="default", consumer="c-1", lease_ms=300, clock=clock
    )
    teller = Teller(connection, scene.keys, config, clock)
    acker = Acker(connection, scene.keys, config, leases=leases, teller=teller, clock=clock)
    yield acker, leases
    await connection.close()
    blocking.close()
