"""The relocator on a real server, with moves that succeed, fail, and find nothing to move."""

import logging

import pytest

from chasquimq.broker.blocking import BlockingConnection
from chasquimq.broker.call import call
from chasquimq.broker.connection import Connection
from chasquimq.broker.options import ConnectionOptions
from chasquimq.broker.url import parse_url
from chasquimq.clock import ManualClock
from chasquimq.config import ConsumerConfig
from chasquimq.engine.leases import Leases
from chasquimq.engine.relocator import Move, Relocator
from chasquimq.engine.teller import Teller


class Office:
    """A relocator, the leases it lets go, and what it reported as moved."""

    def __init__(self, scene):
        self.scene = scene
        self.moved = []
        target, options = parse_url(scene.server.socket_url), ConnectionOptions()
        self.connection = Connection(target, options, slot_key=scene.keys.tag)
        self.blocking = BlockingConnection(target, options, slot_key=scene.keys.tag)
        clock = ManualClock()
        self.leases = Leases(
            self.blocking, scene.keys, group="default", consumer="c-1", lease_ms=300, clock=clock
        )
        teller = Teller(self.connection, scene.keys, ConsumerConfig(queue_name=scene.name), clock)
        self.relocator = Relocator(
            self.connection, leases=self.leases, teller=teller, queue=scene.name, most=10
        )

    def add(self, name, *words):
        """Queue a move that counts how often it was carried out; one that cannot be if told so."""
        entry_id = name.encode()
        self.leases.take(entry_id)
        move = call(*words, read=bool)
        self.relocator.add(Move(entry_id, move, lambda: self.moved.append(name)))

    async def flush(self):
        self.relocator.gatherer.start()
        await self.relocator.gatherer.end()


@pytest.fixture
async def office(scene):
    office = Office(scene)
    yield office
    await office.connection.close()
    office.blocking.close()


async def test_what_moved_is_reported_and_what_was_settled_elsewhere_is_not(scene, office):
    key = scene.keys.outcome("a")
    scene.client.set(key, 1, ex=60)
    office.add("moves", "DEL", key)
    office.add("is gone", "DEL", key)
    await office.flush()
    assert office.moved == ["moves"]
    assert office.leases.held() == set()


async def test_a_move_that_is_refused_does_not_hide_those_that_moved_with_it(scene, office, caplog):
    keys = [scene.keys.outcome(name) for name in "abc"]
    for key in keys:
        scene.client.set(key, 1, ex=60)
    office.add("first", "DEL", keys[0])
    office.add("refused", "LPUSH", keys[1], "x")
    office.add("last", "DEL", keys[2])
    with caplog.at_level(logging.ERROR, "chasquimq.engine"):
        await office.flush()
    assert office.moved == ["first", "last"]
    assert office.leases.held() == set()
    (record,) = caplog.records
    assert "entry refused could not be moved and will run again" in record.getMessage()
    assert "WRONGTYPE" in record.getMessage()
    # Its run is over: after a broken connection it is no delivery that never began.
    assert [office.leases.had_its_run(name) for name in (b"first", b"refused")] == [False, True]


async def test_a_move_is_carried_out_once_even_if_its_neighbour_is_refused(scene, office):
    counter, text = scene.keys.outcome("n"), scene.keys.outcome("t")
    scene.client.set(counter, 0, ex=60)
    scene.client.set(text, "x", ex=60)
    office.add("counts", "INCR", counter)
    office.add("refused", "INCR", text)
    await office.flush()
    assert scene.client.get(counter) == b"1"
    assert office.moved == ["counts"]


async def test_when_the_server_is_gone_every_delivery_is_let_go(scene, office, caplog):
    office.add("one", "DEL", scene.keys.outcome("a"))
    office.add("two", "DEL", scene.keys.outcome("b"))
    await office.connection.close()
    with caplog.at_level(logging.ERROR, "chasquimq.engine"):
        await office.flush()
    assert (office.moved, office.leases.held()) == ([], set())
    assert len(caplog.records) == 2
