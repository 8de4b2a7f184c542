"""Recurring jobs: said once, run again and again."""

import asyncio

import pytest

from chasquimq import MissedFiresPolicy, RepeatPattern, describe, next_fires
from chasquimq.testing import running


async def test_a_recurring_job_is_fired_by_the_workers(queue, make_worker):
    """Say what recurs and when; every worker can fire it, and each window is fired once."""
    ran = asyncio.Queue()
    key = (await queue.add("tick", {"n": 1}, repeat=RepeatPattern.every(250))).id
    async with running(make_worker(ran.put)), running(make_worker(ran.put)):
        jobs = [await ran.get() for _ in range(5)]
    assert key == "tick::every:250"
    windows = sorted(int(job.id.removeprefix(f"{key}@")) for job in jobs)
    assert [later - windows[0] for later in windows] == [0, 250, 500, 750, 1_000]
    assert [(job.name, job.data) for job in jobs] == [("tick", {"n": 1})] * 5


async def test_recurring_jobs_are_listed_and_removed_by_their_key(queue):
    nightly = RepeatPattern.cron("0 2 * * *", tz="America/New_York")
    await queue.upsert_repeatable_job(
        "digest", {}, repeat=nightly, limit=10, missed_fires=MissedFiresPolicy.fire_once()
    )
    [listed] = await queue.get_repeatable_jobs()
    assert listed.key == "digest::cron:0 2 * * *:America/New_York"
    assert (listed.pattern, listed.limit) == (nightly, 10)
    assert await queue.remove_repeatable_by_key(listed.key) is True
    assert await queue.get_repeatable_jobs() == []


async def test_a_recurring_job_can_be_paused_and_run_by_hand(queue, make_worker):
    ran = asyncio.Queue()
    key = (await queue.add("tick", None, repeat=RepeatPattern.every(3_600_000))).id
    assert await queue.pause_repeatable(key) is True
    assert [each.paused for each in await queue.get_repeatable_jobs()] == [True]
    job_id = await queue.run_repeatable_now(key)
    async with running(make_worker(ran.put)):
        job = await ran.get()
    assert job.id == job_id
    assert await queue.resume_repeatable(key) is True
    assert [(each.paused, each.fired) for each in await queue.get_repeatable_jobs()] == [(False, 0)]
    assert await queue.run_repeatable_now("no such key") is None


def test_a_pattern_can_be_read_before_it_is_used():
    weekdays = RepeatPattern.cron("30 9 * * MON-FRI", tz="Europe/London")
    assert describe(weekdays) == "At 09:30 on Monday through Friday (Europe/London)"
    assert describe(RepeatPattern.every(300_000)) == "Every 5 minutes"
    assert [moment.minute for moment in next_fires(weekdays, 3)] == [30, 30, 30]


@pytest.mark.parametrize(
    ("pattern", "part"),
    [
        (RepeatPattern.cron("61 * * * *"), "'61' is not a valid minute"),
        (RepeatPattern.cron("* * * * *", tz="Mars/Base"), "'Mars/Base' is unknown"),
        (RepeatPattern.every(50), "shortest interval"),
    ],
)
async def test_a_pattern_that_cannot_work_is_refused_at_once(queue, pattern, part):
    with pytest.raises(ValueError, match=part):
        await queue.add("tick", None, repeat=pattern)
    assert await queue.get_repeatable_jobs() == []
