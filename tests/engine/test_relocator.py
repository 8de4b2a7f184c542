"""The relocator on a real server, with moves that succeed, fail, and find nothing to move."""

import asyncio
import logging

import pytest

from chasquimq.broker import delayed
from chasquimq.broker.blocking import BlockingConnection
from chasquimq.broker.call import call
from chasquimq.broker.connection import Connection
from chasquimq.broker.options import ConnectionOptions
from chasquimq.broker.stream import Delivery
from chasquimq.broker.url import parse_url
from chasquimq.clock import ManualClock
from chasquimq.config import ConsumerConfig
from chasquimq.engine.leases import Leases
from chasquimq.engine.portions import SETTLED_BYTES
from chasquimq.engine.relocator import Joint, Move, Relocator
from chasquimq.engine.teller import Teller
from tests.support.broker_builders import SILENT, a_member, a_relocation, an_entry, an_envelope
from tests.support.raw_queue import RawQueue


class Office:
    """A relocator, the leases it lets go, and what it reported as moved."""

    def __init__(self, scene):
        self.scene = scene
        self.moved = []
        self.joined = []
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

    def retry(self, entry_id, job_id):
        """Queue the retry of a delivery."""
        self.leases.take(entry_id)
        joint = Joint(a_relocation(entry_id, job_id), self._join)
        self.relocator.add(Move(entry_id, joint, lambda: self.moved.append(job_id)))

    def _join(self, moves):
        self.joined.append([move.job_id for move in moves])
        keys = self.scene.keys
        return delayed.retry(keys, "default", "c-1", moves, telling=SILENT, grace_s=9)

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


class Slip:
    """A connection over which the first calls go wrong in a way that nobody foresaw."""

    def __init__(self, connection, *, times):
        self._connection = connection
        self._left = times

    async def run(self, call):
        self._left -= 1
        if self._left >= 0:
            message = "a slip"
            raise RuntimeError(message)
        return await self._connection.run(call)


async def test_a_slip_with_all_of_a_batch_is_made_up_for_one_by_one(scene, office):
    keys = [scene.keys.outcome(name) for name in "ab"]
    for key in keys:
        scene.client.set(key, 1, ex=60)
    office.add("one", "DEL", keys[0])
    office.add("two", "DEL", keys[1])
    office.relocator._connection = Slip(office.connection, times=1)  # noqa: SLF001 -- a fault
    await office.flush()
    assert office.moved == ["one", "two"]
    assert office.leases.held() == set()


async def test_what_could_not_be_moved_by_a_slip_is_let_go_and_has_had_its_run(
    scene, office, caplog
):
    keys = [scene.keys.outcome(name) for name in "ab"]
    for key in keys:
        scene.client.set(key, 1, ex=60)
    office.add("lost", "DEL", keys[0])
    office.add("moves", "DEL", keys[1])
    office.relocator._connection = Slip(office.connection, times=2)  # noqa: SLF001 -- a fault
    await office.flush()
    assert office.moved == ["moves"]
    assert office.leases.held() == set()
    assert [office.leases.had_its_run(each) for each in (b"lost", b"moves")] == [True, False]
    (record,) = caplog.records
    assert "entry lost could not be moved and will run again: a slip" in record.getMessage()
    assert record.exc_info


async def test_what_a_flush_held_that_was_broken_off_is_let_go(scene, office):
    office.add("one", "DEL", scene.keys.outcome("a"))
    office.add("two", "DEL", scene.keys.outcome("b"))

    class Cancelled:
        async def run(self, call):
            raise asyncio.CancelledError

    office.relocator._connection = Cancelled()  # noqa: SLF001 -- a fault
    await office.flush()
    assert office.leases.held() == set()
    assert [office.leases.had_its_run(each) for each in (b"one", b"two")] == [True, True]


@pytest.fixture
def raw(scene):
    return RawQueue(scene.client, scene.keys)


async def test_retries_travel_in_one_call_and_each_move_gets_its_own_answer(scene, office, raw):
    """Between burials: one retry is ours, one another worker's by now, one was settled."""
    ours, theirs, gone, late = raw.delivered("c-1", *map(an_entry, ("r1", "r2", "r3", "r4")))
    raw.claimed("c-2", [theirs])
    raw.client.xack(scene.keys.stream, "default", gone)
    raw.client.xdel(scene.keys.stream, gone)
    letter, text = scene.keys.outcome("letter"), scene.keys.outcome("text")
    scene.client.set(letter, 1, ex=60)
    scene.client.set(text, "x", ex=60)
    office.add("b1", "DEL", letter)
    office.retry(ours, "r1")
    office.retry(theirs, "r2")
    office.add("b2", "INCR", text)
    office.retry(gone, "r3")
    office.add("b3", "DEL", letter)
    office.retry(late, "r4")
    await office.flush()

    assert office.joined[0] == ["r1", "r2", "r3", "r4"]
    assert office.moved == ["b1", "r1", "r4"]
    assert [member for member, _ in raw.delayed()] == sorted(
        a_member(each, envelope=an_envelope(each, attempt=1)) for each in ("r1", "r4")
    )
    assert [(held.entry_id, held.consumer) for held in raw.held()] == [(theirs, "c-2")]
    assert office.leases.held() == set()
    given_up = (b"b1", ours, theirs, b"b2", gone, b"b3", late)
    assert [each for each in given_up if office.leases.had_its_run(each)] == [b"b2"]
    # Another read that was on its way may bring what we have settled, and that is not run again.
    returned = [Delivery(each, None, 0, 1) for each in (ours, theirs, gone, late)]
    fresh = office.leases.take_all(returned, 0)
    assert [each.entry_id for each in fresh] == [theirs, gone]


async def test_retries_that_are_refused_together_are_tried_one_by_one(scene, office, raw, caplog):
    first, second = raw.delivered("c-1", an_entry("r1"), an_entry("r2"))
    letter = scene.keys.outcome("letter")
    scene.client.set(letter, 1, ex=60)
    scene.client.set(scene.keys.delayed, "not a set")
    office.retry(first, "r1")
    office.add("b1", "DEL", letter)
    office.retry(second, "r2")
    await office.flush()

    assert office.joined == [["r1", "r2"], ["r1"], ["r2"]]
    assert office.moved == ["b1"]
    assert [office.leases.had_its_run(each) for each in (first, b"b1", second)] == [
        True, False, True,
    ]  # fmt: skip
    assert [held.entry_id for held in raw.held()] == [first, second]
    assert len(caplog.records) == 2
    scene.client.delete(scene.keys.delayed)


async def test_large_retries_do_not_share_a_call(scene, office, raw):
    ids = raw.delivered("c-1", *(an_entry(f"r{n}") for n in range(3)))
    half = b"x" * (SETTLED_BYTES // 2 - 100)
    for number, entry_id in enumerate(ids):
        office.leases.take(entry_id)
        joint = Joint(a_relocation(entry_id, f"r{number}", data=half), office._join)  # noqa: SLF001
        office.relocator.add(Move(entry_id, joint, lambda: office.moved.append(1)))
    await office.flush()
    assert office.joined == [["r0", "r1"], ["r2"]]
    assert office.moved == [1, 1, 1]
    assert len(raw.delayed()) == 3
