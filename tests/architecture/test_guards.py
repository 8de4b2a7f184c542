"""The guards of the suite can fail: a guard that never complains guards nothing."""

import asyncio

import pytest

from tests.support.eventually import eventually, eventually_sync
from tests.support.guards import is_permanent, leftover_tasks, sweep_keys


def test_a_key_without_a_time_to_live_is_reported_and_everything_is_removed(server, queue_name):
    client = server.client()
    tag = f"{{chasqui:{queue_name}}}"
    second = f"{{chasqui:{queue_name}-second}}"
    client.xadd(f"{tag}:stream", {"d": "x"})
    client.set(f"{tag}:result:1", "x", ex=60)
    client.set(f"{tag}:result:2", "x")
    client.set(f"{second}:dlid:3", "x")

    assert sweep_keys(client, queue_name) == [f"{second}:dlid:3", f"{tag}:result:2"]
    assert client.keys(f"*{queue_name}*") == []


@pytest.mark.parametrize(
    "kind", ["stream", "dlq", "delayed", "events", "repeat", "repeat:spec:a:b", "paused"]
)
def test_these_kinds_of_key_stay_until_somebody_removes_them(kind):
    assert is_permanent(f"{{chasqui:emails}}:{kind}")


@pytest.mark.parametrize("kind", ["result:1", "dlid:1", "promoter:lock", "streams", "x:stream"])
def test_every_other_kind_must_expire(kind):
    assert not is_permanent(f"{{chasqui:emails}}:{kind}")


async def test_a_task_that_is_still_pending_is_reported():
    async def waits_for_ever():
        await asyncio.Event().wait()

    task = asyncio.create_task(waits_for_ever())
    try:
        (reported,) = await leftover_tasks()
        assert "waits_for_ever" in reported
    finally:
        task.cancel()


async def test_a_task_cancelled_in_the_last_turn_is_not_reported():
    asyncio.create_task(asyncio.Event().wait()).cancel()
    assert await leftover_tasks() == []


async def test_waiting_returns_the_first_true_answer_of_a_plain_or_async_question():
    answers = iter([0, 0, 7])

    async def ask():
        return next(answers, 8)

    assert await eventually(ask) == 7
    assert eventually_sync(lambda: next(answers, 8)) == 8


async def test_waiting_gives_up_and_says_what_it_last_saw():
    with pytest.raises(AssertionError, match="the last answer was 0"):
        await eventually(lambda: 0, timeout=0.01)
    with pytest.raises(AssertionError, match="the last answer was 0"):
        eventually_sync(lambda: 0, timeout=0.01)


def test_a_server_of_the_tests_own_can_be_killed_and_comes_back_empty(start_server):
    own = start_server()
    first_pid, url = own.pid, own.url
    own.client().set("a", 1)
    own.kill()
    own.restart()
    assert own.client().get("a") is None
    assert own.pid != first_pid
    assert own.url == url
