"""`add_unique.lua`: an id is added once, whichever road and process it comes by."""

import pytest

from chasquimq.broker import delayed, ring, stream
from chasquimq.broker.stream import Capacity
from chasquimq.errors import ServerReplyError
from tests.support.broker_builders import (
    SILENT,
    TELLING,
    TOLD_MS,
    a_delayed_job,
    a_job,
    a_ticket,
    an_entry,
    an_envelope,
)

ROOMY = Capacity(1_000)


@pytest.fixture
def add_unique(keys):
    def call(*jobs, ticket=None, capacity=ROOMY, telling=TELLING):
        return stream.add_unique(
            keys,
            jobs,
            ticket=ticket or a_ticket(),
            capacity=capacity,
            telling=telling,
            marker_ttl_s=3_600,
        )

    return call


def test_free_ids_are_added_marked_told_and_remembered(run, raw, keys, add_unique):
    answer = run(add_unique(a_job("a", "mail"), a_job("b", ""), ticket=a_ticket(9)))

    assert answer == "11"
    assert raw.stream() == [an_entry("a", "mail"), {"d": an_envelope("b")}]
    assert raw.events() == [f"e=waiting id=a ts={TOLD_MS} n=mail", f"e=waiting id=b ts={TOLD_MS}"]
    everything = raw.everything()
    assert sorted(everything) == ["dlid:a", "dlid:b", "events", "held", "sent:p1", "stream"]
    assert everything["dlid:a"] == everything["dlid:b"] == b"1"
    assert everything["sent:p1"] == {b"9": b"9:11"}
    assert raw.client.ttl(keys.dedup_marker("a")) == 3_600
    assert raw.client.ttl(keys.sent("p1")) == ring.TTL_S


def test_a_taken_id_adds_nothing_for_any_producer(run, raw, add_unique):
    run(add_unique(a_job("a")))
    before = raw.everything()

    assert run(add_unique(a_job("a"), ticket=a_ticket(1, producer_id="p2"))) == "0"
    assert raw.everything() == before | {"sent:p2": {b"1": b"1:0"}}


def test_a_taken_id_does_not_keep_the_others_of_its_batch_back(run, raw, add_unique):
    run(add_unique(a_job("b")))

    answer = run(add_unique(a_job("a"), a_job("b"), a_job("c"), ticket=a_ticket(2)))

    assert answer == "101"
    assert raw.stream() == [an_entry("b"), an_entry("a"), an_entry("c")]


def test_of_two_jobs_with_one_id_in_one_batch_the_first_is_added(run, raw, add_unique):
    assert run(add_unique(a_job("a", "first"), a_job("a", "second"))) == "10"
    assert raw.stream() == [an_entry("a", "first")]


def test_an_id_that_is_delayed_is_taken(run, raw, keys, add_unique):
    later = a_delayed_job("a", is_unique=True)
    run(delayed.schedule(keys, [later], ticket=a_ticket(1), telling=SILENT, grace_s=3_600))

    assert run(add_unique(a_job("a"), ticket=a_ticket(2))) == "0"
    assert raw.stream() == []


def test_an_id_whose_marker_has_expired_is_free_again(run, raw, keys, add_unique):
    run(add_unique(a_job("a"), ticket=a_ticket(1)))
    raw.client.pexpire(keys.dedup_marker("a"), 0)

    assert run(add_unique(a_job("a"), ticket=a_ticket(2))) == "1"


def test_jobs_that_do_not_fit_are_refused_one_by_one_and_their_ids_stay_free(run, raw, add_unique):
    run(add_unique(a_job("taken")))
    jobs = [a_job("a"), a_job("taken"), a_job("b")]

    assert run(add_unique(*jobs, ticket=a_ticket(2), capacity=Capacity(2))) == "10F"
    assert raw.stream() == [an_entry("taken"), an_entry("a")]
    assert "dlid:b" not in raw.everything()
    assert [line.split()[1] for line in raw.events()] == ["id=taken", "id=a"]


def test_a_limit_of_one_lets_one_in(run, raw, add_unique):
    assert run(add_unique(a_job("a"), a_job("b"), capacity=Capacity(1))) == "1F"
    assert raw.stream() == [an_entry("a")]


def test_a_limit_of_zero_is_none(run, raw, add_unique):
    raw.waiting(an_entry("old"))

    assert run(add_unique(a_job("a"), capacity=Capacity(0))) == "1"


def test_trim_drops_the_oldest_and_refuses_nothing(run, raw, add_unique):
    jobs = [a_job(f"j{n}") for n in range(350)]

    assert run(add_unique(*jobs, capacity=Capacity(1, trim=True))) == "1" * 350
    left = raw.stream()
    assert 1 <= len(left) < 350
    assert left[-1] == an_entry("j349")


def test_with_events_off_nothing_is_told(run, raw, add_unique):
    assert run(add_unique(a_job("a"), telling=SILENT)) == "1"
    assert raw.events() == []


def test_a_call_that_is_sent_again_says_what_happened_the_first_time(run, raw, keys, add_unique):
    """Without the ring it would find its own markers and call its own jobs duplicates."""
    run(add_unique(a_job("taken"), ticket=a_ticket(1)))
    call = add_unique(
        a_job("a"), a_job("taken"), a_job("b"), ticket=a_ticket(2), capacity=Capacity(2)
    )
    assert run(call) == "10F"
    raw.client.xtrim(keys.stream, maxlen=0, approximate=False)
    before = raw.everything()

    assert run(call) == "10F"
    assert raw.everything() == before


def test_a_later_call_in_the_same_slot_is_not_taken_for_the_first(run, add_unique):
    assert run(add_unique(a_job("a"), ticket=a_ticket(1))) == "1"
    assert run(add_unique(a_job("a"), ticket=a_ticket(1 + ring.SLOTS, slot=1))) == "0"


def test_without_memory_no_id_is_taken_and_the_same_call_works_later(
    run, raw, without_memory, add_unique
):
    call = add_unique(a_job("a"))
    with without_memory(), pytest.raises(ServerReplyError) as refused:
        run(call)
    assert refused.value.kind == "OOM"
    assert raw.everything() == {"held": []}

    assert run(call) == "1"
