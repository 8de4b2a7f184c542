"""The dataclass that handlers receive and `add` returns."""

import asyncio
import copy
import dataclasses
import pickle

import pytest

from chasquimq import Job, Queue
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


async def test_a_job_in_a_handler_cannot_wait_for_itself():
    with pytest.raises(RuntimeError, match="handler"):
        await Job("j1", "send", None, 1, 5).wait_for_result()


@pytest.mark.parametrize("wrong", [{"timeout": 0}, {"timeout": -1.0}, {"poll_interval": 0.0}])
async def test_a_job_waits_for_positive_times_only(wrong):
    job = Job("j1", "send", None, 0, 5, _queue=Queue("emails", redis_url=NOWHERE))
    with pytest.raises(ValueError, match=next(iter(wrong))):
        await job.wait_for_result(**wrong)
