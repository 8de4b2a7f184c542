"""`put_back.lua`: what was read and not started waits again, in its place, uncounted."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from chasquimq.broker import returns, stream
from chasquimq.broker.stream import Delivery
from tests.support.broker_builders import an_entry, an_envelope
from tests.support.eventually import eventually_sync
from tests.support.raw_queue import GROUP, Held

IDLE_MS = 86_400_000


@pytest.fixture
def put_back(keys):
    def call(*deliveries, consumer="c1", alone=False):
        return returns.put_back(keys, GROUP, consumer, deliveries, idle_ms=IDLE_MS, alone=alone)

    return call


def a_delivery(entry_id, *, earlier=0):
    return Delivery(entry_id, [b"d", b"x"], 0, earlier)


def entries(*names):
    return [an_entry(name) for name in names]


def test_entries_wait_again_in_their_places_and_nobody_holds_them(run, raw, put_back):
    entry_ids = raw.delivered("c1", *entries("j1", "j2"))
    raw.waiting(*entries("j3"))

    assert run(put_back(*map(a_delivery, reversed(entry_ids)))) == 2

    assert raw.held() == []
    assert raw.stream() == entries("j1", "j2", "j3")
    assert raw.read("c2") == raw.entry_ids()
    assert [held.deliveries for held in raw.held()] == [1, 1, 1]


def test_entries_behind_those_that_run_wait_again(run, raw, put_back):
    running = raw.delivered("c2", *entries("j1"))
    ours = raw.delivered("c1", *entries("j2", "j3"))

    assert run(put_back(*map(a_delivery, ours))) == 2

    assert raw.held() == [Held(running[0], "c2", 1)]
    assert raw.read("c2") == ours


def test_entries_before_one_that_runs_stay_pending_idle_and_uncounted(run, raw, put_back):
    ours = raw.delivered("c1", *entries("j1"))
    running = raw.delivered("c2", *entries("j2"))

    assert run(put_back(a_delivery(ours[0]))) == 1

    assert raw.held() == [Held(ours[0], "c1", 0), Held(running[0], "c2", 1)]
    assert raw.idle_ms(ours[0]) >= IDLE_MS
    assert raw.read("c3") == []


def test_the_last_to_be_put_back_takes_those_along_that_could_not_be_before(run, raw, put_back):
    """Two readers were blocked when the queue was paused, and each was given a job."""
    first = raw.delivered("c1", *entries("j1"))
    second = raw.delivered("c2", *entries("j2"))
    run(put_back(a_delivery(first[0])))

    assert run(put_back(a_delivery(second[0]), consumer="c2")) == 1

    assert raw.held() == []
    assert raw.read("c3") == [*first, *second]


def test_what_was_delivered_before_keeps_its_count(run, raw, put_back):
    (old, new) = raw.delivered("c1", *entries("j1", "j2"))
    raw.silent_for(0, consumer="c1", entry_id=old, deliveries=3)

    assert run(put_back(a_delivery(old, earlier=2), a_delivery(new))) == 2

    assert raw.held() == [Held(old, "c1", 2)]
    assert raw.idle_ms(old) >= IDLE_MS
    assert raw.read("c2") == [new]


def test_what_another_has_taken_over_is_left_to_it(run, raw, put_back):
    entry_ids = raw.delivered("c1", *entries("j1"))
    raw.claimed("c2", entry_ids)

    assert run(put_back(a_delivery(entry_ids[0]))) == 0
    assert raw.held() == [Held(entry_ids[0], "c2", 2)]


def test_a_call_that_is_sent_again_changes_nothing(run, raw, put_back):
    entry_ids = raw.delivered("c1", *entries("j1", "j2"))
    call = put_back(*map(a_delivery, entry_ids))
    assert run(call) == 2
    before = raw.everything()

    assert run(call) == 0
    assert raw.everything() == before


def test_where_very_many_are_pending_they_stay_so(run, raw, put_back, monkeypatch):
    monkeypatch.setattr(returns, "_MOST_PUT_BACK", 2)
    entry_ids = raw.delivered("c1", *entries("j1", "j2"))

    assert run(put_back(*map(a_delivery, entry_ids))) == 2
    assert [held.deliveries for held in raw.held()] == [0, 0]


# --- by hands of others


def test_what_was_acknowledged_and_is_still_there_does_not_come_again(run, raw, keys, put_back):
    """As another hand may do it; ours deletes what it acknowledges."""
    ours, done = raw.delivered("c1", *entries("j1", "j2"))
    raw.client.xack(keys.stream, GROUP, done)

    assert run(put_back(a_delivery(ours))) == 1

    assert raw.held() == [Held(ours, "c1", 0)]
    assert raw.idle_ms(ours) >= IDLE_MS
    assert raw.read("c2") == []


def test_what_was_acknowledged_before_them_is_no_hindrance(run, raw, keys, put_back):
    done, ours = raw.delivered("c1", *entries("j1", "j2"))
    raw.client.xack(keys.stream, GROUP, done)

    assert run(put_back(a_delivery(ours))) == 1

    assert raw.held() == []
    assert raw.read("c2") == [ours]


@pytest.mark.parametrize("is_first_kept", [True, False])
def test_what_nobody_was_given_yet_is_not_passed_over(run, raw, keys, put_back, is_first_kept):
    """Somebody had set the group back, and what lies before those put back waits."""
    first, second, ours = raw.delivered("c1", *entries("j1", "j2", "j3"))
    raw.client.xack(keys.stream, GROUP, first, second)
    raw.client.xgroup_setid(keys.stream, GROUP, first if is_first_kept else "0-0")

    assert run(put_back(a_delivery(ours))) == 1

    assert raw.held() == []
    waiting = [second, ours] if is_first_kept else [first, second, ours]
    assert raw.read("c2") == waiting


def test_what_was_deleted_meanwhile_is_let_go(run, raw, keys, put_back):
    first, gone = raw.delivered("c1", *entries("j1", "j2"))
    raw.client.xdel(keys.stream, gone)

    assert run(put_back(a_delivery(first), a_delivery(gone))) == 2

    assert raw.held() == []
    assert raw.read("c2") == [first]


# --- of the last worker


def test_what_the_only_consumer_handed_back_waits_again_in_its_place(run, raw, put_back):
    entry_ids = raw.delivered("c1", *entries("j1", "j2"))
    raw.waiting(*entries("j3"))
    for entry_id in entry_ids:
        raw.silent_for(IDLE_MS, consumer="c1", entry_id=entry_id, deliveries=0)

    assert run(put_back(alone=True)) == 0

    assert raw.held() == []
    assert raw.read("c2") == raw.entry_ids()


def test_before_a_delivery_that_counts_nothing_of_the_only_consumer_can_wait_again(
    run, raw, put_back
):
    first, second = raw.delivered("c1", *entries("j1", "j2"))
    raw.silent_for(IDLE_MS, consumer="c1", entry_id=first, deliveries=0)
    raw.silent_for(IDLE_MS, consumer="c1", entry_id=second, deliveries=1)

    assert run(put_back(alone=True)) == 0
    assert raw.held() == [Held(first, "c1", 0), Held(second, "c1", 1)]


def test_beside_another_consumer_that_may_be_blocked_nothing_waits_unseen(run, raw, keys, put_back):
    """It would not be woken. What is idle it claims when it looks."""
    (ours,) = raw.delivered("c1", *entries("j1"))
    raw.client.xgroup_createconsumer(keys.stream, GROUP, "c2")

    assert run(put_back(a_delivery(ours), alone=True)) == 1

    assert raw.held() == [Held(ours, "c1", 0)]
    assert raw.idle_ms(ours) >= IDLE_MS


def test_no_blocked_reader_is_woken(run, connect, raw, keys, server, put_back):
    """It would only put the job back in its turn."""
    (entry_id,) = raw.delivered("c1", *entries("j1"))
    waiting = connect()
    read = stream.read(keys, GROUP, "c2", count=10, block_ms=20_000, claim_min_idle_ms=None)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(waiting.run, read)
        eventually_sync(lambda: server.client().info("clients")["blocked_clients"] >= 1)
        run(put_back(a_delivery(entry_id)))
        assert not reading.done()
        raw.client.xadd(keys.stream, an_entry("j2"))
        deliveries = reading.result(timeout=10)
    assert [each.data for each in deliveries] == [an_envelope("j1"), an_envelope("j2")]
