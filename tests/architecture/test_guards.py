"""The guards of the suite can fail: a guard that never complains guards nothing."""

import asyncio
import re
import subprocess
import sys

import pytest
import redis

from tests.support.eventually import eventually, eventually_sync
from tests.support.guards import is_permanent, leaks_of_all, leftover_tasks, sweep_keys
from tests.support.servers import ROOT, open_servers


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


def test_a_key_that_never_expires_is_reported_wherever_it_is_on_a_server_of_the_tests_own(
    start_server,
):
    own = start_server("valkey")
    client = own.client()
    client.set("no queue of ours", "x")
    client.xadd("{chasqui:some}:stream", {"d": "x"})
    client.set("{chasqui:some}:result:1", "x", ex=60)
    client.set("{chasqui:some}:result:2", "x")
    with redis.Redis(unix_socket_path=str(own.socket_path), db=3) as third:
        third.set("{chasqui:other}:wake", "x")
    own.pause()

    assert leaks_of_all([own]) == [
        "{chasqui:some}:result:2 in db0 of valkey",
        "{chasqui:other}:wake in db3 of valkey",
    ]
    assert leaks_of_all([own]) == []  # told once, and then gone
    client.set("{chasqui:some}:result:2", "x")
    own.kill()
    assert leaks_of_all([own]) == []


def test_a_server_is_looked_at_until_it_is_closed(start_server):
    own = start_server("valkey")
    own.kill()
    own.restart()
    assert own in open_servers()
    own.close()
    assert own not in open_servers()


LEAKY = """
import asyncio
import pytest
from tests.support.servers import Server, known_servers

@pytest.fixture(scope="module")
def of_module():
    server = Server(known_servers()["valkey"])
    yield server
    server.close()

def test_own(start_server):
    start_server("valkey").client().set("{chasqui:own}:wake", 1)

def test_of_module(of_module):
    of_module.client().set("{chasqui:shared}:wake", 1)

def test_on_the_shared_server(server, queue_name):
    server.client().set("{chasqui:%s}:result:1" % queue_name, 1)

def test_of_no_queue(server, queue_name):
    server.client().set("stray", 1)

async def test_pending():
    test_pending.task = asyncio.create_task(asyncio.Event().wait())

def test_clean(of_module, start_server, server, queue_name):
    start_server("valkey").client().set("{chasqui:own}:wake", 1, ex=60)
    server.client().set("{chasqui:%s}:result:1" % queue_name, 1, ex=60)

async def test_ended():
    await asyncio.create_task(asyncio.sleep(0))
"""
# What each of them leaves, as its guard tells.
LEFT = {
    "test_own": "keys without a time to live: ['{chasqui:own}:wake in db0",
    "test_of_module": "keys without a time to live: ['{chasqui:shared}:wake in db0",
    "test_on_the_shared_server[valkey]": "keys without a time to live: ['{chasqui:on-the-shared-",
    "test_of_no_queue[valkey]": "keys of no queue of the test: [b'stray']",
    "test_pending": "tasks still pending after the test: [",
}


def test_whoever_leaves_a_key_or_a_task_fails_and_nobody_after_it(tmp_path):
    (tmp_path / "test_leaky.py").write_text(LEAKY)
    options = ("-c", "pyproject.toml", "-p", "tests.conftest", "-p", "no:randomly",
               "-p", "no:cacheprovider", "-n0", "--servers=valkey")  # fmt: skip
    told = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--rootdir", str(ROOT), str(tmp_path)],
        cwd=ROOT, check=False, capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert "7 passed, 5 errors" in told
    parts = re.split(r"_ ERROR at teardown of (\S+) _", told)
    assert dict.fromkeys(parts[1::2]) == dict.fromkeys(LEFT)
    for test, what in zip(parts[1::2], parts[2::2], strict=True):
        assert LEFT[test] in what


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
