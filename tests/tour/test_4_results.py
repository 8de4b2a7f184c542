"""Chapter 4: what handlers return."""

import pytest

from chasquimq import JobFailedError, OutcomeStatus, UnrecoverableError
from chasquimq.testing import run_until_idle, running


async def add_up(job):
    return sum(job.data)


async def test_a_job_is_waited_for_and_gives_what_its_handler_returned(queue, make_worker):
    async with running(make_worker(add_up, store_results=True)):
        job = await queue.add("add up", [1, 2, 3])
        assert await job.wait_for_result(timeout=10) == 6


async def test_a_result_is_read_later_by_the_jobs_id(queue, make_worker):
    job = await queue.add("add up", [20, 22])
    await run_until_idle(make_worker(add_up, store_results=True), queue)

    assert await queue.get_job_result(job.id) == 42
    assert await queue.get_job_result_bulk([job.id, "no such job"]) == [42, None]


async def test_waiting_for_a_job_that_fails_raises_the_reason(queue, make_worker):
    async def handler(_):
        message = "numbers, please"
        raise UnrecoverableError(message)

    async with running(make_worker(handler, store_results=True)):
        job = await queue.add("add up", ["x"])
        with pytest.raises(JobFailedError, match="numbers, please") as failure:
            await job.wait_for_result(timeout=10)
    assert failure.value.reason == "unrecoverable"


async def test_waiting_has_a_limit(queue):
    job = await queue.add("add up", "and no worker anywhere")
    with pytest.raises(TimeoutError):
        await job.wait_for_result(timeout=0.05)


async def test_an_outcome_tells_nothing_yet_apart_from_none_returned(queue, make_worker):
    async def returns_none(_):
        return None

    job = await queue.add("tidy up", None)
    assert (await queue.get_outcome(job.id)).status is OutcomeStatus.PENDING

    await run_until_idle(make_worker(returns_none, store_results=True), queue)
    outcome = await queue.get_outcome(job.id)
    assert (outcome.status, outcome.value) == (OutcomeStatus.OK, None)
