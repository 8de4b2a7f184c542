"""`hand_back.lua`: what was read and never started goes to the next reader, uncounted."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from chasquimq.broker import returns, stream
from chasquimq.broker.stream import Delivery
from tests.support.broker_builders import an_entry, an_envelope
from tests.support.eventually import eventually_sync
from tests.support.raw_queue import GROUP, Held

LEASE_MS = 30_000
IDLE_MS = 2 * LEASE_MS


@pytest.fixture
def hand_back(keys):
    def call(*deliveries, consumer="c1"):
        return returns.hand_back(keys, GROUP, consumer, deliveries, idle_ms=IDLE_MS)

    return call


@pytest.fixture
def read(keys):
    def call(consumer, block_ms=0):
        return stream.read(
            keys, GROUP, consumer, count=10, block_ms=block_ms, claim_min_idle_ms=None
        )

    return call


@pytest.fixture
def claim(keys):
    def call(consumer):
        return stream.claim(keys, GROUP, consumer, min_idle_ms=LEASE_MS, count=10)

    return call


def a_delivery(entry_id, *, earlier=0):
    return Delivery(entry_id, [b"d", b"x"], 0, earlier)


# --- nothing else waits


def test_without_backlog_entries_are_written_anew_in_order(run, raw, hand_back):
    entry_ids = raw.delivered("c1", an_entry("j1"), {"d": an_envelope("j2"), "extra": b"kept"})

    assert run(hand_back(*map(a_delivery, entry_ids))) == 2

    assert raw.stream() == [an_entry("j1"), {"d": an_envelope("j2"), "extra": b"kept"}]
    assert set(raw.entry_ids()).isdisjoint(entry_ids)
    assert sorted(raw.everything()) == ["held", "stream"]
    assert raw.held() == []


def test_the_next_reader_gets_a_rewritten_entry_as_if_for_the_first_time(run, raw, hand_back, read):
    (entry_id,) = raw.delivered("c1", an_entry("j1"))
    run(hand_back(a_delivery(entry_id)))

    (delivery,) = run(read("c2"))
    assert (delivery.data, delivery.deliveries) == (an_envelope("j1"), 0)
    assert raw.held() == [Held(delivery.entry_id, "c2", 1)]


def test_a_reader_that_is_blocked_wakes_at_once(run, connect, raw, server, hand_back, read):
    (entry_id,) = raw.delivered("c1", an_entry("j1"))
    waiting = connect()
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(waiting.run, read("c2", block_ms=20_000))
        eventually_sync(lambda: server.client().info("clients")["blocked_clients"] >= 1)
        run(hand_back(a_delivery(entry_id)))
        (delivery,) = reading.result(timeout=10)

    assert delivery.data == an_envelope("j1")


def test_an_entry_that_was_delivered_before_keeps_its_place_and_its_count(
    run, raw, hand_back, claim
):
    """Written anew it would start from nothing, and a job that kills workers would never end."""
    (entry_id,) = raw.delivered("c1", an_entry("j1"))
    raw.silent_for(0, consumer="c1", entry_id=entry_id, deliveries=3)

    assert run(hand_back(a_delivery(entry_id, earlier=2))) == 1

    assert raw.entry_ids() == [entry_id]
    assert raw.held() == [Held(entry_id, "c1", 2)]
    (delivery,) = run(claim("c2"))
    assert delivery.deliveries == 2


def test_without_memory_the_entry_keeps_its_place_and_is_claimed_uncounted(
    run, raw, hand_back, claim, without_memory
):
    (entry_id,) = raw.delivered("c1", an_entry("j1"))
    with without_memory():
        assert run(hand_back(a_delivery(entry_id))) == 1

    assert raw.held() == [Held(entry_id, "c1", 0)]
    (delivery,) = run(claim("c2"))
    assert (delivery.entry_id, delivery.deliveries) == (entry_id, 0)


# --- others wait


def test_with_backlog_the_entry_keeps_its_place_and_is_claimed_first_uncounted(
    run, raw, hand_back, claim
):
    (entry_id,) = raw.delivered("c1", an_entry("j1"))
    (behind,) = raw.waiting(an_entry("j2"))

    assert run(hand_back(a_delivery(entry_id))) == 1

    assert raw.entry_ids() == [entry_id, behind]
    assert raw.held() == [Held(entry_id, "c1", 0)]
    assert raw.idle_ms(entry_id) >= IDLE_MS
    (delivery,) = run(claim("c2"))
    assert (delivery.entry_id, delivery.deliveries) == (entry_id, 0)
    assert raw.held() == [Held(entry_id, "c2", 1)]


@pytest.mark.servers("redis-8.6")
def test_with_backlog_a_single_read_takes_the_entry_before_those_behind_it(
    run, raw, keys, hand_back
):
    (entry_id,) = raw.delivered("c1", an_entry("j1"))
    (behind,) = raw.waiting(an_entry("j2"))
    run(hand_back(a_delivery(entry_id)))

    read = stream.read(keys, GROUP, "c2", count=10, block_ms=0, claim_min_idle_ms=LEASE_MS)
    found = [(each.entry_id, each.deliveries) for each in run(read)]
    assert found == [(entry_id, 0), (behind, 0)]


def test_with_backlog_earlier_deliveries_stay_counted(run, raw, hand_back, claim):
    (entry_id,) = raw.delivered("c1", an_entry("j1"))
    raw.waiting(an_entry("j2"))
    raw.silent_for(0, consumer="c1", entry_id=entry_id, deliveries=2)

    run(hand_back(a_delivery(entry_id, earlier=1)))
    assert [each.deliveries for each in run(claim("c2"))] == [1]


# --- races and trouble


def test_what_another_has_taken_over_or_settled_is_not_handed_back(run, raw, keys, hand_back):
    (theirs, settled, ours) = raw.delivered("c1", an_entry("a"), an_entry("b"), an_entry("c"))
    raw.claimed("c2", [theirs])
    raw.client.xack(keys.stream, GROUP, settled)
    raw.client.xdel(keys.stream, settled)

    assert run(hand_back(*map(a_delivery, (theirs, settled, ours, b"1-1")))) == 1

    assert raw.stream() == [an_entry("a"), an_entry("c")]
    assert raw.held() == [Held(theirs, "c2", 2)]


def test_a_call_that_is_sent_again_writes_nothing_twice(run, raw, hand_back):
    (entry_id,) = raw.delivered("c1", an_entry("j1"))
    call = hand_back(a_delivery(entry_id))
    assert run(call) == 1
    before = raw.everything()

    assert run(call) == 0
    assert raw.everything() == before


def test_an_entry_that_was_deleted_under_its_delivery_is_not_written_anew(
    run, raw, keys, hand_back
):
    (entry_id,) = raw.delivered("c1", an_entry("j1"))
    raw.client.xdel(keys.stream, entry_id)

    assert run(hand_back(a_delivery(entry_id))) == 1
    assert raw.stream() == []


def test_nothing_to_hand_back_is_nothing_done(run, raw, hand_back):
    raw.delivered("c1", an_entry("j1"))
    before = raw.everything()

    assert run(hand_back()) == 0
    assert raw.everything() == before
