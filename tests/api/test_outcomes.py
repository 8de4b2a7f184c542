"""Results and outcomes: what is kept of a job, for how long, and how its absence is told."""

import asyncio

import pytest

from chasquimq import JobResult, JobState, OutcomeStatus, UnrecoverableError
from chasquimq.testing import run_until_idle, running

FALSY = [0, "", [], {}, False, 0.0, b""]


async def returns_its_data(job):
    if job.name == "fails":
        message = "no such user"
        raise UnrecoverableError(message)
    return job.data


@pytest.fixture
def outcome_of_one(door, queue, make_worker):
    """Run one job to its end and give its id."""

    async def run(name="echo", data=None, **options):
        job = await door.add(name, data)
        await run_until_idle(make_worker(returns_its_data, store_results=True, **options), queue)
        return job.id

    return run


async def test_the_outcome_of_a_job_that_waits_runs_or_is_delayed_is_pending(door, make_worker):
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def handler(_):
        begun.set()
        await may_end.wait()

    running_job = await door.add("echo", 1)
    waiting_job = await door.add("echo", 2)
    delayed_job = await door.add("echo", 3, delay_ms=60_000)
    async with running(make_worker(handler, concurrency=1)):
        await begun.wait()
        for job, state in (
            (running_job, JobState.ACTIVE),
            (waiting_job, JobState.WAITING),
            (delayed_job, JobState.DELAYED),
        ):
            assert await door.get_outcome(job.id) == JobResult(OutcomeStatus.PENDING)
            assert await door.get_job_state(job.id) is state
        may_end.set()


async def test_the_outcome_of_a_job_that_returned_is_ok_with_its_value(door, outcome_of_one):
    job_id = await outcome_of_one(data={"k": [1]})
    assert await door.get_outcome(job_id) == JobResult(OutcomeStatus.OK, {"k": [1]})
    assert await door.get_job_state(job_id) is JobState.COMPLETED
    assert await door.get_job(job_id) is None, "its data is gone"


async def test_the_outcome_of_a_job_that_returned_none_is_ok_too(door, outcome_of_one):
    job_id = await outcome_of_one(data=None)
    assert await door.get_outcome(job_id) == JobResult(OutcomeStatus.OK, None)
    assert await door.get_job_result(job_id) is None


async def test_the_outcome_of_a_dead_job_is_failed_with_its_reason(door, outcome_of_one):
    job_id = await outcome_of_one("fails")
    assert await door.get_outcome(job_id) == JobResult(
        OutcomeStatus.FAILED, reason="unrecoverable", error="UnrecoverableError: no such user"
    )
    assert await door.get_job_state(job_id) is JobState.FAILED
    assert await door.get_job_result(job_id) is None


async def test_a_dead_job_is_known_even_if_its_worker_stored_nothing(door, queue, make_worker):
    job = await door.add("fails", None)
    await run_until_idle(make_worker(returns_its_data), queue)
    outcome = await door.get_outcome(job.id)
    assert (outcome.status, outcome.reason) == (OutcomeStatus.FAILED, "unrecoverable")


async def test_the_outcome_of_a_value_no_longer_kept_is_expired(
    door, server, queue_name, outcome_of_one
):
    job_id = await outcome_of_one(data=7)
    assert server.client().pexpire(f"{{chasqui:{queue_name}}}:result:{job_id}", 0)
    assert await door.get_outcome(job_id) == JobResult(OutcomeStatus.EXPIRED)
    assert await door.get_job_result(job_id) is None
    assert await door.get_job_state(job_id) is JobState.COMPLETED


async def test_the_outcome_of_a_job_nobody_knows_is_unknown(door, queue, make_worker):
    assert await door.get_outcome("no such job") == JobResult(OutcomeStatus.UNKNOWN)
    job = await door.add("echo", 7)
    await run_until_idle(make_worker(returns_its_data, store_results=False), queue)
    assert await door.get_outcome(job.id) == JobResult(OutcomeStatus.UNKNOWN)


async def test_a_replayed_job_is_pending_again(door, outcome_of_one):
    job_id = await outcome_of_one("fails")
    assert await door.replay_dlq() == 1
    assert await door.get_outcome(job_id) == JobResult(OutcomeStatus.PENDING)


@pytest.mark.parametrize(
    ("status", "is_settled"),
    [("pending", False), ("ok", True), ("failed", True), ("expired", True), ("unknown", False)],
)
def test_an_outcome_says_whether_more_is_to_come(status, is_settled):
    assert JobResult(OutcomeStatus(status)).is_settled is is_settled


async def test_values_that_are_false_are_stored_and_come_back(door, queue, make_worker):
    jobs = await door.add_bulk([{"name": "echo", "data": value} for value in FALSY])
    await run_until_idle(make_worker(returns_its_data, store_results=True), queue)
    assert await door.get_job_result_bulk([job.id for job in jobs]) == FALSY
    for job in jobs:
        assert await door.get_job_result(job.id) == job.data


async def test_results_come_in_the_order_of_the_ids_with_none_where_there_is_none(
    door, queue, make_worker
):
    jobs = await door.add_bulk([{"name": "echo", "data": number} for number in range(3)])
    await run_until_idle(make_worker(returns_its_data, store_results=True), queue)
    asked = [jobs[2].id, "no such job", jobs[0].id, jobs[2].id]
    assert await door.get_job_result_bulk(asked) == [2, None, 0, 2]
    assert await door.get_job_result_bulk([]) == []


@pytest.mark.parametrize(
    ("options", "seconds"),
    [({}, 3_600), ({"result_ttl_ms": 5_000}, 5), ({"result_ttl_ms": 4_001}, 5)],
)
async def test_results_are_kept_as_long_as_asked_in_whole_seconds_rounded_up(
    server, queue_name, queue, make_worker, options, seconds
):
    job = await queue.add("echo", 7)
    await run_until_idle(make_worker(returns_its_data, store_results=True, **options), queue)
    left_ms = server.client().pttl(f"{{chasqui:{queue_name}}}:result:{job.id}")
    assert (seconds - 2) * 1_000 < left_ms <= seconds * 1_000


async def test_a_value_that_cannot_be_stored_fails_the_job_once(queue, make_worker):
    runs = []

    async def handler(job):
        runs.append(job.attempt)
        return object()

    job = await queue.add("echo", 7)
    await run_until_idle(make_worker(handler, store_results=True), queue)
    assert runs == [1], "the work is done: doing it again would not help"
    outcome = await queue.get_outcome(job.id)
    assert outcome.reason == "unrecoverable"
    assert "cannot be stored" in outcome.error
