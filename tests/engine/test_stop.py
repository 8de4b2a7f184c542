"""How a worker stops: what runs is finished, what was not started goes back, nothing is left."""

# ruff: noqa: SLF001 -- a cut is what a second signal does; it has no public name

import asyncio
import gc
import threading
import warnings
from contextlib import AsyncExitStack
from functools import partial

import pytest

from chasquimq.broker.url import parse_url
from chasquimq.config import ConsumerConfig
from chasquimq.engine.crew import Crew
from chasquimq.engine.executor import Executor
from chasquimq.engine.reader import IDLE_FOR_ALL_MS
from chasquimq.metrics import JobOutcome, LockOutcome, PromoterTick, ReaderBatch
from chasquimq.wire.envelope import encode
from tests.support.builders import an_envelope
from tests.support.eventually import eventually
from tests.support.raw_queue import RawQueue
from tests.support.scene import Scene, running, soon
from tests.support.sink import RecordingSink


class Gate:
    """A handler that waits until it is let through, and says when it has begun."""

    def __init__(self):
        self.begun = []
        self.cancelled = []
        self._open = asyncio.Event()

    async def __call__(self, job):
        self.begun.append(job.attempt)
        try:
            await self._open.wait()
        except asyncio.CancelledError:
            self.cancelled.append(job.attempt)
            raise

    def open(self):
        self._open.set()


@pytest.fixture
async def gate():
    return Gate()


async def collect(scene, count, **options):
    """Let another worker run what is there; the attempts it saw."""
    attempts = []

    async def handler(job):
        attempts.append(job.attempt)

    async with scene.working(handler, **options) as sink:
        await sink.take(JobOutcome, count)
    return attempts


# --- what becomes of jobs


async def test_running_handlers_are_finished_and_acknowledged(scene, gate):
    await scene.queue.add_bulk([{"name": "n", "data": n} for n in range(3)])
    sink = RecordingSink()
    worker = scene.worker(gate, sink=sink)
    working = asyncio.create_task(worker.run())
    await eventually(lambda: len(gate.begun) == 3)
    await worker.close()
    assert not working.done()
    gate.open()
    await soon(working)
    assert len(sink.seen(JobOutcome)) == 3
    assert scene.is_empty()


async def test_nothing_is_read_after_the_stop(scene, gate):
    await scene.queue.add("n", 0)
    worker = scene.worker(gate)
    working = asyncio.create_task(worker.run())
    await eventually(lambda: gate.begun)
    await worker.close()
    await scene.queue.add("n", 1)
    gate.open()
    await soon(working)
    assert (scene.depth(), scene.pending()) == (1, [])
    assert gate.begun == [1]


def has_read_ahead(scene, crew):
    """Whether it has five in hand; lets it read as after a burst of fast jobs."""
    crew._reader._foresight.ahead = 64
    crew._executor.nudge()
    return len(scene.pending()) == 5


@pytest.mark.parametrize("has_backlog", [True, False], ids=["backlog", "no backlog"])
async def test_what_was_read_and_not_started_goes_back_at_once_and_uncounted(
    scene, gate, has_backlog
):
    """Read ahead by a worker whose lease is long: only a hand-back can free it so soon."""
    await scene.queue.add_bulk([{"name": "n", "data": n} for n in range(5)])
    worker = scene.worker(gate, concurrency=1, claim_min_idle_ms=600_000)
    working = asyncio.create_task(worker.run())
    await eventually(lambda: gate.begun)
    await eventually(lambda: has_read_ahead(scene, worker._crew))
    if has_backlog:
        worker._crew._reader._foresight.ahead = 0
        await scene.queue.add_bulk([{"name": "n", "data": n} for n in range(2)])
    await worker.close()
    expected = 6 if has_backlog else 4
    attempts = await collect(scene, expected, claim_min_idle_ms=600_000, concurrency=3)
    assert attempts == [1] * expected
    gate.open()
    await soon(working)
    assert scene.is_empty()


async def test_a_slot_that_becomes_free_after_the_stop_starts_nothing(scene, gate):
    await scene.queue.add_bulk([{"name": "n", "data": n} for n in range(5)])
    worker = scene.worker(gate, concurrency=1)
    working = asyncio.create_task(worker.run())
    await eventually(lambda: gate.begun)
    await eventually(lambda: has_read_ahead(scene, worker._crew))
    await worker.close()
    gate.open()
    await soon(working)
    assert gate.begun == [1]
    assert await collect(scene, 4) == [1] * 4


async def test_a_consumer_that_is_cancelled_hands_back_what_it_did_not_start(scene, gate):
    async def handler(run):
        await gate(run)

    await scene.queue.add_bulk([{"name": "n", "data": n} for n in range(5)])
    config = ConsumerConfig(
        queue_name=scene.name, concurrency=1, claim_min_idle_ms=600_000, shutdown_deadline_secs=0
    )
    consumer = Crew(parse_url(scene.server.socket_url), config, partial(Executor, handler))
    working = asyncio.create_task(consumer.run(asyncio.Event()))
    await eventually(lambda: gate.begun)
    await eventually(
        lambda: (
            has_read_ahead(scene, consumer)
            and consumer._executor.waiting == 4
            and consumer._reader.blocked_on
        )
    )
    working.cancel()  # an open read is cut off, and must not take what goes back
    with pytest.raises(asyncio.CancelledError):
        await soon(working)
    attempts = await collect(scene, 5, claim_min_idle_ms=600_000)
    assert sorted(attempts) == [1, 1, 1, 1, 2]


async def test_what_a_read_took_that_was_cut_off_goes_back_unstarted_and_uncounted(scene, gate):
    async def handler(run):
        await gate(run)

    config = ConsumerConfig(queue_name=scene.name, claim_min_idle_ms=600_000)
    consumer = Crew(parse_url(scene.server.socket_url), config, partial(Executor, handler))
    working = asyncio.create_task(consumer.run(asyncio.Event()))
    await eventually(scene.is_reading)
    # In one turn of the loop: the server gives the job to a read that nobody waits for any more.
    working.cancel()
    entry_id = scene.add_raw({"d": encode(an_envelope()), "n": "n"})
    assert [row["message_id"].decode() for row in scene.pending()] == [entry_id]
    with pytest.raises(asyncio.CancelledError):
        await soon(working)
    assert gate.begun == []
    assert await collect(scene, 1, claim_min_idle_ms=600_000) == [1]


async def test_handlers_cut_off_at_the_deadline_go_back_and_their_run_counts(scene, gate):
    await scene.queue.add_bulk([{"name": "n", "data": n} for n in range(2)])
    worker = scene.worker(gate, shutdown_deadline_secs=0, claim_min_idle_ms=600_000)
    working = asyncio.create_task(worker.run())
    await eventually(lambda: len(gate.begun) == 2)
    await worker.close()
    await soon(working)
    assert gate.cancelled == [1, 1]
    # At once: the lease of the one that was cut off is ten minutes long.
    assert await collect(scene, 2, claim_min_idle_ms=600_000) == [2, 2]


async def test_a_job_that_is_cut_off_every_time_has_its_budget_exactly(scene):
    for _ in range(2):
        gate = Gate()
        if not scene.depth():
            await scene.queue.add("n", 1)
        worker = scene.worker(gate, shutdown_deadline_secs=0, max_attempts=2)
        async with running(worker):
            await eventually(lambda gate=gate: gate.begun)
    async with scene.working(Gate(), max_attempts=2) as sink:
        await eventually(lambda: not scene.depth())
    assert sink.seen(JobOutcome) == []
    (letter,) = await scene.dead()
    assert (letter["reason"], letter["attempts"]) == ("retries_exhausted", 2)


async def test_a_handler_that_fails_during_the_drain_is_retried_as_ever(scene):
    begun, gate = asyncio.Event(), asyncio.Event()

    async def handler(job):
        begun.set()
        await gate.wait()
        message = "during the drain"
        raise ValueError(message)

    # Not due again while the worker is still stopping: then it would run again, rightly.
    job = await scene.queue.add("n", 1, backoff=60_000)
    async with scene.working(handler):
        await soon(begun.wait())
        asyncio.get_running_loop().call_soon(gate.set)
    assert scene.delayed() == 1
    assert scene.story(job.id) == ["waiting", "active", "failed", "retry-scheduled"]


async def test_a_worker_that_is_cancelled_drains_too(scene, gate):
    await scene.queue.add("n", 1)
    working = asyncio.create_task(scene.worker(gate).run())
    await eventually(lambda: gate.begun)
    working.cancel()
    await asyncio.sleep(0)
    assert not working.done()
    gate.open()
    with pytest.raises(asyncio.CancelledError):
        await soon(working)
    assert scene.is_empty()


async def test_a_worker_that_is_cancelled_again_while_it_drains_has_ended_when_it_says_so(
    scene, gate
):
    await scene.queue.add("n", 1)
    before = asyncio.all_tasks()
    worker = scene.worker(gate)
    working = asyncio.create_task(worker.run())
    await eventually(lambda: gate.begun)
    for _ in range(4):
        working.cancel()
        await asyncio.sleep(0)
    assert not working.done()
    gate.open()
    await soon(asyncio.wait([working]))
    assert asyncio.all_tasks() == before
    assert (working.cancelled(), worker.is_running) == (True, False)
    assert not scene.client.exists(scene.keys.promoter_lock, scene.keys.scheduler_lock)
    assert scene.is_empty()


async def test_a_handler_that_refuses_to_be_cancelled_does_not_hold_up_the_stop(scene):
    begun, gate = asyncio.Event(), asyncio.Event()

    async def stubborn(job):
        begun.set()
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue

    await scene.queue.add("n", 1)
    try:
        async with scene.working(stubborn, shutdown_deadline_secs=0):
            await soon(begun.wait())
        assert await collect(scene, 1) == [2]
    finally:
        gate.set()


async def test_a_plain_handler_that_never_returns_does_not_hold_up_the_stop(scene):
    begun, gate = threading.Event(), threading.Event()

    def stuck(job):
        begun.set()
        gate.wait(30)

    await scene.queue.add("n", 1)
    try:
        async with scene.working(stuck, shutdown_deadline_secs=0):
            await eventually(begun.is_set)
        assert await collect(scene, 1) == [2]
    finally:
        gate.set()


# --- what is left behind


async def test_a_stopped_worker_leaves_the_group_and_gives_its_lock_up(scene):
    async with scene.working(Gate(), consumer_id="c-1"):
        await eventually(lambda: scene.client.get(scene.keys.promoter_lock) == b"c-1")
        await scene.queue.add("n", 1, delay_ms=60_000)
    assert scene.consumers() == []
    assert not scene.client.exists(scene.keys.promoter_lock)


@pytest.mark.parametrize("is_alone", [True, False])
async def test_a_worker_that_hands_jobs_back_leaves_the_group_while_others_wait(
    scene, gate, is_alone
):
    await scene.queue.add_bulk([{"name": "n", "data": n} for n in range(5)])
    worker = scene.worker(gate, concurrency=1, consumer_id="c-1")
    working = asyncio.create_task(worker.run())
    await eventually(lambda: gate.begun)
    await eventually(lambda: has_read_ahead(scene, worker._crew))
    worker._crew._reader._foresight.ahead = 0
    await eventually(lambda: worker._crew._reader.blocked_on is None)
    await scene.queue.add_bulk([{"name": "n", "data": n} for n in range(2)])
    if not is_alone:
        scene.client.xgroup_createconsumer(scene.keys.stream, "default", "c-2")
    await worker.close()
    await eventually(lambda: [row["times_delivered"] for row in scene.pending()] == [1, 0, 0, 0, 0])
    gate.open()
    await soon(working)
    assert scene.consumers() == ([] if is_alone else ["c-2"])
    assert await collect(scene, 6) == [1] * 6
    assert scene.is_empty()


async def test_workers_that_stop_at_the_same_time_all_leave_and_their_jobs_wait(scene, gate):
    """Each may pass on to another that is about to leave; the last one is alone."""
    raw = RawQueue(scene.client, scene.keys)
    names = [f"c-{n}" for n in range(3)]
    workers = [scene.worker(gate, consumer_id=name) for name in names]
    for worker in workers:
        worker.pause()
    async with AsyncExitStack() as stack:
        for worker in workers:
            await stack.enter_async_context(running(worker))
            await soon(worker.wait_until_ready())
        for name in names:
            for entry_id in raw.delivered(name, *({"d": encode(an_envelope())} for _ in "ab")):
                raw.silent_for(IDLE_FOR_ALL_MS, consumer=name, entry_id=entry_id, deliveries=0)
        await scene.queue.add("n", 1)
        await asyncio.gather(*(worker.close() for worker in workers))
    assert scene.consumers() == []
    assert scene.pending() == []
    assert await collect(scene, 7) == [1] * 7


async def test_a_worker_with_deliveries_left_stays_in_the_group(scene, gate):
    await scene.queue.add("n", 1)
    async with scene.working(gate, shutdown_deadline_secs=0, consumer_id="c-1"):
        await eventually(lambda: gate.begun)
    (held,) = scene.pending()
    assert (held["consumer"], held["times_delivered"]) == (b"c-1", 1)
    assert scene.consumers() == ["c-1"]


async def test_a_lock_that_another_holds_is_left_alone(scene):
    scene.client.set(scene.keys.promoter_lock, "p-other", ex=60)
    async with scene.working(Gate()) as sink:
        await eventually(lambda: sink.seen(LockOutcome))
    assert scene.client.get(scene.keys.promoter_lock) == b"p-other"


async def test_no_task_thread_or_connection_is_left(scene):
    def plain(job):
        return job.data

    async def handler(job):
        return job.data

    def clients():
        return [c for c in scene.client.client_list() if "chasquimq-worker" in c["name"]]

    def threads():
        return [t.name for t in threading.enumerate() if t.name.startswith(("chasquimq", "job-"))]

    tasks = asyncio.all_tasks()
    jobs = [{"name": "n", "data": n} for n in range(20)]
    for each in (handler, plain):
        await scene.queue.add_bulk(jobs)
        async with scene.working(each, store_results=True, lease_ms=30) as sink:
            await sink.take(JobOutcome, 20)
            await scene.queue.add("late", 1, delay_ms=1)
            await sink.next(JobOutcome)
            assert clients()
            assert threads()
    assert asyncio.all_tasks() == tasks
    await eventually(lambda: not threads())
    await eventually(lambda: not clients())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gc.collect()  # a socket that was not closed complains here


# --- when there is no server (any more)


async def test_a_worker_without_a_server_fails_at_once_and_leaves_nothing(scene, gate):
    worker = scene.worker(gate, redis_url="unix:///nowhere/at/all")
    with pytest.raises(RuntimeError, match="cannot connect"):
        await soon(worker.run())
    assert not worker.is_running


async def test_a_stop_while_the_server_is_away_is_over_in_good_time(
    server, start_server, queue_name, gate
):
    scene = Scene(start_server(), queue_name)
    await scene.queue.add("n", 1)
    sink = RecordingSink()
    worker = scene.worker(gate, sink=sink, read_block_ms=10, shutdown_deadline_secs=0)
    working = asyncio.create_task(worker.run())
    await eventually(lambda: gate.begun)
    await sink.take(PromoterTick, 2)  # every role has found its feet
    scene.server.kill()
    await worker.close()
    worker._crew.cut()
    await soon(working)
    await scene.queue.close()


async def test_a_cut_ends_a_stop_that_waits_for_a_server_that_does_not_answer(
    server, start_server, queue_name
):
    scene = Scene(start_server(), queue_name)
    done = asyncio.Event()

    async def handler(job):
        scene.server.pause()
        done.set()

    await scene.queue.add("n", 1)
    worker = scene.worker(handler, read_block_ms=60_000)
    working = asyncio.create_task(worker.run())
    await soon(done.wait())
    await worker.close()
    await eventually(lambda: worker._crew._limits)  # it waits, for a minute if need be
    worker._crew.cut()
    await soon(working)
    scene.server.resume()
    await scene.queue.close()


# --- the verbs


async def test_closing_before_running_and_twice_is_harmless(scene, gate):
    worker = scene.worker(gate)
    await worker.close()
    await worker.close()
    await soon(worker.run())
    assert worker.is_closed
    assert not worker.is_running


async def test_running_twice_waits_for_the_same_end(scene, gate):
    worker = scene.worker(gate)
    first = asyncio.create_task(worker.run())
    second = asyncio.create_task(worker.run())
    await scene.queue.add("n", 1)
    await eventually(lambda: gate.begun)
    assert worker.is_running
    assert len(gate.begun) == 1
    gate.open()
    await worker.close()
    await soon(first)
    await soon(second)


async def test_leaving_the_context_closes_the_worker(scene, gate):
    async with scene.worker(gate) as worker:
        working = asyncio.create_task(worker.run())
        await eventually(lambda: worker._crew is not None)
    await soon(working)
    assert worker.is_closed


async def test_a_stop_of_an_idle_worker_does_not_wait_for_its_read(scene, gate):
    sink = RecordingSink()
    worker = scene.worker(gate, sink=sink, read_block_ms=600_000)
    async with running(worker):
        await eventually(lambda: worker._crew and worker._crew._reader.blocked_on)
    assert sink.seen(ReaderBatch) == []
