"""`add.lua`: fresh jobs go to the stream, once, and never past the queue's limit unseen."""

from itertools import chain

import pytest

from chasquimq.broker import ring, stream
from chasquimq.broker.stream import Added, Capacity, Telling
from chasquimq.errors import ServerReplyError
from tests.support.broker_builders import (
    SILENT,
    TELLING,
    TOLD_MS,
    a_job,
    a_ticket,
    an_entry,
    an_envelope,
)

ROOMY = Capacity(1_000)


@pytest.fixture
def add(keys):
    def call(*jobs, ticket=None, capacity=ROOMY, telling=TELLING, whole=True):
        return stream.add(
            keys,
            [*chain.from_iterable(jobs)],
            ticket=ticket or a_ticket(),
            capacity=capacity,
            telling=telling,
            whole=whole,
        )

    return call


def test_jobs_are_added_in_order_told_and_remembered(run, raw, keys, add):
    answer = run(add(a_job("j1", "mail"), a_job("j2", "bill"), ticket=a_ticket(7)))

    assert answer == Added(count=2, depth=2)
    everything = raw.everything()
    assert sorted(everything) == ["events", "held", "sent:p1", "stream"]
    assert raw.stream() == [an_entry("j1", "mail"), an_entry("j2", "bill")]
    assert raw.events() == [
        f"e=waiting id=j1 ts={TOLD_MS} n=mail",
        f"e=waiting id=j2 ts={TOLD_MS} n=bill",
    ]
    assert everything["sent:p1"] == {b"7": b"7:2"}
    assert raw.client.ttl(keys.sent("p1")) == ring.TTL_S


def test_an_empty_name_is_written_neither_to_the_stream_nor_to_the_event(run, raw, add):
    run(add(a_job("j1", "")))

    assert raw.stream() == [{"d": an_envelope("j1")}]
    assert raw.events() == [f"e=waiting id=j1 ts={TOLD_MS}"]


def test_with_events_off_nothing_is_told(run, raw, add):
    assert run(add(a_job(), telling=SILENT)) == Added(1, 1)

    assert sorted(raw.everything()) == ["held", "sent:p1", "stream"]


def test_the_depth_counts_what_was_there_before(run, raw, add):
    raw.waiting(an_entry("old"))

    assert run(add(a_job("j1"), a_job("j2"))) == Added(count=2, depth=3)


def test_a_call_that_is_sent_again_adds_nothing_and_answers_the_same(run, raw, add):
    call = add(a_job("j1"), a_job("j2"))
    first = run(call)
    before = raw.everything()

    assert run(call) == first == Added(2, 2)
    assert raw.everything() == before


def test_a_call_that_is_sent_again_answers_what_happened_then_not_what_would_happen_now(
    run, raw, keys, add
):
    """Of two jobs one fitted. Room for the other does not make the second sending add it."""
    call = add(a_job("j1"), a_job("j2"), capacity=Capacity(1), whole=False)
    assert run(call) == Added(count=1, depth=1)
    raw.client.xtrim(keys.stream, maxlen=0, approximate=False)

    assert run(call) == Added(count=1, depth=0)
    assert raw.stream() == []


def test_another_call_of_the_same_producer_is_not_taken_for_the_first(run, raw, add):
    run(add(a_job("j1"), ticket=a_ticket(1)))
    run(add(a_job("j1"), ticket=a_ticket(2)))

    assert raw.stream() == [an_entry("j1"), an_entry("j1")]


def test_calls_of_two_producers_do_not_share_a_memory(run, raw, add):
    run(add(a_job("j1"), ticket=a_ticket(1, producer_id="p1")))
    run(add(a_job("j2"), ticket=a_ticket(1, producer_id="p2")))

    assert raw.stream() == [an_entry("j1"), an_entry("j2")]


def test_a_call_is_forgotten_once_its_slot_was_needed_again(run, raw, add):
    call = add(a_job("j1"), ticket=a_ticket(1))
    run(call)
    run(add(a_job("j2"), ticket=a_ticket(1 + ring.SLOTS, slot=1)))
    run(call)

    assert raw.stream() == [an_entry("j1"), an_entry("j2"), an_entry("j1")]
    assert raw.everything()["sent:p1"] == {b"1": b"1:1"}


def test_a_whole_batch_that_does_not_fit_is_refused_whole(run, raw, add):
    raw.waiting(an_entry("old"))
    before = raw.everything()

    answer = run(add(a_job("j1"), a_job("j2"), capacity=Capacity(2)))

    assert answer == Added(count=0, depth=1)
    assert raw.everything() == before


def test_a_batch_that_need_not_be_whole_is_added_as_far_as_it_fits(run, raw, add):
    raw.waiting(an_entry("old"))
    call = add(a_job("j1"), a_job("j2"), a_job("j3"), capacity=Capacity(3), whole=False)

    assert run(call) == Added(count=2, depth=3)
    assert raw.stream() == [an_entry("old"), an_entry("j1"), an_entry("j2")]
    assert [line.split()[1] for line in raw.events()] == ["id=j1", "id=j2"]
    assert raw.everything()["sent:p1"] == {b"1": b"1:2"}


def test_a_full_queue_takes_nothing_and_a_refused_call_may_succeed_later(run, raw, keys, add):
    (old,) = raw.waiting(an_entry("old"))
    call = add(a_job("j1"), capacity=Capacity(1), whole=False)
    assert run(call) == Added(count=0, depth=1)
    raw.client.xdel(keys.stream, old)

    assert run(call) == Added(count=1, depth=1)
    assert raw.stream() == [an_entry("j1")]


def test_a_stream_beyond_its_limit_counts_as_full(run, raw, add):
    raw.waiting(an_entry("a"), an_entry("b"), an_entry("c"))

    assert run(add(a_job(), capacity=Capacity(1), whole=False)) == Added(count=0, depth=3)


def test_a_batch_that_fits_exactly_is_added(run, add):
    assert run(add(a_job("j1"), a_job("j2"), capacity=Capacity(2))) == Added(2, 2)


def test_a_limit_of_zero_is_none(run, raw, add):
    raw.waiting(an_entry("old"))

    assert run(add(a_job(), capacity=Capacity(0))) == Added(count=1, depth=2)


def test_trim_drops_the_oldest_and_tells_the_depth_that_is_left(run, raw, add):
    """The server trims by whole nodes of a hundred entries, hence the number of jobs."""
    jobs = [a_job(f"j{n}") for n in range(350)]

    answer = run(add(*jobs, capacity=Capacity(1, trim=True)))

    left = raw.stream()
    assert 1 <= len(left) < 350
    assert left == [an_entry(job.id) for job in jobs][-len(left) :]
    assert answer == Added(count=350, depth=len(left))


def test_the_events_stream_is_kept_at_its_cap(run, raw, keys, add):
    run(add(*(a_job(f"j{n}") for n in range(350)), telling=Telling(TOLD_MS, 100)))

    assert 100 <= raw.client.xlen(keys.events) < 350
    assert raw.events()[-1] == f"e=waiting id=j349 ts={TOLD_MS} n=mail"


def test_without_memory_nothing_is_added_and_the_same_call_works_later(
    run, raw, without_memory, add
):
    call = add(a_job("j1"), a_job("j2"))
    with without_memory(), pytest.raises(ServerReplyError) as refused:
        run(call)
    assert refused.value.kind == "OOM"
    assert raw.everything() == {"held": []}

    assert run(call) == Added(2, 2)
