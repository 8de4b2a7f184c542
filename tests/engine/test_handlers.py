"""What may be a handler, and what it may do."""

import asyncio
import contextvars
import functools
import sys
import threading

import pytest

from chasquimq import NotSupportedError, UnrecoverableError
from chasquimq.metrics import DlqRouted, JobOutcome, JobOutcomeKind
from tests.support.eventually import eventually
from tests.support.scene import Scene

pytestmark = pytest.mark.servers("valkey")  # what a handler does is no matter of the server


@pytest.fixture
async def results(scene):
    """Run one job and return its outcome."""

    async def results(handler, data=None, **options):
        job = await scene.queue.add("n", data)
        usual = {"store_results": True, "max_attempts": 1}
        async with scene.working(handler, **usual | options) as sink:
            await sink.next(JobOutcome)
        return await scene.queue.get_outcome(job.id)

    return results


def plain(job):
    return [job.data, threading.current_thread() is threading.main_thread()]


async def coroutine(job):
    return [job.data, threading.current_thread() is threading.main_thread()]


class CallableObject:
    def __call__(self, job):
        return plain(job)


class CoroutineObject:
    async def __call__(self, job):
        return await coroutine(job)

    async def method(self, job):
        return await coroutine(job)


def with_prefix(prefix, job):
    return plain(job)


async def coroutine_with_prefix(prefix, job):
    return await coroutine(job)


def returns_a_coroutine(job):
    return coroutine(job)


@pytest.mark.parametrize(
    ("handler", "is_in_loop"),
    [
        (coroutine, True),
        (functools.partial(coroutine_with_prefix, "x"), True),
        (CoroutineObject(), True),
        (CoroutineObject().method, True),
        (returns_a_coroutine, True),
        (plain, False),
        (functools.partial(with_prefix, "x"), False),
        (CallableObject(), False),
        (CallableObject().__call__, False),
    ],
)
async def test_coroutine_functions_run_in_the_loop_and_plain_ones_in_threads(
    results, handler, is_in_loop
):
    outcome = await results(handler, 5)
    assert (outcome.status, outcome.value) == ("ok", [5, is_in_loop])


async def test_plain_handlers_run_at_the_same_time_and_do_not_block_the_loop(scene):
    barrier = threading.Barrier(4, timeout=10)

    def handler(job):
        barrier.wait()

    await scene.queue.add_bulk([{"name": "n", "data": n} for n in range(4)])
    async with scene.working(handler, concurrency=4) as sink:
        outcomes = await sink.take(JobOutcome, 4)
    assert {outcome.kind for outcome in outcomes} == {JobOutcomeKind.OK}


VARIABLE = contextvars.ContextVar("VARIABLE", default="untouched")


async def test_context_variables_of_plain_handlers_are_not_seen_by_the_next_job(scene):
    seen = []

    def handler(job):
        seen.append(VARIABLE.get())
        VARIABLE.set(job.id)

    await scene.queue.add_bulk([{"name": "n", "data": n} for n in range(5)])
    async with scene.working(handler, concurrency=1) as sink:
        await sink.take(JobOutcome, 5)
    assert seen == ["untouched"] * 5


def raise_value_error(job):
    message = "plain"
    raise ValueError(message)


def raise_stop_iteration(job):
    return next(iter([]))


def leave(job):
    sys.exit(3)


def give_up(job):
    message = "for good"
    raise UnrecoverableError(message)


@pytest.mark.parametrize(
    ("handler", "reason", "error"),
    [
        (raise_value_error, "retries_exhausted", "ValueError: plain"),
        (raise_stop_iteration, "retries_exhausted", "RuntimeError: coroutine raised StopIteration"),
        (leave, "retries_exhausted", "SystemExit: 3"),
        (give_up, "unrecoverable", "UnrecoverableError: for good"),
    ],
)
async def test_what_a_plain_handler_raises_is_the_outcome_of_its_job(
    results, handler, reason, error
):
    outcome = await results(handler)
    assert (outcome.status, outcome.reason, outcome.error) == ("failed", reason, error)


async def test_a_handler_that_calls_exit_fails_its_own_job_and_no_other(scene):
    gate = asyncio.Event()

    async def handler(job):
        if job.name == "leaves":
            sys.exit("done here")
        await gate.wait()

    await scene.queue.add("stays", 1)
    await scene.queue.add("leaves", 2, attempts=1)
    async with scene.working(handler) as sink:
        await sink.next(DlqRouted)
        gate.set()
        await eventually(lambda: len(sink.seen(JobOutcome)) == 2)
    panic, ok = sink.seen(JobOutcome)
    assert (panic.kind, ok.kind) == (JobOutcomeKind.PANIC, JobOutcomeKind.OK)


async def test_something_that_cannot_be_called_is_refused_at_once(server, queue_name):
    with pytest.raises(TypeError, match="handler must be a function of one Job, got int"):
        Scene(server, queue_name).worker(42)


async def test_a_path_to_a_file_is_not_a_handler_and_the_error_says_what_to_do(server, queue_name):
    with pytest.raises(NotSupportedError, match="pass the function itself"):
        Scene(server, queue_name).worker("processor.py")


async def test_a_handler_that_cancels_itself_fails_its_own_job_and_the_worker_goes_on(scene):
    async def handler(job):
        if job.name == "selfish":
            asyncio.current_task().cancel()
        await asyncio.sleep(0)

    await scene.queue.add("selfish", 1, attempts=1)
    await scene.queue.add_bulk([{"name": "n", "data": n} for n in range(3)])
    async with scene.working(handler, concurrency=1) as sink:
        outcomes = await sink.take(JobOutcome, 4)
    assert [outcome.kind for outcome in outcomes] == ["panic", "ok", "ok", "ok"]


async def test_a_handler_may_add_jobs_and_wait_for_their_results(scene):
    async def handler(job):
        if job.data == 0:
            return 1
        child = await scene.queue.add("n", job.data - 1)
        return job.data * await child.wait_for_result(timeout=10)

    job = await scene.queue.add("n", 5)
    async with scene.working(handler, store_results=True):
        assert await job.wait_for_result(timeout=10) == 120
