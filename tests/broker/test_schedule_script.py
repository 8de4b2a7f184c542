"""`schedule.lua`: jobs wait in the delayed set, each id once, due by the server's clock."""

import json
from pathlib import Path

import pytest

from chasquimq.broker import bells, delayed, ring
from chasquimq.broker.delayed import INDEXED_BYTES, DelayedJob
from chasquimq.errors import ServerReplyError
from chasquimq.wire.member import decode_member
from tests.support.broker_builders import (
    SILENT,
    TELLING,
    TOLD_MS,
    a_delayed_job,
    a_member,
    a_ticket,
    an_envelope,
)

WIRE = Path(__file__).parents[1] / "unit" / "wire" / "golden" / "wire.json"
GRACE_S = 3_600
WAKE_MS = 10_000
LARGE = b"x" * INDEXED_BYTES


@pytest.fixture
def schedule(keys):
    def call(*jobs, ticket=None, telling=TELLING):
        return delayed.schedule(
            keys, jobs, ticket=ticket or a_ticket(), telling=telling, grace_s=GRACE_S
        )

    return call


def test_a_job_is_put_in_the_set_indexed_told_and_remembered(run, raw, schedule):
    assert run(schedule(a_delayed_job("j1", "mail", delay_ms=60_000), ticket=a_ticket(4))) == "1"

    ((member, score),) = raw.delayed()
    assert member == a_member("j1", "mail")
    assert raw.events() == [f"e=delayed id=j1 ts={TOLD_MS} n=mail delay_ms=60000"]
    assert raw.everything() == {
        "held": [],
        "delayed": [(member, score)],
        "didx:j1": member,
        "events": raw.client.xrange(raw.keys.events),
        "sent:p1": {b"4": b"4:1"},
        "wake": [b"1"],
    }
    assert raw.client.ttl(raw.keys.sent("p1")) == ring.TTL_S


def test_a_delay_is_counted_from_the_servers_clock(run, raw, schedule):
    """The producer's own clock is years behind: it shows in the event's `ts` and nowhere else."""
    earliest = raw.now_ms() + 60_000
    run(schedule(a_delayed_job(delay_ms=60_000)))
    latest = raw.now_ms() + 60_000

    ((_, score),) = raw.delayed()
    assert earliest <= score <= latest
    assert earliest > TOLD_MS + 60_000


def test_an_instant_is_kept_as_it_is(run, raw, schedule):
    run_at_ms = raw.now_ms() + 90_500
    run(schedule(a_delayed_job(delay_ms=0, run_at_ms=run_at_ms)))

    assert raw.delayed() == [(a_member(), run_at_ms)]
    told_ms = int(raw.events()[0].rpartition("=")[2])
    assert 85_000 < told_ms <= 90_500


def test_an_instant_in_the_past_is_due_at_once(run, raw, keys, schedule):
    run(schedule(a_delayed_job(run_at_ms=1_000, is_unique=True)))

    assert raw.delayed() == [(a_member(), 1_000)]
    assert raw.events() == [f"e=delayed id=j1 ts={TOLD_MS} n=mail delay_ms=0"]
    assert raw.client.ttl(keys.dedup_marker("j1")) == 1 + GRACE_S


def test_a_unique_job_leaves_what_the_reference_engine_leaves(run, raw, keys, schedule):
    """The golden vector: one hour's delay, so marker and index live for two."""
    vectors = json.loads(WIRE.read_text())["vectors"]
    golden = next(each for each in vectors if each["name"] == "delayed-with-id")
    ((member_hex, _),) = golden["delayed"]
    name, envelope = decode_member(bytes.fromhex(member_hex))
    job = DelayedJob(golden["job_id"], envelope, name, delay_ms=3_600_000, is_unique=True)

    assert run(schedule(job)) == "1"

    (before_due, after_due) = raw.now_ms() + 3_590_000, raw.now_ms() + 3_600_000
    ((member, score),) = raw.delayed()
    assert member.hex() == member_hex
    assert before_due < score <= after_due
    for key, kept in golden["keys"].items():
        ours = key.replace("{chasqui:g7}", keys.tag.decode())
        assert raw.client.get(ours).hex() == kept["value"]
        assert raw.client.ttl(ours) == kept["ttl"]


@pytest.mark.parametrize(
    ("delay_ms", "ttl_s"), [(1, 3_601), (1_999, 3_601), (2_000, 3_602), (7_200_000, 10_800)]
)
def test_marker_and_index_outlive_the_due_time_by_the_grace(
    run, raw, keys, schedule, delay_ms, ttl_s
):
    run(schedule(a_delayed_job(delay_ms=delay_ms, is_unique=True)))

    assert raw.client.ttl(keys.dedup_marker("j1")) == ttl_s
    assert raw.client.ttl(keys.delayed_index("j1")) == ttl_s


def test_an_id_nobody_chose_gets_an_index_and_no_marker(run, raw, schedule):
    run(schedule(a_delayed_job("j1", is_unique=False)))

    assert {"didx:j1", "dlid:j1"} & set(raw.everything()) == {"didx:j1"}


def test_a_large_job_is_kept_once_and_not_a_second_time_as_its_index(run, raw, schedule):
    run(schedule(a_delayed_job("j1", data=LARGE)))

    assert len(raw.delayed()) == 1
    assert {"didx:j1", "dlid:j1"} & set(raw.everything()) == set()


def test_a_large_job_whose_id_was_chosen_has_its_index_all_the_same(run, raw, schedule):
    run(schedule(a_delayed_job("j1", data=LARGE, is_unique=True)))

    everything = raw.everything()
    assert everything["didx:j1"] == raw.delayed()[0][0]
    assert everything["dlid:j1"] == b"1"


def test_a_taken_id_changes_nothing_not_even_the_due_time(run, raw, schedule):
    run(schedule(a_delayed_job("a", delay_ms=60_000, is_unique=True)))
    before = raw.everything()

    again = a_delayed_job("a", delay_ms=1, is_unique=True)
    assert run(schedule(again, ticket=a_ticket(1, producer_id="p2"))) == "0"
    assert raw.everything() == before | {"sent:p2": {b"1": b"1:0"}}


def test_a_taken_id_does_not_keep_the_others_of_its_batch_back(run, raw, schedule):
    run(schedule(a_delayed_job("b", is_unique=True), ticket=a_ticket(1)))
    jobs = [a_delayed_job(job_id, is_unique=True) for job_id in "abac"]

    assert run(schedule(*jobs, ticket=a_ticket(2))) == "1001"
    assert {member for member, _ in raw.delayed()} == {a_member(job_id) for job_id in "abc"}


def test_a_job_whose_id_nobody_chose_is_not_held_against_a_marker(run, raw, keys, schedule):
    raw.client.set(keys.dedup_marker("j1"), "1", ex=60)

    assert run(schedule(a_delayed_job("j1", is_unique=False))) == "1"


def test_a_call_that_is_sent_again_says_what_happened_the_first_time(run, raw, schedule):
    run(schedule(a_delayed_job("taken", is_unique=True), ticket=a_ticket(1)))
    call = schedule(
        a_delayed_job("a", is_unique=True),
        a_delayed_job("taken", is_unique=True),
        a_delayed_job("free"),
        ticket=a_ticket(2),
    )
    assert run(call) == "101"
    before = raw.everything()

    assert run(call) == "101"
    assert raw.everything() == before


def test_a_call_that_is_sent_again_after_promotion_does_not_bring_the_job_back(
    run, raw, keys, schedule
):
    call = schedule(a_delayed_job("a", delay_ms=1, is_unique=True))
    assert run(call) == "1"
    raw.client.delete(keys.delayed)

    assert run(call) == "1"
    assert raw.delayed() == []


def test_an_unnamed_job_has_an_empty_prefix_and_no_name_in_its_event(run, raw, schedule):
    run(schedule(a_delayed_job("j1", "")))

    assert raw.delayed()[0][0] == bytes(4) + an_envelope("j1")
    assert raw.events() == [f"e=delayed id=j1 ts={TOLD_MS} delay_ms=60000"]


def test_with_events_off_nothing_is_told(run, raw, schedule):
    assert run(schedule(a_delayed_job(), telling=SILENT)) == "1"
    assert raw.events() == []


def test_the_promoter_is_woken_for_a_job_that_is_due_before_all_others(run, raw, keys, schedule):
    run(schedule(a_delayed_job("late", delay_ms=60_000), ticket=a_ticket(1)))
    raw.client.delete(keys.wake)

    run(schedule(a_delayed_job("early", delay_ms=30_000), ticket=a_ticket(2)))

    assert raw.client.lrange(keys.wake, 0, -1) == [b"1"]
    assert 0 < raw.client.pttl(keys.wake) <= WAKE_MS


@pytest.mark.parametrize("later_ms", [0, 30_000])
def test_the_promoter_is_not_woken_for_a_job_beside_or_behind_another(
    run, raw, keys, schedule, later_ms
):
    due_ms = raw.now_ms() + 30_000
    run(schedule(a_delayed_job("first", run_at_ms=due_ms), ticket=a_ticket(1)))
    raw.client.delete(keys.wake)

    run(schedule(a_delayed_job("second", run_at_ms=due_ms + later_ms), ticket=a_ticket(2)))

    assert not raw.client.exists(keys.wake)


def test_one_wake_up_call_is_enough_for_all(run, raw, keys, schedule):
    run(schedule(a_delayed_job("late", delay_ms=60_000), ticket=a_ticket(1)))
    run(schedule(a_delayed_job("early", delay_ms=30_000), ticket=a_ticket(2)))

    assert raw.client.lrange(keys.wake, 0, -1) == [b"1"]


def test_a_bell_that_cannot_be_rung_keeps_no_job_from_being_acknowledged(run, raw, keys, schedule):
    raw.client.set(keys.wake, "not a list", ex=60)
    call = schedule(a_delayed_job())

    assert run(call) == "1"
    assert run(call) == "1"  # it was noted: who sends it again adds nothing
    assert len(raw.delayed()) == 1


def test_the_wake_up_call_is_heard(run, connect, keys, schedule):
    run(schedule(a_delayed_job()))

    assert connect().run(bells.wait_for_ring(keys.wake, 5_000)) is True


def test_without_a_wake_up_call_the_wait_ends_by_itself(run, keys):
    assert run(bells.wait_for_ring(keys.wake, 1)) is False


def test_a_wait_that_the_server_refuses_is_not_taken_for_a_wake_up_call(run, raw, keys):
    raw.client.set(keys.wake, "not a list", ex=60)

    with pytest.raises(ServerReplyError) as refused:
        run(bells.wait_for_ring(keys.wake, 1))
    assert refused.value.kind == "WRONGTYPE"


def test_without_memory_nothing_is_scheduled_and_the_same_call_works_later(
    run, raw, without_memory, schedule
):
    call = schedule(a_delayed_job("a", is_unique=True), a_delayed_job("b"))
    with without_memory(), pytest.raises(ServerReplyError) as refused:
        run(call)
    assert refused.value.kind == "OOM"
    assert raw.everything() == {"held": []}

    assert run(call) == "11"
