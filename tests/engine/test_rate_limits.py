"""Rate limits: shared by the workers of a queue, of one worker, and those a handler runs into."""

import pickle

import pytest

from chasquimq import ChasquiError, RateLimitError
from chasquimq.clock import SYSTEM_CLOCK
from chasquimq.metrics import JobOutcome, RateLimited, RetryScheduled
from tests.support.eventually import eventually
from tests.support.scene import GROUP, Scene, running, soon
from tests.support.sink import RecordingSink

# So slow that no token comes back while a test runs.
A_FEW = {"rate_limit_max": 3, "rate_limit_duration_ms": 3_600_000}
SCOPES = pytest.mark.parametrize("scope", ["queue", "worker"])


async def quick(job):
    return None


async def add(scene, count):
    return await scene.queue.add_bulk([{"name": "n", "data": n} for n in range(count)])


def instants():
    """A handler, and when it was called."""
    begun = []

    async def handler(job):
        begun.append(now_ms())

    return handler, begun


def now_ms():
    return SYSTEM_CLOCK.monotonic_us() / 1_000


@SCOPES
async def test_a_worker_takes_a_burst_and_then_as_many_as_come_back(scene, scope):
    handler, begun = instants()
    await add(scene, 40)
    limit = {"rate_limit_max": 10, "rate_limit_duration_ms": 200, "rate_limit_scope": scope}
    started = now_ms()
    async with scene.working(handler, **limit) as sink:
        await sink.take(JobOutcome, 40)
    # Ten at once, thirty more at ten in 200 ms; the server counts whole milliseconds.
    assert begun[-1] - started >= 598
    assert scene.is_empty()


async def test_workers_of_a_queue_share_its_limit(scene):
    handler, begun = instants()
    await add(scene, 60)
    limit = {"rate_limit_max": 10, "rate_limit_duration_ms": 500}
    started = now_ms()
    async with (
        scene.working(handler, **limit),
        scene.working(handler, **limit),
        scene.working(handler, **limit),
    ):
        await eventually(lambda: len(begun) >= 30)
    for number, at in enumerate(begun, 1):
        came_back = (at - started) / 50
        assert number <= 10 + came_back + 1, (
            "more than a full bucket and what had come back by then"
        )


@SCOPES
async def test_a_throttle_is_told_once_with_the_time_to_wait(scene, scope):
    await add(scene, 10)
    async with scene.working(quick, **A_FEW, rate_limit_scope=scope) as sink:
        limited = await sink.next(RateLimited)
        await sink.take(JobOutcome, 3)
        (event,) = await eventually(lambda: scene.events("rate-limited"))
        assert 0 < limited.wait_ms <= 1_200_000
        assert (event.job_id, event.fields["wait_ms"]) == (None, limited.wait_ms)
        # Steps go on; the episode is one.
        await scene.queue.add("n", 1)
        await eventually(lambda: scene.depth() == 8)
    assert len(sink.seen(RateLimited)) == len(scene.events("rate-limited")) == 1


async def test_where_something_else_stands_at_the_limit_nothing_is_taken_until_it_is_gone(
    scene, caplog
):
    scene.client.set(scene.keys.limiter, "not a hash")
    await add(scene, 2)
    async with scene.working(quick, **A_FEW) as sink:
        await eventually(lambda: "WRONGTYPE" in caplog.text)
        assert sink.seen(JobOutcome) == []
        assert scene.client.xpending_range(scene.keys.stream, GROUP, "-", "+", 10) == []
        scene.client.delete(scene.keys.limiter)
        await sink.take(JobOutcome, 2)


async def test_an_idle_worker_spends_no_tokens(scene):
    worker = scene.worker(quick, **A_FEW, read_block_ms=1, sink=(sink := RecordingSink()))
    async with running(worker):
        await soon(worker.wait_until_ready())
        idle = waits_for_entries(scene)
        await eventually(lambda: waits_for_entries(scene) >= idle + 10)
        await add(scene, 3)
        await sink.take(JobOutcome, 3)
    assert float(scene.client.hget(scene.keys.limiter, "t")) == pytest.approx(0, abs=0.01)


def waits_for_entries(scene):
    return scene.client.info("commandstats").get("cmdstat_xread", {"calls": 0})["calls"]


async def test_an_idle_limited_worker_has_a_new_job_at_once(scene):
    worker = scene.worker(quick, rate_limit_max=1_000, sink=(sink := RecordingSink()))
    async with running(worker):
        await soon(worker.wait_until_ready())
        took = []
        for _ in range(5):
            began = SYSTEM_CLOCK.monotonic_us()
            await scene.queue.add("n", 1)
            await sink.next(JobOutcome)
            took.append((SYSTEM_CLOCK.monotonic_us() - began) / 1_000)
    assert min(took) < 100, took


async def test_a_worker_that_dies_while_it_is_throttled_leaves_nothing_stuck(scene):
    """What it took is claimed by another, for a token of its own; what it did not take waits."""
    await add(scene, 5)
    async with scene.working(quick, **A_FEW, lease_ms=60) as first:
        await first.next(RateLimited)
        await first.take(JobOutcome, 3)
        # An outcome is told before its acknowledgement is written.
        await eventually(lambda: (scene.pending(), scene.depth()) == ([], 2))
    entry_ids = [entry_id for entry_id, _ in scene.client.xrange(scene.keys.stream)]
    scene.client.xreadgroup("default", "c-dead", {scene.keys.stream: ">"}, count=1)
    scene.client.delete(scene.keys.limiter)
    async with scene.working(quick, **A_FEW, lease_ms=60) as second:
        outcomes = await second.take(JobOutcome, 2)
    assert sorted(outcome.attempt for outcome in outcomes) == [1, 2]
    assert len(entry_ids) == 2
    assert scene.is_empty()


async def test_a_paused_queue_with_a_limit_gives_nothing_and_spends_nothing(scene):
    scene.client.set(scene.keys.paused, "1")
    await add(scene, 3)
    worker = scene.worker(quick, **A_FEW, sink=(sink := RecordingSink()))
    async with running(worker):
        await soon(worker.wait_until_ready())
        assert worker.is_paused()
        scene.client.delete(scene.keys.paused)
        await sink.take(JobOutcome, 3)


async def test_a_limited_worker_recreates_a_group_that_is_gone(scene):
    async with scene.working(quick, rate_limit_max=100, read_block_ms=10) as sink:
        await scene.queue.add("n", 1)
        await sink.next(JobOutcome)
        scene.client.xgroup_destroy(scene.keys.stream, "default")
        await scene.queue.add("n", 2)
        await sink.next(JobOutcome)


# --- rate_limit


@pytest.mark.parametrize(
    "limit", [{}, {"rate_limit_max": 100, "rate_limit_scope": "worker"}, {"rate_limit_max": 100}]
)
async def test_rate_limit_lets_the_worker_take_nothing_for_so_long(scene, limit):
    handler, begun = instants()
    worker = scene.worker(handler, **limit, read_block_ms=60_000)
    async with running(worker):
        await soon(worker.wait_until_ready())
        asked = now_ms()
        await worker.rate_limit(300)
        await scene.queue.add("n", 1)
        await eventually(lambda: begun)
    assert begun[0] - asked >= 295
    assert scene.is_empty()


async def test_rate_limit_of_one_worker_holds_all_that_share_the_limit(scene):
    handler, begun = instants()
    limit = {"rate_limit_max": 100}
    one, other = scene.worker(quick, **limit), scene.worker(handler, **limit)
    async with running(other):
        await soon(other.wait_until_ready())
        async with running(one):
            await soon(one.wait_until_ready())
            await one.rate_limit(300)
            asked = now_ms()
        await scene.queue.add("n", 1)
        await eventually(lambda: begun)
    assert begun[0] - asked >= 250


async def test_rate_limit_wants_a_running_worker_and_a_time(scene):
    worker = scene.worker(quick)
    with pytest.raises(ChasquiError, match="does not run"):
        await worker.rate_limit(10)
    for wrong, error in ((0, ValueError), (-1, ValueError), (1.5, TypeError), (True, TypeError)):
        with pytest.raises(error, match="expire_time_ms"):
            await worker.rate_limit(wrong)


# --- RateLimitError


async def test_a_handler_that_is_rate_limited_runs_again_later_and_spends_no_attempt(scene):
    attempts = []

    async def handler(job):
        attempts.append(job.attempt)
        if len(attempts) <= 5:
            raise RateLimitError(retry_after_ms=20)

    job = await scene.queue.add("n", 1, attempts=2)
    async with scene.working(handler) as sink:
        retries = await sink.take(RetryScheduled, 5)
        await sink.next(JobOutcome)
    assert attempts == [1] * 6
    assert {(each.attempt, each.backoff_ms) for each in retries} == {(1, 20)}
    assert scene.story(job.id).count("retry-scheduled") == 5
    assert "failed" not in scene.story(job.id)
    assert (await scene.dead(), scene.is_empty()) == ([], True)


async def test_attempts_that_failed_before_stay_spent(scene):
    attempts = []

    async def handler(job):
        attempts.append(job.attempt)
        if len(attempts) == 2:
            raise RateLimitError(retry_after_ms=1)
        message = "no"
        raise RuntimeError(message)

    await scene.queue.add("n", 1, attempts=2)
    async with scene.working(handler):
        (letter,) = await eventually(scene.dead)
    assert attempts == [1, 2, 2]
    assert letter["attempts"] == 2


async def test_without_a_time_the_duration_of_the_limit_is_taken(scene):
    async def handler(job):
        raise RateLimitError

    await scene.queue.add("n", 1)
    async with scene.working(handler, rate_limit_duration_ms=12_345) as sink:
        assert (await sink.next(RetryScheduled)).backoff_ms == 12_345
    assert scene.delayed() == 1


def test_the_error_knows_its_time_wants_a_good_one_and_travels():
    error = pickle.loads(pickle.dumps(RateLimitError("slow down", retry_after_ms=5)))  # noqa: S301
    assert (error.retry_after_ms, error.message, error.code) == (5, "slow down", "CMQ-101")
    for wrong in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match="retry_after_ms"):
            RateLimitError(retry_after_ms=wrong)


async def test_a_server_out_of_memory_is_emptied_within_the_limit_of_each_worker(
    server, start_server, queue_name, caplog
):
    scene = Scene(start_server(), queue_name)
    handler, begun = instants()
    await add(scene, 20)
    scene.client.xgroup_create(scene.keys.stream, "default", "0")
    scene.client.config_set("maxmemory", 1)
    limit = {"rate_limit_max": 10, "rate_limit_duration_ms": 200}
    started = now_ms()
    async with scene.working(handler, **limit, delayed_enabled=False) as sink:
        await sink.take(JobOutcome, 20)
    assert begun[-1] - started >= 198
    assert scene.is_empty()
    assert "cannot count jobs" in caplog.text
    await scene.queue.close()
