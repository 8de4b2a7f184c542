"""`add_run.lua`: a run adds each of its jobs once, however often and from wherever it is sent."""

import pytest

from chasquimq.broker import delayed, runs, stream
from chasquimq.broker.runs import Memory, RunJob
from chasquimq.broker.stream import Capacity
from tests.support.broker_builders import (
    SILENT,
    TELLING,
    TOLD_MS,
    a_job,
    a_member,
    a_ticket,
    an_entry,
    an_envelope,
)

MEMORY = Memory(run_ttl_s=600, grace_s=3_600)


def a_run_job(job_id="a", name="mail", **more):
    return RunJob(job_id, an_envelope(job_id), name, **more)


@pytest.fixture
def add(run, keys):
    def send(*jobs, run_id="r1", limit=1_000, telling=TELLING):
        return run(runs.add(keys, run_id, jobs, limit=limit, memory=MEMORY, telling=telling))

    return send


def test_jobs_are_added_in_order_told_and_remembered(raw, keys, add):
    assert add(a_run_job("a"), a_run_job("b", "")) == "11"
    assert raw.stream() == [an_entry("a", "mail"), {"d": an_envelope("b")}]
    assert raw.events() == [f"e=waiting id=a ts={TOLD_MS} n=mail", f"e=waiting id=b ts={TOLD_MS}"]
    everything = raw.everything()
    assert sorted(everything) == ["events", "held", "seen:r1", "stream"]
    assert everything["seen:r1"] == {b"a", b"b"}
    assert raw.client.ttl(keys.seen("r1")) == 600


def test_a_job_that_comes_again_adds_nothing_and_holds_no_other_up(raw, add):
    add(a_run_job("a"), a_run_job("b"))
    before = raw.everything()
    assert add(a_run_job("b"), a_run_job("a")) == "00"
    assert raw.everything() == before
    assert add(a_run_job("c"), a_run_job("a")) == "10"


def test_two_runs_do_not_know_of_each_other(raw, add):
    assert add(a_run_job("a")) == add(a_run_job("a"), run_id="r2") == "1"
    assert len(raw.stream()) == 2


def test_what_does_not_fit_is_left_out_from_there_on(raw, add):
    assert add(*(a_run_job(each) for each in "abcd"), limit=3) == "111"
    assert add(a_run_job("a"), a_run_job("d"), a_run_job("b"), limit=3) == "0"
    assert [each["d"] for each in raw.stream()] == [an_envelope(each) for each in "abc"]


def test_jobs_with_a_time_go_to_the_delayed_set_even_if_the_stream_is_full(raw, keys, run, add):
    run_at_ms = raw.now_ms() + 60_000
    answer = add(a_run_job("a", run_at_ms=run_at_ms), a_run_job("b", "", delay_ms=30_000), limit=0)

    assert answer == "11"
    (b, due_b), (a, due_a) = raw.delayed()
    assert (a, due_a) == (a_member("a", "mail"), run_at_ms)
    assert b == a_member("b", "")
    assert abs(due_b - run_at_ms + 30_000) < 10_000
    assert raw.client.get(keys.delayed_index("a")) == a
    assert 3_600 < raw.client.ttl(keys.delayed_index("a")) <= 3_660
    assert [line.split(" delay_ms")[0] for line in raw.events()] == [
        f"e=delayed id=a ts={TOLD_MS} n=mail",
        f"e=delayed id=b ts={TOLD_MS}",
    ]
    assert raw.client.llen(keys.wake) == 1
    assert add(a_run_job("a", run_at_ms=run_at_ms + 5)) == "0"
    assert len(raw.delayed()) == 2


def test_a_bell_that_cannot_be_rung_keeps_no_job_from_being_noted(raw, keys, add):
    raw.client.set(keys.wake, "not a list", ex=60)
    assert add(a_run_job("a", delay_ms=60_000)) == "1"
    assert add(a_run_job("a", delay_ms=60_000)) == "0"


def test_a_job_added_with_a_time_can_be_cancelled(drive, keys, add, raw):
    add(a_run_job("a", delay_ms=60_000))
    assert drive(delayed.cancel(keys, "a"))
    assert raw.delayed() == []


def test_a_job_whose_time_is_past_goes_to_the_stream(raw, add):
    assert add(a_run_job("a", run_at_ms=raw.now_ms() - 5)) == "1"
    assert raw.stream() == [an_entry("a", "mail")]


def test_a_name_of_the_greatest_length_is_written_with_its_length(raw, add):
    add(a_run_job("a", "x" * 256, delay_ms=60_000))
    assert raw.delayed()[0][0] == a_member("a", "x" * 256)


def test_an_id_that_somebody_took_is_not_added_and_one_that_was_free_is_taken(run, raw, keys, add):
    capacity = Capacity(100)
    taken = stream.add_unique(
        keys, [a_job("a")], ticket=a_ticket(), capacity=capacity, telling=SILENT, marker_ttl_s=60
    )
    run(taken)
    assert add(a_run_job("a", is_unique=True), a_run_job("b", is_unique=True)) == "T1"
    assert raw.client.ttl(keys.dedup_marker("b")) == 3_600
    later = stream.add_unique(
        keys,
        [a_job("b")],
        ticket=a_ticket(2),
        capacity=capacity,
        telling=SILENT,
        marker_ttl_s=60,
    )
    assert run(later) == "0"
    assert len(raw.stream()) == 2


def test_nothing_is_told_if_nobody_wants_to_hear(raw, add):
    add(a_run_job("a"), telling=SILENT)
    assert raw.events() == []


def test_a_server_without_memory_adds_nothing_and_remembers_nothing(raw, keys, add, without_memory):
    add(a_run_job("a"))
    with without_memory(), pytest.raises(Exception, match="OOM"):
        add(a_run_job("b"))
    assert add(a_run_job("b")) == "1"
    assert len(raw.stream()) == 2
