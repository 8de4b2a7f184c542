"""Faults count when they were done, not when they were ordered: on real processes and a server."""

import asyncio
import random
import threading
from collections import Counter

import pytest
import redis

from chaos import stage
from chaos.faults import FAULTS
from chaos.faults.wrong_types import KINDS, disguise
from chaos.fleet import Fleet, cast
from chaos.history import Added, Asked, Burst, Cut, Died, Scroll, Starved, Withdrawn, read_all
from chaos.options import Options
from chaos.scene import FutileError, Scene
from chasquimq import Queue, RepeatPattern
from chasquimq.broker.ring import SLOTS
from chasquimq.wire.codec import unpack
from chasquimq.wire.envelope import decode
from chasquimq.wire.keys import QueueKeys
from chasquimq.wire.member import decode_member
from tests.support.disguise import bring_back, hide
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
    """One worker, or a producer, behind its proxy, a queue, and faults to be played on them."""

    def __init__(self, server, folder, part):
        self.folder = folder
        self.scroll = Scroll(folder / "test.jsonl")
        self.stage = stage.build("single", server.name, b"")
        parts = [each for each in cast(Options()) if each.name == part]
        self.fleet = Fleet(parts, self.stage.url_of, queue="q", folder=folder, seed=1)
        self.scene = Scene(self.stage, self.fleet, QueueKeys("q"), self.scroll, threading.Event())
        [self.worker] = self.fleet
        self.worker.start(may_be_skewed=False)
        if part.startswith("worker"):
            eventually_sync(lambda: self.stage.is_read_by(QueueKeys("q").stream, 1), 30)
        else:
            eventually_sync(lambda: self.stage.run("XLEN", QueueKeys("q").stream), 30)

    def close(self):
        self.fleet.close(self.scroll)
        self.stage.close()
        self.scroll.close()

    def play(self, fault, seed=1):
        return PLAYS[fault](self.scene, random.Random(seed))  # noqa: S311

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


def test_memory_is_filled_to_the_last_and_is_free_again(theatre, monkeypatch):
    client, refused = theatre.stage.client(), []

    def write_on():
        for number in range(100):
            client.set(f"more-{number}", "x" * 1_000)

    def look(scene, seconds):
        memory = client.info("memory")
        assert abs(memory["maxmemory"] - memory["used_memory"]) < 100_000
        with pytest.raises(redis.OutOfMemoryError):
            write_on()
        refused.append(seconds)
        scene.over.set()

    monkeypatch.setattr(Scene, "last", look)
    told = theatre.play("exhaust-memory", seed=3)
    assert int(told.partition(" KiB")[0]) > 0
    assert len(refused) == 1
    assert client.config_get("maxmemory") == {"maxmemory": "0"}
    assert client.keys("*ballast*") == []
    theatre.add()
    eventually_sync(theatre.is_drained)


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


def test_something_else_stands_at_a_key_of_each_kind_and_is_gone_again(theatre, monkeypatch):
    keys, client, seen = QueueKeys("q"), theatre.stage.client(), []

    async def add():
        async with Queue("q", redis_url=theatre.stage.url) as queue:
            options = {"data": DATA, "job_id": "j", "delay_ms": 3_600_000}
            await queue.add_bulk([{"name": "quick", **options}])
            await queue.upsert_repeatable_job("r", DATA, repeat=RepeatPattern.every(3_600_000))

    def last(scene, seconds):
        [key] = [key for key in client.scan_iter(match="{chasqui:q}*") if is_planted(key)]
        seen.append(key.decode().removeprefix("{chasqui:q}"))

    def is_planted(key):
        kind = client.type(key)
        held = client.get(key) if kind == b"string" else kind == b"list" and client.lindex(key, 0)
        return held == b"not what you think"

    asyncio.run(add())
    kept = [keys.delayed, keys.repeat, keys.dedup_marker("j"), keys.delayed_index("j")]
    kept += [*client.scan_iter(match="*:sent:*"), *client.scan_iter(match="*:repeat:spec:*")]
    before = {key: client.dump(key) for key in kept}
    assert len(before) == 6
    monkeypatch.setattr(Scene, "last", last)
    for kind in KINDS:
        told = disguise(theatre.scene, random.Random(1), [kind])  # noqa: S311
        assert told.startswith(f"{{chasqui:q}}{seen[-1]} for ")
    assert len(set(seen)) == len(KINDS)
    assert {key: client.dump(key) for key in kept} == before
    assert list(client.scan_iter(match="*:hidden")) == []
    theatre.add()
    eventually_sync(theatre.is_drained)


def test_where_there_is_no_key_of_a_kind_another_is_chosen(theatre, monkeypatch):
    monkeypatch.setattr(Scene, "last", lambda *_: None)
    chance = random.Random(1)  # noqa: S311
    for kind in ("sent", "dedup_marker", "result"):
        with pytest.raises(FutileError):
            disguise(theatre.scene, chance, [kind])
        assert disguise(theatre.scene, chance, [kind, "dlq"]).startswith("{chasqui:q}:dlq for ")


def test_what_was_written_over_or_deleted_meanwhile_is_not_undone(server, queue_name):
    client, keys = server.client(), QueueKeys(queue_name)
    key, run = keys.result("j"), client.execute_command
    for meanwhile in (lambda: client.set(key, "newer", ex=60), lambda: client.delete(key)):
        client.set(key, "older", ex=60)
        assert hide(run, keys, key)
        assert not hide(run, keys, key)
        meanwhile()
        expected = client.get(key)
        bring_back(run, key)
        assert (client.get(key), client.exists(key + b":hidden")) == (expected, 0)


def test_a_hidden_stream_is_brought_back_however_the_fault_ends(theatre, monkeypatch):
    def broken_off(scene, seconds):
        assert scene.stage.client().type(scene.keys.stream) == b"string"
        message = "the server did not answer"
        raise redis.TimeoutError(message)

    monkeypatch.setattr(Scene, "last", broken_off)
    with pytest.raises(redis.TimeoutError):
        disguise(theatre.scene, random.Random(1), ["stream"])  # noqa: S311
    assert theatre.stage.client().type(QueueKeys("q").stream) == b"stream"
    assert [each.why for each in read_all(theatre.folder) if isinstance(each, Cut)] == ["no stream"]


@pytest.mark.parametrize("theatre", ["producer-3"], indirect=True)
@pytest.mark.parametrize("size", [300, SLOTS + 100])
def test_a_burst_is_cut_while_it_is_under_way_and_each_of_its_jobs_is_added_once(
    theatre, monkeypatch, size
):
    monkeypatch.setattr("chaos.faults.network.burst_size", lambda _: size)
    monkeypatch.setattr("chaos.scene.ORDER_S", 20.0)
    assert theatre.play("cut-burst") == f"producer-3.1 amid {size}"
    theatre.fleet.close(theatre.scroll)  # once it has all its answers

    history, keys = read_all(theatre.folder), QueueKeys("q")
    [burst] = [each for each in history if isinstance(each, Burst)]
    assert burst.under_way >= size
    asked = {each.call for each in history if isinstance(each, Asked)}
    taken = {each.call for each in history if isinstance(each, Added) and each.is_taken}
    gone = {each.job_id for each in history if isinstance(each, Withdrawn) and each.is_gone}
    assert asked == {each.call for each in history if isinstance(each, Added)}
    entries = theatre.stage.run("XRANGE", keys.stream, "-", "+")
    stored = [decode(fields[b"d"]) for _, fields in entries]
    members = theatre.stage.run("ZRANGE", keys.delayed, 0, -1)
    stored += [decode(decode_member(each)[1]) for each in members]
    calls = Counter(unpack(each.packed_data)["call"] for each in stored)
    assert set(calls.values()) == {1}
    withdrawn = {e.call for e in history if isinstance(e, Added) and e.job_id in gone}
    assert set(calls) == asked - taken - withdrawn


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
