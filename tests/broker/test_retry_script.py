"""`retry.lua`: a failed delivery waits for its next attempt, if it is still ours to move."""

import pytest

from chasquimq.broker import delayed
from chasquimq.broker.delayed import INDEXED_BYTES
from chasquimq.errors import ServerReplyError
from tests.support.broker_builders import (
    SILENT,
    TELLING,
    TOLD_MS,
    a_delayed_job,
    a_member,
    a_relocation,
    a_ticket,
    an_entry,
    an_envelope,
)
from tests.support.raw_queue import GROUP

GRACE_S = 3_600


@pytest.fixture
def retry(keys):
    def call(*moves, consumer="c1", telling=TELLING):
        return delayed.retry(keys, GROUP, consumer, moves, telling=telling, grace_s=GRACE_S)

    return call


@pytest.fixture
def delivery(raw):
    (entry_id,) = raw.delivered("c1", an_entry("j1"))
    return entry_id


NEXT = a_member("j1", envelope=an_envelope("j1", attempt=1))


def test_the_next_attempt_is_delayed_indexed_and_told_and_the_entry_goes(
    run, raw, keys, retry, delivery
):
    earliest = raw.now_ms() + 60_000
    assert run(retry(a_relocation(delivery, backoff_ms=60_000))) == [True]
    latest = raw.now_ms() + 60_000

    ((member, score),) = raw.delayed()
    assert member == NEXT
    assert earliest <= score <= latest
    assert raw.events() == [
        f"e=retry-scheduled id=j1 ts={TOLD_MS} n=mail attempt=2 backoff_ms=60000"
    ]
    assert raw.everything() == {
        "held": [],
        "stream": [],
        "delayed": [(NEXT, score)],
        "didx:j1": NEXT,
        "events": raw.client.xrange(keys.events),
        "wake": [b"1"],
    }
    assert raw.client.ttl(keys.delayed_index("j1")) == 60 + GRACE_S


def test_a_retry_is_dropped_when_another_consumer_claimed_the_entry(run, raw, retry, delivery):
    raw.claimed("c2", [delivery])
    before = raw.everything()

    assert run(retry(a_relocation(delivery))) == [False]
    assert raw.everything() == before


def test_the_consumer_that_claimed_the_entry_may_retry_it(run, raw, retry, delivery):
    raw.claimed("c2", [delivery])

    assert run(retry(a_relocation(delivery), consumer="c2")) == [True]
    assert [member for member, _ in raw.delayed()] == [NEXT]


def test_a_retry_is_dropped_when_the_entry_was_completed(run, raw, keys, retry, delivery):
    raw.client.xack(keys.stream, GROUP, delivery)
    raw.client.xdel(keys.stream, delivery)
    before = raw.everything()

    assert run(retry(a_relocation(delivery))) == [False]
    assert raw.everything() == before


def test_an_entry_that_nobody_has_read_is_not_ours(run, raw, retry):
    (unread,) = raw.waiting(an_entry("j1"))
    before = raw.everything()

    assert run(retry(a_relocation(unread))) == [False]
    assert raw.everything() == before


def test_a_call_that_is_sent_again_does_not_delay_the_job_twice(run, raw, retry, delivery):
    call = retry(a_relocation(delivery))
    assert run(call) == [True]
    before = raw.everything()

    assert run(call) == [False]
    assert raw.everything() == before


def test_other_deliveries_are_left_alone(run, raw, retry):
    (first, second) = raw.delivered("c1", an_entry("j1"), an_entry("j2"))

    assert run(retry(a_relocation(first, "j1"))) == [True]
    assert raw.entry_ids() == [second]
    assert [held.entry_id for held in raw.held()] == [second]


def test_a_batch_is_answered_one_by_one(run, raw, keys, retry):
    """One of ours, one that another claimed, one that is settled, one large, one unnamed."""
    ids = raw.delivered("c1", *(an_entry(name) for name in ("j1", "j2", "j3", "j4", "j5")))
    raw.claimed("c2", [ids[1]])
    raw.client.xack(keys.stream, GROUP, ids[2])
    raw.client.xdel(keys.stream, ids[2])

    answer = run(
        retry(
            a_relocation(ids[0], "j1", backoff_ms=60_000),
            a_relocation(ids[1], "j2"),
            a_relocation(ids[2], "j3"),
            a_relocation(ids[3], "j4", data=b"x" * INDEXED_BYTES, backoff_ms=30_000),
            a_relocation(ids[4], "j5", "", backoff_ms=90_000),
        )
    )

    assert answer == [True, False, False, True, True]
    assert raw.entry_ids() == [ids[1]]
    assert [held.entry_id for held in raw.held()] == [ids[1]]
    due = [score for _, score in raw.delayed()]
    assert [later - due[0] for later in due] == [0, 30_000, 60_000]
    assert [name for name in sorted(raw.everything()) if name.startswith("didx")] == [
        "didx:j1",
        "didx:j5",
    ]
    assert raw.client.get(keys.delayed_index("j5")) == raw.delayed()[2][0]
    assert raw.events() == [
        f"e=retry-scheduled id=j1 ts={TOLD_MS} n=mail attempt=2 backoff_ms=60000",
        f"e=retry-scheduled id=j4 ts={TOLD_MS} n=mail attempt=2 backoff_ms=30000",
        f"e=retry-scheduled id=j5 ts={TOLD_MS} attempt=2 backoff_ms=90000",
    ]
    assert raw.client.lrange(keys.wake, 0, -1) == [b"1"]


def test_an_unnamed_job_stays_unnamed(run, raw, retry, delivery):
    run(retry(a_relocation(delivery, "j1", "")))

    assert raw.delayed()[0][0] == bytes(4) + an_envelope("j1", attempt=1)
    assert raw.events() == [f"e=retry-scheduled id=j1 ts={TOLD_MS} attempt=2 backoff_ms=60000"]


def test_with_events_off_nothing_is_told(run, raw, retry, delivery):
    assert run(retry(a_relocation(delivery), telling=SILENT)) == [True]
    assert raw.events() == []


def test_a_large_job_gets_no_index(run, raw, retry, delivery):
    run(retry(a_relocation(delivery, data=b"x" * INDEXED_BYTES)))

    assert len(raw.delayed()) == 1
    assert "didx:j1" not in raw.everything()


def test_a_retry_without_delay_is_due_at_once(run, raw, keys, retry, delivery):
    run(retry(a_relocation(delivery, backoff_ms=0)))

    assert raw.delayed()[0][1] <= raw.now_ms()
    assert raw.client.ttl(keys.delayed_index("j1")) == 1 + GRACE_S
    assert raw.client.lrange(keys.wake, 0, -1) == [b"1"]


def test_the_promoter_is_woken_only_for_a_retry_that_is_due_before_all_others(
    run, raw, keys, retry
):
    raw.client.zadd(keys.delayed, {a_member("soon"): raw.now_ms() + 30_000})
    (late, early) = raw.delivered("c1", an_entry("late"), an_entry("early"))

    run(retry(a_relocation(late, "late", backoff_ms=60_000)))
    assert not raw.client.exists(keys.wake)

    run(retry(a_relocation(early, "early", backoff_ms=10_000)))
    assert raw.client.lrange(keys.wake, 0, -1) == [b"1"]
    assert 0 < raw.client.pttl(keys.wake) <= 10_000


def test_a_bell_that_cannot_be_rung_keeps_no_retry_from_being_told(run, raw, keys, retry, delivery):
    raw.client.set(keys.wake, "not a list", ex=60)

    assert run(retry(a_relocation(delivery))) == [True]
    assert [member for member, _ in raw.delayed()] == [NEXT]
    assert len(raw.events()) == 1


def test_one_wake_up_call_is_enough_for_all(run, raw, keys, retry):
    (first, second) = raw.delivered("c1", an_entry("j1"), an_entry("j2"))
    run(retry(a_relocation(first, "j1", backoff_ms=60_000)))
    run(retry(a_relocation(second, "j2", backoff_ms=30_000)))

    assert raw.client.lrange(keys.wake, 0, -1) == [b"1"]


def test_the_index_of_an_earlier_delay_is_replaced(run, raw, keys, retry):
    job = a_delayed_job("j1", run_at_ms=1, is_unique=True)
    run(delayed.schedule(keys, [job], ticket=a_ticket(), telling=SILENT, grace_s=GRACE_S))
    run(delayed.promote(keys, holder="h", lock_ttl_s=5, batch=1, capacity=9, events_cap=0,
                        dlq_cap=9))  # fmt: skip
    (entry_id,) = raw.read("c1")

    run(retry(a_relocation(entry_id)))

    assert raw.client.get(keys.delayed_index("j1")) == NEXT
    assert raw.client.get(keys.dedup_marker("j1")) == b"1"


def test_without_memory_nothing_is_lost_and_the_same_call_works_later(
    run, raw, retry, delivery, without_memory
):
    before = raw.everything()
    call = retry(a_relocation(delivery))
    with without_memory(), pytest.raises(ServerReplyError) as refused:
        run(call)
    assert refused.value.kind == "OOM"
    assert raw.everything() == before

    assert run(call) == [True]
    assert [member for member, _ in raw.delayed()] == [NEXT]


def test_of_a_batch_that_is_refused_nothing_is_moved(run, raw, keys, retry, without_memory):
    ids = raw.delivered("c1", *map(an_entry, ("j1", "j2", "j3")))
    call = retry(*(a_relocation(each, f"j{n}") for n, each in enumerate(ids, 1)))
    before = raw.everything()
    with without_memory(), pytest.raises(ServerReplyError, match="OOM"):
        run(call)
    assert raw.everything() == before

    raw.client.set(keys.delayed, "not a set")
    with pytest.raises(ServerReplyError, match="WRONGTYPE"):
        run(call)
    raw.client.delete(keys.delayed)
    assert raw.everything() == before
    assert run(call) == [True, True, True]


def test_a_batch_that_is_sent_again_moves_what_is_left_of_it(run, raw, retry):
    ids = raw.delivered("c1", *map(an_entry, ("j1", "j2", "j3")))
    first, *others = (a_relocation(each, f"j{n}") for n, each in enumerate(ids, 1))
    run(retry(first))
    call = retry(first, *others)
    assert run(call) == [False, True, True]
    before = raw.everything()
    assert run(call) == [False, False, False]
    assert raw.everything() == before


def test_a_batch_may_be_large(run, raw, retry):
    ids = raw.delivered("c1", *(an_entry(f"j{n}") for n in range(2_001)))
    moves = [a_relocation(each, f"j{n}") for n, each in enumerate(ids)]
    assert run(retry(*moves, telling=SILENT)) == [True] * 2_001
    assert (raw.entry_ids(), raw.held(), len(raw.delayed())) == ([], [], 2_001)


def test_a_batch_wakes_the_promoter_if_any_of_it_is_due_before_all_others(run, raw, keys, retry):
    raw.client.zadd(keys.delayed, {a_member("soon"): raw.now_ms() + 30_000})
    ids = raw.delivered("c1", *map(an_entry, ("j1", "j2", "j3", "j4")))
    late = [a_relocation(each, f"j{n}", backoff_ms=60_000) for n, each in enumerate(ids, 1)]

    run(retry(*late[:2]))
    assert not raw.client.exists(keys.wake)

    run(retry(late[2], a_relocation(ids[3], "j4", backoff_ms=10_000)))
    assert raw.client.lrange(keys.wake, 0, -1) == [b"1"]


def test_a_lost_group_is_said_in_the_servers_word_for_it(run, raw, keys, retry, delivery):
    raw.client.xgroup_destroy(keys.stream, GROUP)

    with pytest.raises(ServerReplyError) as refused:
        run(retry(a_relocation(delivery)))
    assert refused.value.kind == "NOGROUP"
    assert raw.delayed() == []
