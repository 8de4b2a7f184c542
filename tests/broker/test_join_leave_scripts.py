"""`join.lua` and `leave.lua`: a queue has one group; a consumer goes when it holds nothing."""

import pytest

from chasquimq.broker import returns, stream
from chasquimq.errors import ServerReplyError
from tests.support.broker_builders import an_entry
from tests.support.eventually import eventually_sync
from tests.support.raw_queue import GROUP, Held

JOINED = ""


IDLE_MS = 86_400_000


@pytest.fixture
def leave(keys):
    return lambda consumer: returns.leave(keys, GROUP, consumer, idle_ms=IDLE_MS)


def handed_back(raw, consumer, *entry_ids, deliveries=0):
    for entry_id in entry_ids:
        raw.silent_for(IDLE_MS, consumer=consumer, entry_id=entry_id, deliveries=deliveries)


def groups(raw):
    return [group["name"].decode() for group in raw.client.xinfo_groups(raw.keys.stream)]


def consumers(raw):
    found = raw.client.xinfo_consumers(raw.keys.stream, GROUP)
    return sorted(each["name"].decode() for each in found)


# --- join


def test_the_first_to_join_creates_stream_and_group(run, raw, keys):
    assert run(stream.join(keys, GROUP)) == JOINED

    assert raw.everything() == {"held": [], "stream": []}
    assert groups(raw) == [GROUP]


def test_the_first_group_sees_the_jobs_that_were_added_before_it(run, raw, keys):
    entry_id = raw.client.xadd(keys.stream, an_entry("j1"))
    assert run(stream.join(keys, GROUP)) == JOINED

    read = stream.read(keys, GROUP, "c1", count=10, block_ms=0, claim_min_idle_ms=None)
    assert [each.entry_id for each in run(read)] == [entry_id]


def test_to_join_again_changes_nothing(run, raw, keys):
    (entry_id,) = raw.delivered("c1", an_entry("j1"))
    before = raw.everything()

    assert run(stream.join(keys, GROUP)) == JOINED
    assert raw.everything() == before
    assert raw.held() == [Held(entry_id, "c1", 1)]


def test_a_second_group_is_refused_by_naming_the_first(run, raw, keys):
    run(stream.join(keys, "first"))

    assert run(stream.join(keys, "second")) == "first"
    assert groups(raw) == ["first"]


def test_a_group_that_is_one_of_several_may_still_be_joined(run, raw, keys):
    """Somebody else made the second one; those who were here before are not locked out."""
    for name in ("alien", GROUP):
        raw.client.xgroup_create(keys.stream, name, mkstream=True)

    assert run(stream.join(keys, GROUP)) == JOINED
    assert run(stream.join(keys, "third")) in {"alien", GROUP}


def test_consumers_that_hold_nothing_and_went_silent_are_forgotten_on_the_way(run, raw, keys):
    raw.delivered("holds one", an_entry("j1"))
    raw.client.xgroup_createconsumer(keys.stream, GROUP, "killed")

    def silent_ms():
        found = raw.client.xinfo_consumers(keys.stream, GROUP)
        return min(each["idle"] for each in found)

    eventually_sync(lambda: silent_ms() > 20)
    assert run(stream.join(keys, GROUP, gone_ms=60_000)) == JOINED
    assert consumers(raw) == ["holds one", "killed"]
    assert run(stream.join(keys, GROUP, gone_ms=20)) == JOINED
    assert consumers(raw) == ["holds one"]


def test_a_group_that_was_lost_with_its_stream_is_created_again(run, raw, keys):
    run(stream.join(keys, GROUP))
    raw.client.delete(keys.stream)

    assert run(stream.join(keys, GROUP)) == JOINED
    assert groups(raw) == [GROUP]


def test_a_key_that_is_no_stream_is_told_and_left(run, raw, keys):
    raw.client.set(keys.stream, "not a stream", ex=60)

    with pytest.raises(ServerReplyError) as refused:
        run(stream.join(keys, GROUP))
    assert refused.value.kind == "WRONGTYPE"
    assert raw.client.get(keys.stream) == b"not a stream"


# --- leave


def test_a_consumer_that_holds_nothing_is_forgotten(run, raw, leave):
    (entry_id,) = raw.delivered("c1", an_entry("j1"))
    raw.claimed("c2", [entry_id])

    assert run(leave("c1")) is True
    assert consumers(raw) == ["c2"]
    assert raw.held() == [Held(entry_id, "c2", 2)]


def test_a_consumer_that_still_holds_a_delivery_stays_and_so_does_the_delivery(run, raw, leave):
    (entry_id,) = raw.delivered("c1", an_entry("j1"))
    before = raw.everything()

    assert run(leave("c1")) is False
    assert consumers(raw) == ["c1"]
    assert raw.everything() == before
    assert raw.held() == [Held(entry_id, "c1", 1)]


def test_a_consumer_that_never_was_is_as_good_as_forgotten(run, raw, leave):
    raw.waiting(an_entry("j1"))

    assert run(leave("nobody")) is True
    assert consumers(raw) == []


def test_what_the_only_consumer_handed_back_keeps_it_there_until_it_was_put_back(
    run, raw, keys, leave
):
    entry_ids = raw.delivered("c1", an_entry("j1"), an_entry("j2"))
    raw.waiting(an_entry("j3"))
    handed_back(raw, "c1", *entry_ids)
    before = raw.everything()

    assert run(leave("c1")) is False
    assert raw.everything() == before
    run(returns.put_back(keys, GROUP, "c1", idle_ms=IDLE_MS, alone=True))
    assert run(leave("c1")) is True
    assert (consumers(raw), raw.held()) == ([], [])
    assert raw.read("c2") == raw.entry_ids()
    assert [held.deliveries for held in raw.held()] == [1, 1, 1]


def test_what_was_handed_back_is_passed_on_to_a_consumer_that_is_there(run, raw, leave):
    """Its count and its idle time stay: whoever reads next claims it."""
    begun, cut_off, unstarted = raw.delivered("c1", *map(an_entry, ("j1", "j2", "j3")))
    raw.claimed("c2", [begun])
    handed_back(raw, "c1", unstarted)
    handed_back(raw, "c1", cut_off, deliveries=1)

    assert run(leave("c1")) is True
    assert consumers(raw) == ["c2"]
    assert raw.held() == [Held(begun, "c2", 2), Held(cut_off, "c2", 1), Held(unstarted, "c2", 0)]
    assert raw.idle_ms(begun) < 60_000
    assert min(raw.idle_ms(cut_off), raw.idle_ms(unstarted)) >= IDLE_MS


def test_a_lease_that_has_to_run_out_is_not_passed_on(run, raw, leave):
    mine, theirs = raw.delivered("c1", an_entry("j1"), an_entry("j2"))
    raw.claimed("c2", [theirs])

    assert run(leave("c1")) is False
    assert raw.held() == [Held(mine, "c1", 1), Held(theirs, "c2", 2)]


def test_to_leave_a_lost_group_is_refused_in_the_servers_word_for_it(run, leave):
    with pytest.raises(ServerReplyError) as refused:
        run(leave("c1"))
    assert refused.value.kind == "NOGROUP"
