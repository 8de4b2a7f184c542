"""Faults count when they were done, not when they were ordered: on real processes and a server."""

import asyncio
import random
import threading

import pytest
import redis

from chaos import stage
from chaos.faults import FAULTS
from chaos.fleet import Fleet, cast
from chaos.history import Died, Scroll, Starved, read_all
from chaos.options import Options
from chaos.scene import FutileError, Scene
from chasquimq import Queue
from chasquimq.wire.keys import QueueKeys
from tests.support.eventually import eventually_sync

pytestmark = [
    pytest.mark.xdist_group("chaos"),
    pytest.mark.timeout(120),
    pytest.mark.servers("valkey", "redis-8.6"),
]

DATA = {"takes_ms": 5, "fails": 0, "ends": "ok", "returns": True, "budget": 3, "call": "p/1"}
ORDERED = ("kill-after-read", "kill-in-handler", "kill-before-ack", "kill-in-flush")
TRAPS = ("flush-lost", "flush-torn", "flush-unheard")
PLAYS = {fault.name: fault.play for fault in FAULTS}


class Theatre:
    """One worker behind its proxy, a queue, and faults to be played on them."""

    def __init__(self, server, folder, part):
        self.folder = folder
        self.scroll = Scroll(folder / "test.jsonl")
        self.stage = stage.build("single", server.name, b"")
        parts = [each for each in cast(Options()) if each.name == part]
        self.fleet = Fleet(parts, self.stage.url_of, queue="q", folder=folder, seed=1)
        self.scene = Scene(self.stage, self.fleet, QueueKeys("q"), self.scroll, threading.Event())
        [self.worker] = self.fleet
        self.worker.start(may_be_skewed=False)
        eventually_sync(lambda: self.stage.is_read_by(QueueKeys("q").stream, 1), 30)

    def close(self):
        self.fleet.close(self.scroll)
        self.stage.close()
        self.scroll.close()

    def play(self, fault):
        return PLAYS[fault](self.scene, random.Random(1))  # noqa: S311

    def add(self):
        async def add():
            async with Queue("q", redis_url=self.stage.url) as queue:
                await queue.add("quick", DATA)

        asyncio.run(add())

    def is_drained(self):
        return self.stage.run("XLEN", QueueKeys("q").stream) == 0

    def deaths(self):
        return [each for each in read_all(self.folder) if isinstance(each, Died)]


@pytest.fixture
def theatre(server, tmp_path, monkeypatch, request):
    monkeypatch.setattr("chaos.scene.ORDER_S", 1.0)
    monkeypatch.setattr("chaos.faults.workers.ORDER_S", 1.0)
    monkeypatch.setattr("chaos.faults.network.ORDER_S", 1.0)
    made = Theatre(server, tmp_path, getattr(request, "param", "worker-1"))
    yield made
    made.close()


def test_a_kill_at_a_step_that_is_not_reached_is_futile_and_called_off(theatre):
    for fault in (*ORDERED, *TRAPS):
        with pytest.raises(FutileError):
            theatre.play(fault)
    theatre.add()
    eventually_sync(theatre.is_drained)
    assert theatre.worker.is_alive
    assert theatre.deaths() == []


@pytest.mark.parametrize("fault", [*ORDERED, *TRAPS])
def test_a_kill_at_a_step_is_done_when_the_worker_died_there(theatre, fault):
    threading.Timer(0.2, theatre.add).start()
    assert theatre.play(fault) == "worker-1.1"
    assert theatre.worker.wait(10)
    [death] = theatre.deaths()
    assert death.step == (fault.removeprefix("kill-") if fault in ORDERED else "")


@pytest.mark.parametrize("fault", ["kill-worker", "freeze-worker", "block-loop", "stop-worker"])
def test_what_is_done_to_a_worker_that_is_gone_is_futile(theatre, fault):
    theatre.worker.kill(theatre.scroll)
    with pytest.raises(FutileError):
        theatre.play(fault)


def test_a_blocked_loop_is_written_down_by_who_is_blocked(theatre):
    assert theatre.play("block-loop").startswith("worker-1.1 for ")
    blocked = [each for each in read_all(theatre.folder) if type(each).__name__ == "Blocked"]
    assert [each.who for each in blocked] == ["worker-1.1"]


def test_a_server_without_memory_gets_it_back_however_the_fault_ends(theatre, monkeypatch):
    def broken_off(scene, seconds):
        assert scene.stage.client().config_get("maxmemory") == {"maxmemory": "1"}
        message = "the server did not answer"
        raise redis.TimeoutError(message)

    monkeypatch.setattr(Scene, "last", broken_off)
    with pytest.raises(redis.TimeoutError):
        theatre.play("exhaust-memory")
    assert theatre.stage.client().config_get("maxmemory") == {"maxmemory": "0"}
    assert [each for each in read_all(theatre.folder) if isinstance(each, Starved)]


@pytest.mark.parametrize("fault", ["lose-request", "truncate-answer"])
def test_a_cut_at_a_request_is_done_when_such_a_request_was_cut(theatre, fault, monkeypatch):
    monkeypatch.setattr("chaos.faults.network._SENT", {"worker": {"retry": (b"no such thing",)}})
    with pytest.raises(FutileError):
        theatre.play(fault)
    connections = theatre.stage.proxies["worker-1"].connections
    monkeypatch.setattr("chaos.faults.network._SENT", {"worker": {"read": (b"XREADGROUP",)}})
    adding = threading.Timer(0.2, theatre.add)  # an idle worker asks seldom
    adding.start()
    assert theatre.play(fault).startswith("worker-1.1 read")
    eventually_sync(lambda: theatre.stage.proxies["worker-1"].connections > connections)
    adding.join()
