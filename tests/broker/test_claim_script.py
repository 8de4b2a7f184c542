"""`claim.lua`: a delivery whose lease ran out is taken over, with its history."""

import pytest

from chasquimq.broker import stream
from chasquimq.errors import ServerReplyError
from tests.support.broker_builders import an_entry, an_envelope
from tests.support.raw_queue import GROUP, Held

LEASE_MS = 30_000


@pytest.fixture
def claim(keys):
    def call(consumer="c2", *, min_idle_ms=LEASE_MS, count=10):
        return stream.claim(keys, GROUP, consumer, min_idle_ms=min_idle_ms, count=count)

    return call


def shown(delivery):
    return (delivery.entry_id, delivery.data, delivery.name, delivery.deliveries)


def test_a_silent_delivery_is_taken_over_with_its_entry_and_its_history(run, raw, claim):
    (entry_id,) = raw.delivered("c1", an_entry("j1"))
    raw.silent_for(40_000, consumer="c1", entry_id=entry_id, deliveries=2)

    (delivery,) = run(claim())

    assert shown(delivery) == (entry_id, an_envelope("j1"), "mail", 2)
    assert not delivery.fields_missing
    assert 40_000 <= delivery.idle_ms < 50_000
    assert raw.held() == [Held(entry_id, "c2", 3)]
    assert raw.idle_ms(entry_id) < LEASE_MS
    assert raw.stream() == [an_entry("j1")]


def test_a_delivery_whose_lease_has_not_run_out_is_left_alone(run, raw, claim):
    (entry_id,) = raw.delivered("c1", an_entry("j1"))
    raw.silent_for(LEASE_MS - 10_000, consumer="c1", entry_id=entry_id)
    before = raw.everything()

    assert run(claim()) == []
    assert raw.everything() == before


def test_entries_that_nobody_has_read_are_not_claimed(run, raw, claim):
    raw.waiting(an_entry("j1"))

    assert run(claim(min_idle_ms=0)) == []
    assert raw.held() == []


def test_of_many_the_longest_waiting_entries_are_claimed_up_to_the_count(run, raw, claim):
    entry_ids = raw.delivered("c1", *(an_entry(f"j{n}") for n in range(5)))
    for entry_id in entry_ids[1:]:
        raw.silent_for(40_000, consumer="c1", entry_id=entry_id)

    assert [each.entry_id for each in run(claim(count=2))] == entry_ids[1:3]
    assert [held.consumer for held in raw.held()] == ["c1", "c2", "c2", "c1", "c1"]
    assert [each.entry_id for each in run(claim(count=9))] == entry_ids[3:]


def test_what_was_claimed_has_a_fresh_lease_and_is_not_claimed_again(run, raw, claim):
    (entry_id,) = raw.delivered("c1", an_entry("j1"))
    raw.silent_for(40_000, consumer="c1", entry_id=entry_id)

    assert len(run(claim("c2"))) == 1
    assert run(claim("c3")) == []


def test_a_consumer_may_claim_what_it_lost_itself(run, raw, claim):
    (entry_id,) = raw.delivered("c1", an_entry("j1"))
    raw.silent_for(40_000, consumer="c1", entry_id=entry_id)

    assert [each.deliveries for each in run(claim("c1"))] == [1]
    assert raw.held() == [Held(entry_id, "c1", 2)]


def test_an_entry_that_was_deleted_under_its_delivery_is_told_without_fields(
    run, raw, keys, claim, server
):
    (gone, there) = raw.delivered("c1", an_entry("j1"), an_entry("j2"))
    for entry_id in (gone, there):
        raw.silent_for(40_000, consumer="c1", entry_id=entry_id)
    raw.client.xdel(keys.stream, gone)

    first, second = run(claim())

    assert shown(first) == (gone, None, "", 1)
    assert first.fields_missing
    assert shown(second) == (there, an_envelope("j2"), "mail", 1)
    # Redis 7 and Valkey drop such a delivery from the group themselves; Redis 6.2 hands it on.
    still_held = [gone, there] if server.version < (7, 0) else [there]
    assert [held.entry_id for held in raw.held()] == still_held


def test_an_entry_without_a_job_is_told_as_it_is(run, raw, claim):
    (entry_id,) = raw.delivered("c1", {"x": b"1"})
    raw.silent_for(40_000, consumer="c1", entry_id=entry_id)

    (delivery,) = run(claim())
    assert shown(delivery) == (entry_id, None, "", 1)
    assert not delivery.fields_missing


def test_a_lost_group_is_said_in_the_servers_word_for_it(run, claim):
    """The reader creates the group anew when it hears this word, and only then."""
    with pytest.raises(ServerReplyError) as refused:
        run(claim())
    assert refused.value.kind == "NOGROUP"


@pytest.mark.servers("redis-8.6")
def test_the_new_command_and_what_stands_in_for_it_say_the_same(run, raw, keys, claim):
    entry_ids = raw.delivered("c1", an_entry("j1"), an_entry("j2", ""))

    def silent():
        for count, entry_id in enumerate(entry_ids, 1):
            raw.silent_for(40_000, consumer="c1", entry_id=entry_id, deliveries=count)

    silent()
    by_script, held_by_script = run(claim()), raw.held()
    silent()
    read = stream.read(keys, GROUP, "c2", count=10, block_ms=0, claim_min_idle_ms=LEASE_MS)
    by_command, held_by_command = run(read), raw.held()

    assert list(map(shown, by_script)) == list(map(shown, by_command))
    assert (
        held_by_script
        == held_by_command
        == [
            Held(entry_ids[0], "c2", 2),
            Held(entry_ids[1], "c2", 3),
        ]
    )
