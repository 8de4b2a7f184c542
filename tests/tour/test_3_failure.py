"""Chapter 3: what happens when a handler fails."""

import pytest

from chasquimq import BackoffSpec, UnrecoverableError
from chasquimq.testing import run_until_idle


async def test_a_job_that_fails_is_tried_again(queue, make_worker):
    attempts = []

    async def handler(job):
        attempts.append(job.attempt)
        if job.attempt < 3:
            raise ConnectionError

    await queue.add("call the bank", None)
    await run_until_idle(make_worker(handler), queue)

    assert attempts == [1, 2, 3]
    assert (await queue.counts()).dead == 0


async def test_a_job_may_bring_its_own_number_of_attempts_and_its_own_backoff(queue, make_worker):
    attempts = []

    async def handler(job):
        attempts.append((job.name, job.attempt))
        raise ConnectionError

    await queue.add("once", None, attempts=1)
    await queue.add("twice", None, attempts=2, backoff=1)
    growing = BackoffSpec.exponential(1, multiplier=3.0, max_ms=10)
    await queue.add("thrice", None, attempts=3, backoff=growing)
    await run_until_idle(make_worker(handler, max_attempts=20), queue)

    assert sorted(attempts) == [
        ("once", 1),
        ("thrice", 1),
        ("thrice", 2),
        ("thrice", 3),
        ("twice", 1),
        ("twice", 2),
    ]


async def test_an_unrecoverable_error_ends_the_attempts(queue, make_worker):
    attempts = []

    async def handler(job):
        attempts.append(job.attempt)
        message = "no such user"
        raise UnrecoverableError(message)

    await queue.add("welcome", {"user": 404})
    await run_until_idle(make_worker(handler), queue)

    assert attempts == [1]
    [letter] = await queue.peek_dlq()
    assert letter["reason"] == "unrecoverable"


async def test_a_dead_letter_says_what_it_was_and_why_it_failed(queue, make_worker):
    async def handler(_):
        message = "the disk is full"
        raise OSError(message)

    await queue.add("save", {"file": "a.txt"})
    await run_until_idle(make_worker(handler, max_attempts=2), queue)

    [letter] = await queue.peek_dlq()
    assert letter["name"] == "save"
    assert letter["reason"] == "retries_exhausted"
    assert letter["error"] == "OSError: the disk is full"
    assert letter["attempts"] == 2
    assert "in handler" in letter["traceback"]


@pytest.fixture
async def three_dead_letters(queue, make_worker):
    async def handler(job):
        if job.name == "hopeless":
            raise UnrecoverableError
        raise ValueError

    jobs = await queue.add_bulk([{"name": name, "data": None} for name in ("a", "b", "hopeless")])
    await run_until_idle(make_worker(handler, max_attempts=1), queue)
    return {job.name: job for job in jobs}


async def test_dead_letters_are_sent_round_again_when_the_fault_is_mended(
    queue, make_worker, three_dead_letters
):
    seen = []

    async def mended(job):
        seen.append((job.name, job.attempt))

    assert await queue.replay_dlq() == 3
    await run_until_idle(make_worker(mended), queue)

    assert sorted(seen) == [("a", 1), ("b", 1), ("hopeless", 1)]
    assert await queue.peek_dlq() == []


async def test_dead_letters_are_replayed_by_id_by_name_or_by_reason(queue, three_dead_letters):
    assert await queue.replay_dlq(ids=[three_dead_letters["a"].id]) == 1
    assert await queue.replay_dlq(name="b") == 1
    assert await queue.replay_dlq(reason="retries_exhausted") == 0
    assert await queue.replay_dlq(reason="unrecoverable") == 1


async def test_dead_letters_that_nobody_wants_are_discarded(queue, three_dead_letters):
    assert await queue.discard_dlq(ids=[three_dead_letters["a"].id]) == 1
    assert await queue.discard_dlq(reason="unrecoverable") == 1
    assert [letter["name"] for letter in await queue.peek_dlq()] == ["b"]
