"""`reschedule.lua`: a delayed job gets another time, and its keys live as long."""

import pytest

from chasquimq.broker import delayed, upkeep
from tests.support.broker_builders import (
    SILENT,
    TELLING,
    TOLD_MS,
    a_delayed_job,
    a_member,
    a_ticket,
)

HOUR_MS = 3_600_000


@pytest.fixture
def schedule(run, keys):
    def schedule_jobs(*jobs):
        return run(delayed.schedule(keys, jobs, ticket=a_ticket(), telling=SILENT, grace_s=3_600))

    return schedule_jobs


@pytest.fixture
def reschedule(run, keys):
    def change(delay_ms=0, run_at_ms=None, job_id="a", name="mail", telling=TELLING):
        member = a_member(job_id, name)
        due = (delay_ms, run_at_ms)
        return run(
            upkeep.reschedule(
                keys, member, job=(job_id, name), due=due, grace_s=3_600, telling=telling
            )
        )

    return change


def test_a_delay_counts_from_the_servers_clock_and_the_keys_live_longer(
    raw, keys, schedule, reschedule
):
    schedule(a_delayed_job("a", delay_ms=1_000, is_unique=True))
    before_ms = raw.now_ms()
    assert reschedule(2 * HOUR_MS) is True
    [(member, score)] = raw.delayed()
    assert member == a_member("a")
    assert before_ms + 2 * HOUR_MS <= score <= raw.now_ms() + 2 * HOUR_MS
    for key in (keys.delayed_index("a"), keys.dedup_marker("a")):
        assert 3 * 3_600 - 5 <= raw.client.ttl(key) <= 3 * 3_600
    assert raw.events() == [f"e=delayed id=a ts={TOLD_MS} n=mail delay_ms={2 * HOUR_MS}"]


def test_an_instant_is_kept_to_the_millisecond(raw, schedule, reschedule):
    schedule(a_delayed_job("a", ""))
    assert reschedule(run_at_ms=9_000_000_000_123, name="", telling=SILENT) is True
    assert raw.delayed() == [(a_member("a", ""), 9_000_000_000_123)]
    assert raw.events() == []


def test_a_job_without_keys_gets_none(raw, keys, reschedule):
    raw.client.zadd(keys.delayed, {a_member("a"): 7})
    assert reschedule(HOUR_MS, telling=SILENT) is True
    assert sorted(raw.everything()) == ["delayed", "held", "wake"]


def test_who_becomes_the_first_wakes_the_promoter_and_others_do_not(
    raw, keys, schedule, reschedule
):
    schedule(a_delayed_job("a"), a_delayed_job("b"))
    raw.client.delete(keys.wake)
    reschedule(HOUR_MS)
    assert raw.client.llen(keys.wake) == 0
    reschedule(0)
    assert raw.client.llen(keys.wake) == 1
    assert 0 < raw.client.pttl(keys.wake) <= 10_000


def test_a_bell_that_cannot_be_rung_keeps_no_job_from_its_new_time(raw, keys, reschedule):
    raw.client.zadd(keys.delayed, {a_member("a"): 7})
    raw.client.set(keys.wake, "not a list", ex=60)
    assert reschedule(HOUR_MS) is True


def test_a_job_that_is_not_delayed_any_more_is_not_brought_back(raw, reschedule):
    assert reschedule(HOUR_MS) is False
    assert raw.everything() == {"held": []}
