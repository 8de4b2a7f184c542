"""A worker that dies, with no chance to do anything about it."""

import signal

import pytest

from chasquimq.metrics import DlqRouted, JobOutcome
from tests.support.eventually import eventually

LEASE_MS = 300


async def nothing(job):
    return None


async def test_a_job_whose_worker_was_killed_runs_again_as_its_second_attempt(scene, start_worker):
    job = await scene.queue.add("hold", 1)
    victim = await start_worker(scene, lease_ms=LEASE_MS)
    assert (await victim.until("started"))[0]["attempt"] == 1
    await eventually(lambda: scene.events("active"))  # told in batches: it may be on its way
    victim.send(signal.SIGKILL)
    assert await victim.ended() == -signal.SIGKILL
    async with scene.working(nothing, lease_ms=LEASE_MS) as sink:
        outcome = await sink.next(JobOutcome)
    assert outcome.attempt == 2
    assert scene.story(job.id) == ["waiting", "active", "active", "completed"]
    assert scene.is_empty()


async def test_no_job_of_a_killed_worker_is_lost(scene, start_worker):
    await scene.queue.add_bulk([{"name": "hold", "data": n} for n in range(20)])
    victim = await start_worker(scene, lease_ms=LEASE_MS, concurrency=8)
    await victim.until("started", 8)
    victim.send(signal.SIGKILL)
    await victim.ended()
    ran = []

    async def handler(job):
        ran.append((job.data, job.attempt))

    async with scene.working(handler, lease_ms=LEASE_MS) as sink:
        await sink.take(JobOutcome, 20)
    assert sorted(ran) == [(n, 2 if n < 8 else 1) for n in range(20)]
    assert scene.is_empty()


@pytest.mark.servers("redis-8.6", "valkey")
async def test_a_job_that_always_kills_its_worker_has_its_budget_of_runs_exactly(
    scene, start_worker
):
    job = await scene.queue.add("die", 1)
    attempts = []
    for _ in range(3):
        victim = await start_worker(scene, lease_ms=LEASE_MS)
        assert await victim.ended() == -signal.SIGKILL
        attempts += [report["attempt"] for report in victim.told("started")]
    async with scene.working(nothing, lease_ms=LEASE_MS, max_attempts=3) as sink:
        assert await sink.next(DlqRouted) == DlqRouted("retries_exhausted", 3, "die")
    assert attempts == [1, 2, 3]
    assert sink.seen(JobOutcome) == []
    (letter,) = await scene.dead()
    assert letter["error"] == "the worker died or went silent during the last run"
    assert letter["attempts"] == 3
    assert scene.story(job.id)[-1] == "dlq"
    assert scene.is_empty()


@pytest.mark.servers("redis-8.6", "valkey")
async def test_runs_that_failed_and_runs_that_killed_count_together(scene, start_worker):
    await scene.queue.add("die", 1)
    victim = await start_worker(scene, lease_ms=LEASE_MS)
    await victim.ended()
    assert [report["attempt"] for report in victim.told("started")] == [1]
    scene.client.delete(scene.keys.promoter_lock)  # rather than wait for the dead leader's time

    async def fail(job):
        message = "this worker lives"
        raise ValueError(message)

    async with scene.working(fail, lease_ms=LEASE_MS, max_attempts=3) as sink:
        await sink.next(DlqRouted)
    assert [outcome.attempt for outcome in sink.seen(JobOutcome)] == [2, 3]
    assert scene.is_empty()


@pytest.mark.servers("redis-8.6", "valkey")
async def test_a_dead_leader_is_followed_by_another_and_delayed_jobs_go_on(scene, start_worker):
    leader = await start_worker(scene, consumer_id="c-leader")
    await eventually(lambda: scene.client.get(scene.keys.promoter_lock) == b"c-leader")
    leader.send(signal.SIGKILL)
    await leader.ended()
    scene.client.pexpire(scene.keys.promoter_lock, 50)  # rather than wait for all of its time
    await scene.queue.add("n", 1, delay_ms=1)
    async with scene.working(nothing) as sink:
        await sink.next(JobOutcome)


async def test_a_worker_killed_while_it_is_throttled_leaves_nothing_stuck(scene, start_worker):
    """Tokens were spent for what it had taken, and for no more; the bucket refills without it."""
    limit = {"rate_limit_max": 3, "rate_limit_duration_ms": 600, "lease_ms": LEASE_MS}
    await scene.queue.add_bulk([{"name": "hold", "data": n} for n in range(6)])
    victim = await start_worker(scene, **limit)
    await victim.until("started", 3)
    await eventually(lambda: scene.events("rate-limited"))
    victim.send(signal.SIGKILL)
    await victim.ended()
    ran = []

    async def handler(job):
        ran.append(job.data)

    async with scene.working(handler, **limit):
        await eventually(scene.is_empty)
    assert sorted(set(ran)) == list(range(6))


async def test_a_worker_killed_on_a_paused_queue_leaves_the_pause_and_the_jobs(scene, start_worker):
    scene.client.set(scene.keys.paused, "1")
    await scene.queue.add_bulk([{"name": "hold", "data": n} for n in range(3)])
    victim = await start_worker(scene, lease_ms=LEASE_MS)
    await eventually(lambda: scene.client.xinfo_groups(scene.keys.stream))
    victim.send(signal.SIGKILL)
    await victim.ended()
    assert (scene.depth(), scene.pending()) == (3, [])
    async with scene.working(nothing, lease_ms=LEASE_MS) as sink:
        scene.client.delete(scene.keys.paused)
        outcomes = await sink.take(JobOutcome, 3)
    assert [outcome.attempt for outcome in outcomes] == [1, 1, 1]
