"""The dataclass that handlers receive and `add` returns."""

import asyncio
import copy
import dataclasses
import pickle

import pytest

from chasquimq import ChasquiError, Job, Queue
from chasquimq.testing import run_until_idle
from tests.api.conftest import NOWHERE

DOCUMENTED = ["id", "name", "data", "attempt", "created_at_ms"]


def test_the_documented_fields_come_first_and_in_order():
    assert [each.name for each in dataclasses.fields(Job)][:5] == DOCUMENTED
    job = Job("j1", "send", {"k": 1}, 2, 1_700_000_000_000)
    rest = {"progress": None, "deduplicated": False, "_queue": None, "_run": None, "_scribe": None}
    assert dataclasses.asdict(job) == rest | {
        "id": "j1",
        "name": "send",
        "data": {"k": 1},
        "attempt": 2,
        "created_at_ms": 1_700_000_000_000,
    }


def test_attempts_made_is_another_word_for_attempt():
    job = Job("j1", "send", None, 3, 0)
    assert job.attempts_made == 3
    job.attempt = 4
    assert job.attempts_made == 4


def test_the_queue_a_job_came_from_is_neither_shown_nor_compared():
    with_queue = Job("j1", "send", 1, 0, 5, _queue=Queue("emails"))
    without = Job("j1", "send", 1, 0, 5)
    assert with_queue == without
    assert repr(with_queue) == repr(without)
    assert "queue" not in repr(with_queue)


def test_jobs_are_equal_when_the_documented_fields_are():
    job = Job("j1", "send", {"k": 1}, 1, 5)
    assert job == Job("j1", "send", {"k": 1}, 1, 5, deduplicated=True)
    for change in ({"id": "j2"}, {"name": "x"}, {"data": 1}, {"attempt": 2}, {"created_at_ms": 6}):
        assert job != dataclasses.replace(job, **change)


def test_a_job_shows_its_documented_fields():
    shown = repr(Job("j1", "send", {"k": 1}, 1, 5))
    assert shown.startswith("Job(id='j1', name='send', data={'k': 1}, attempt=1, created_at_ms=5")


def test_a_job_that_knows_its_queue_can_be_turned_into_a_dict_copied_and_pickled():
    async def use_the_queue():
        async with Queue("emails", redis_url=NOWHERE) as queue:
            with pytest.raises(RuntimeError):
                await queue.counts()
            job = Job("j1", "send", {"k": [1]}, 0, 5, _queue=queue)
            assert dataclasses.asdict(job)["data"] == {"k": [1]}
            assert copy.deepcopy(job) == job
            assert pickle.loads(pickle.dumps(job)) == job  # noqa: S301

    asyncio.run(use_the_queue())


def test_a_job_in_a_handler_cannot_wait_for_itself():
    with pytest.raises(RuntimeError, match="handler"):
        Job("j1", "send", None, 1, 5).wait_for_result()


@pytest.mark.parametrize("wrong", [{"timeout": 0}, {"timeout": -1.0}, {"poll_interval": 0.0}])
async def test_a_job_waits_for_positive_times_only(wrong):
    job = Job("j1", "send", None, 0, 5, _queue=Queue("emails", redis_url=NOWHERE))
    with pytest.raises(ValueError, match=next(iter(wrong))):
        await job.wait_for_result(**wrong)


def test_a_dict_of_a_job_has_what_there_is_to_show():
    job = Job("j1", "send", {"k": 1}, 2, 5, progress=30)
    assert job.to_dict() == {
        "id": "j1",
        "name": "send",
        "data": {"k": 1},
        "attempt": 2,
        "created_at_ms": 5,
        "deduplicated": False,
        "progress": 30,
    }


@pytest.mark.parametrize("call", ["update_progress", "log", "discard"])
def test_what_only_a_handler_can_ask_of_its_job_says_so(call):
    arguments = {"update_progress": [5], "log": ["line"], "discard": []}[call]
    with pytest.raises(ChasquiError, match=f"{call} is for the job that a handler was given"):
        getattr(Job("j1", "send", None), call)(*arguments)


@pytest.mark.parametrize(
    ("call", "method"),
    [
        ("get_state", "get_job_state"),
        ("remove", "remove"),
        ("retry", "retry_job"),
        ("update_data", "update_job_data"),
        ("is_completed", "get_job_state"),
        ("is_failed", "get_job_state"),
        ("is_active", "get_job_state"),
        ("is_waiting", "get_job_state"),
        ("is_delayed", "get_job_state"),
    ],
)
def test_what_a_job_needs_its_queue_for_is_refused_at_the_call_and_names_the_queues_method(
    call, method
):
    arguments = [1] if call == "update_data" else []
    told = rf"this job cannot {call}: .* use queue\.{method}\(job\.id\)"
    with pytest.raises(ChasquiError, match=told):
        getattr(Job("j1", "send", None), call)(*arguments)


async def test_a_job_of_a_queue_knows_its_state(queue):
    job = await queue.add("send", 1)
    later = await queue.add("send", 1, delay_ms=60_000)
    assert (await job.get_state(), await later.get_state()) == ("waiting", "delayed")
    assert (await job.is_waiting(), await job.is_delayed()) == (True, False)
    assert (await later.is_delayed(), await later.is_active()) == (True, False)
    assert (await job.is_completed(), await job.is_failed()) == (False, False)


class Door:
    """A queue as far as a job needs one: it answers, and remembers what it was asked."""

    def __init__(self, *, answer):
        self.answer = answer
        self.asked = []

    async def remove(self, job_id):
        self.asked.append(("remove", job_id))
        return self.answer

    async def retry_job(self, job_id):
        self.asked.append(("retry_job", job_id))
        return self.answer

    async def update_job_data(self, job_id, data):
        self.asked.append(("update_job_data", job_id, data))
        return self.answer


@pytest.mark.parametrize("answer", [True, False])
async def test_a_job_asks_its_queue_by_its_id(answer):
    door = Door(answer=answer)
    job = Job("j1", "send", 1, _queue=door)
    answers = [await job.remove(), await job.retry(), await job.update_data(2)]
    assert answers == [answer] * 3
    assert door.asked == [("remove", "j1"), ("retry_job", "j1"), ("update_job_data", "j1", 2)]
    assert job.data == (2 if answer else 1), "only what was stored is shown"


async def test_a_handlers_job_can_be_turned_into_a_dict_copied_and_pickled(queue, make_worker):
    kept = []

    async def handler(job):
        job.update_progress(5)
        kept.append((dataclasses.asdict(job), copy.deepcopy(job), pickle.dumps(job)))

    await queue.add("send", {"k": 1})
    await run_until_idle(make_worker(handler), queue)
    ((as_dict, copied, pickled),) = kept
    assert as_dict["data"] == copied.data == pickle.loads(pickled).data == {"k": 1}  # noqa: S301
    assert copied.progress == 5
    with pytest.raises(ChasquiError, match="handler"):
        copied.log("a copy is on its own")
