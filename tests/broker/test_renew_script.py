"""`renew.lua`: the lease of what is ours stays fresh, and what another has taken stays theirs."""

import pytest

from chasquimq.broker import stream
from chasquimq.errors import ServerReplyError
from tests.support.broker_builders import an_entry
from tests.support.raw_queue import GROUP, Held


@pytest.fixture
def renew(keys):
    def call(*entry_ids, consumer="c1"):
        return stream.renew(keys, GROUP, consumer, entry_ids)

    return call


def test_a_lease_is_renewed_without_counting_a_delivery(run, raw, renew):
    entry_ids = raw.delivered("c1", an_entry("j1"), an_entry("j2"))
    for count, entry_id in enumerate(entry_ids, 1):
        raw.silent_for(40_000, consumer="c1", entry_id=entry_id, deliveries=count)
    before = raw.everything()

    assert run(renew(*entry_ids)) == []

    assert max(map(raw.idle_ms, entry_ids)) < 40_000
    assert raw.everything() == before
    assert raw.held() == [Held(entry_ids[0], "c1", 1), Held(entry_ids[1], "c1", 2)]


def test_a_delivery_that_another_has_taken_over_is_never_stolen_back(run, raw, renew):
    (ours, theirs) = raw.delivered("c1", an_entry("j1"), an_entry("j2"))
    raw.claimed("c2", [theirs])
    raw.silent_for(40_000, consumer="c2", entry_id=theirs, deliveries=2)
    raw.silent_for(40_000, consumer="c1", entry_id=ours)

    assert run(renew(ours, theirs)) == [theirs]

    assert raw.held() == [Held(ours, "c1", 1), Held(theirs, "c2", 2)]
    assert raw.idle_ms(theirs) >= 40_000
    assert raw.idle_ms(ours) < 40_000


def test_settled_unread_and_unknown_entries_are_not_ours(run, raw, keys, renew):
    (settled,) = raw.delivered("c1", an_entry("j1"))
    raw.client.xack(keys.stream, GROUP, settled)
    (unread,) = raw.waiting(an_entry("j2"))
    before = raw.everything()

    assert run(renew(settled, unread, b"1-1")) == [settled, unread, b"1-1"]
    assert raw.everything() == before


def test_leases_that_are_not_named_run_on(run, raw, renew):
    (named, unnamed) = raw.delivered("c1", an_entry("j1"), an_entry("j2"))
    raw.silent_for(40_000, consumer="c1", entry_id=unnamed)

    run(renew(named))
    assert raw.idle_ms(unnamed) >= 40_000


def test_nothing_to_renew_is_nothing_lost(run, raw, renew):
    raw.waiting()

    assert run(renew()) == []


def test_without_memory_leases_are_kept_all_the_same(run, raw, renew, without_memory):
    (entry_id,) = raw.delivered("c1", an_entry("j1"))
    raw.silent_for(40_000, consumer="c1", entry_id=entry_id)
    with without_memory():
        assert run(renew(entry_id)) == []

    assert raw.idle_ms(entry_id) < 40_000


def test_a_lost_group_is_said_in_the_servers_word_for_it(run, renew):
    with pytest.raises(ServerReplyError) as refused:
        run(renew(b"1-1"))
    assert refused.value.kind == "NOGROUP"
