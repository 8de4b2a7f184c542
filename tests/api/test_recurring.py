"""Recurring jobs through both doors: what may be said about them, and what is told."""

import time
from datetime import UTC, datetime, timedelta, timezone

import pytest

from chasquimq import BackoffSpec, RepeatPattern
from chasquimq.errors import ConfigError, ServerReplyError
from chasquimq.wire.keys import QueueKeys

EVERY = RepeatPattern.every(3_600_000)
START = datetime(2090, 1, 31, 8, tzinfo=UTC)
START_MS = int(START.timestamp() * 1_000)
DAY_MS = 86_400_000


@pytest.mark.parametrize(
    "start",
    [START_MS, START, START.astimezone(timezone(timedelta(hours=5))), START.replace(tzinfo=None)],
    ids=["epoch-ms", "utc", "another-zone", "naive"],
)
async def test_a_start_and_an_end_may_be_datetimes(door, start):
    end = start + (DAY_MS if isinstance(start, int) else timedelta(days=1))
    await door.upsert_repeatable_job("n", 1, repeat=EVERY, start_after_ms=start, end_before_ms=end)
    [meta] = await door.get_repeatable_jobs()
    assert (meta.start_after_ms, meta.end_before_ms) == (START_MS, START_MS + DAY_MS)
    assert meta.next_fire_ms == START_MS + 3_600_000


@pytest.mark.parametrize("name", ["start_after_ms", "end_before_ms"])
@pytest.mark.parametrize(
    ("value", "error"),
    [("2090-01-31", TypeError), (1.5, TypeError), (timedelta(days=1), TypeError), (-1, ValueError)],
)
async def test_a_bound_that_is_no_instant_is_refused_by_its_name(door, name, value, error):
    with pytest.raises(error, match=name):
        await door.upsert_repeatable_job("n", 1, repeat=EVERY, **{name: value})
    assert await door.get_repeatable_jobs() == []


async def test_what_fires_take_along_can_be_seen_in_the_list(door):
    backoff = BackoffSpec.exponential(100, max_ms=5_000)
    await door.upsert_repeatable_job(
        "digest", 1, repeat=EVERY, attempts=5, backoff=backoff, job_id="daily"
    )
    [meta] = await door.get_repeatable_jobs()
    assert (meta.attempts, meta.backoff, meta.job_id) == (5, backoff, "daily")
    await door.upsert_repeatable_job("digest", 1, repeat=EVERY)
    [meta] = await door.get_repeatable_jobs()
    assert (meta.attempts, meta.backoff, meta.job_id) == (None, None, None)


async def test_a_recurring_job_that_the_server_does_not_tell_is_not_said_to_be_gone(
    door, server, queue_name
):
    job = await door.upsert_repeatable_job("n", 1, repeat=EVERY)
    server.client().set(QueueKeys(queue_name).repeat_spec(job.id), "something else")
    for change in (door.run_repeatable_now, door.pause_repeatable, door.resume_repeatable):
        with pytest.raises(ServerReplyError, match="WRONGTYPE"):
            await change(job.id)
    assert await door.remove_repeatable_by_key(job.id)
    assert await door.run_repeatable_now(job.id) is None


async def test_what_is_stored_in_other_words_keeps_the_key_that_was_written(door):
    job = await door.add("n", 1, repeat=RepeatPattern.cron("@midnight"))
    [meta] = await door.get_repeatable_jobs()
    assert meta.key == job.id == "n::cron:@midnight:UTC"
    assert meta.pattern == RepeatPattern.cron("0 0 * * *")
    assert await door.remove_repeatable_by_key(job.id)


@pytest.mark.parametrize("wrong_by_ms", [-240_000, 240_000])
async def test_the_first_window_is_counted_by_the_servers_clock(
    door, server, monkeypatch, wrong_by_ms
):
    right_ns = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: right_ns() + wrong_by_ms * 1_000_000)
    seconds, _ = server.client().time()
    await door.upsert_repeatable_job("n", 1, repeat=EVERY)
    until, _ = server.client().time()
    [meta] = await door.get_repeatable_jobs()
    assert seconds * 1_000 <= meta.next_fire_ms - 3_600_000 < (until + 1) * 1_000


async def test_what_never_fires_again_is_refused_and_nothing_is_stored(door):
    ended = datetime(2020, 1, 1, tzinfo=UTC)
    with pytest.raises(ValueError, match="before the first fire"):
        await door.upsert_repeatable_job("n", 1, repeat=EVERY, end_before_ms=ended)
    assert await door.get_repeatable_jobs() == []


@pytest.mark.parametrize(
    ("name", "data", "job_id", "words"),
    [
        ("n" * 257, 1, None, "job name exceeds 256-byte cap"),
        ("n", 1, "i" * 1_000, "job_id takes 1027 bytes"),
        ("n", "x" * (1 << 20), None, "takes 10[0-9]+ bytes, max_payload_bytes is 1048576"),
    ],
)
async def test_what_no_add_takes_no_recurring_job_fires(door, name, data, job_id, words):
    with pytest.raises((ConfigError, ValueError), match=words):
        await door.upsert_repeatable_job(name, data, repeat=EVERY, job_id=job_id)
    with pytest.raises((ConfigError, ValueError), match=words):
        await door.add(name, data, repeat=EVERY, job_id=job_id)
    assert await door.get_repeatable_jobs() == []
