"""The dead-letter queue seen through the API: look, replay, discard."""

import asyncio
import re

import pytest

from chasquimq import BackoffSpec, Counts, UnrecoverableError
from chasquimq.testing import run_until_idle
from chasquimq.wire.envelope import decode

KEYS = {
    # documented
    "dlq_id", "source_id", "reason", "detail", "name", "payload",
    # ours
    "error", "traceback", "attempts", "failed_at", "consumer", "job_id",
}  # fmt: skip


@pytest.fixture
def kill(queue, make_worker):
    """Add jobs that fail for good; `hopeless` ones at once, others after their attempts."""

    async def handler(job):
        if job.name == "hopeless":
            message = "no such user"
            raise UnrecoverableError(message)
        raise ValueError(job.data)

    async def add_and_fail(*names, **options):
        jobs = [await queue.add(name, {"from": name}, **options) for name in names]
        worker = make_worker(handler, max_attempts=2, concurrency=1, consumer_id="c-test")
        await run_until_idle(worker, queue)
        return jobs

    return add_and_fail


async def test_a_dead_letter_has_the_documented_fields_and_ours(door, kill, server, queue_name):
    [job] = await kill("send", backoff=1)
    [letter] = await door.peek_dlq()
    assert set(letter) == KEYS
    assert letter["reason"] == "retries_exhausted"
    assert letter["name"] == "send"
    assert letter["detail"] is None
    assert letter["error"] == "ValueError: {'from': 'send'}"
    assert "ValueError" in letter["traceback"]
    assert letter["attempts"] == 2
    assert letter["failed_at"] >= job.created_at_ms
    assert letter["consumer"] == "c-test"
    assert letter["job_id"] == job.id
    assert re.fullmatch(r"\d+-\d+", letter["source_id"]), "the entry it was, not the job's id"
    envelope = decode(letter["payload"])
    assert envelope.id == job.id
    assert envelope.attempt == 1, "as it was before the run that failed"
    [(dlq_id, _)] = server.client().xrange(f"{{chasqui:{queue_name}}}:dlq")
    assert letter["dlq_id"] == dlq_id.decode()


async def test_an_unrecoverable_error_and_its_subclasses_have_a_reason_of_their_own(
    door, queue, make_worker
):
    class NoSuchUserError(UnrecoverableError):
        pass

    runs = []

    async def handler(job):
        runs.append(job.attempt)
        message = "404"
        raise NoSuchUserError(message)

    await door.add("send", 1, attempts=10)
    await run_until_idle(make_worker(handler), queue)
    [letter] = await door.peek_dlq()
    assert runs == [1], "it goes before the job's own number of attempts"
    assert (letter["reason"], letter["error"]) == ("unrecoverable", "NoSuchUserError: 404")


async def test_an_exception_that_only_has_the_same_name_is_retried(door, queue, make_worker):
    foreign = type("UnrecoverableError", (Exception,), {})
    runs = []

    async def handler(job):
        runs.append(job.attempt)
        raise foreign

    await door.add("send", 1, attempts=2)
    await run_until_idle(make_worker(handler), queue)
    assert runs == [1, 2]


async def test_letters_come_oldest_first_and_no_more_than_asked_for(door, kill):
    await kill(*["hopeless"] * 25)
    letters = await door.peek_dlq(100)
    assert len(letters) == 25
    assert [letter["dlq_id"] for letter in letters] == sorted(
        (letter["dlq_id"] for letter in letters), key=lambda each: tuple(map(int, each.split("-")))
    )
    assert await door.peek_dlq() == letters[:20], "20 unless told"
    assert await door.peek_dlq(3) == letters[:3]
    assert (await door.counts()).dead == 25, "looking changes nothing"


async def test_a_replayed_job_keeps_id_data_and_rules_and_has_all_its_attempts_again(
    door, kill, queue, make_worker
):
    [job] = await kill("send", attempts=3, backoff=BackoffSpec.fixed(1))
    seen = []

    async def handler(again):
        seen.append((again.id, again.data, again.attempt, again.created_at_ms))
        raise ValueError

    assert await door.replay_dlq() == 1
    assert await door.peek_dlq() == []
    await run_until_idle(make_worker(handler), queue)
    assert seen == [(job.id, job.data, number, job.created_at_ms) for number in (1, 2, 3)]


async def test_replay_moves_no_more_than_asked_for_oldest_first(door, kill):
    jobs = await kill(*["hopeless"] * 5)
    assert await door.replay_dlq(2) == 2
    left = [decode(letter["payload"]).id for letter in await door.peek_dlq()]
    assert left == [job.id for job in jobs[2:]]
    assert await door.replay_dlq(0) == 0
    assert await door.replay_dlq() == 3
    assert await door.replay_dlq() == 0


@pytest.mark.parametrize("act", ["replay_dlq", "discard_dlq"])
async def test_letters_are_chosen_by_their_id_by_the_jobs_id_by_name_and_by_reason(door, kill, act):
    send, _, hopeless, other = await kill("send", "send", "hopeless", "other", backoff=1)
    choose = getattr(door, act)
    by_job = {decode(letter["payload"]).id: letter["dlq_id"] for letter in await door.peek_dlq()}

    assert await choose(ids=["no such id"]) == 0
    assert await choose(name="send", reason="unrecoverable") == 0, "all conditions must hold"
    assert await choose(ids=[send.id]) == 1
    assert await choose(ids={by_job[other.id]}) == 1
    assert await choose(ids=[hopeless.id], name="send") == 0
    assert await choose(reason="unrecoverable") == 1
    assert await choose(name="send") == 1
    assert (await door.counts()).dead == 0


async def test_a_discarded_letter_is_gone_for_good(door, kill):
    await kill("hopeless", "hopeless", "hopeless")
    assert await door.discard_dlq(2) == 2
    assert await door.counts() == Counts(waiting=0, active=0, delayed=0, dead=1)


async def test_a_letter_that_holds_no_job_blocks_none_behind_it(door, kill, server, queue_name):
    client, key = server.client(), f"{{chasqui:{queue_name}}}:dlq"
    for number in range(3):
        fields = {"d": b"\xc1 not a job", "source_id": f"1-{number}", "reason": "decode_failed"}
        client.xadd(key, fields, id=f"1-{number + 1}")
    [job] = await kill("hopeless")
    assert [letter["job_id"] for letter in await door.peek_dlq()] == [None, None, None, job.id]
    assert await door.replay_dlq(1) == 1
    assert await door.counts() == Counts(waiting=1, active=0, delayed=0, dead=3)
    assert await door.discard_dlq(reason="decode_failed") == 3


async def test_two_replays_at_once_move_each_letter_once(make_door, kill):
    await kill(*["hopeless"] * 10)
    moved = await asyncio.gather(*(make_door().replay_dlq() for _ in range(3)))
    assert sum(moved) == 10
    assert await make_door().counts() == Counts(waiting=10, active=0, delayed=0, dead=0)
