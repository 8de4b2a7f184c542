"""The rules of docs/operations.md for users of the server: enough, and no more than is needed."""

import re
from pathlib import Path

import pytest

import chasquimq
from chasquimq import Queue, RateLimitError, Worker
from chasquimq.errors import ServerReplyError
from tests.support.eventually import eventually
from tests.support.scene import QUICK_RETRIES, running

SERVERS = ("valkey", "redis-6.2", "redis-7.0", "redis-8.6")
PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
_RULE = re.compile(r"^ACL SETUSER (\w+) on >secret (.+)$", re.MULTILINE)
RULES = {user: rules.split() for user, rules in _RULE.findall(PAGE.read_text())}


@pytest.fixture
def become(start_server, request):
    """A server of our own with these users: the URL for one of them."""
    server = start_server(request.param)
    client = server.client()
    for user, rules in RULES.items():
        known = rules if server.is_modern else [rule for rule in rules if rule != "+xackdel"]
        client.execute_command("ACL", "SETUSER", user, "on", ">secret", *known)
    return lambda user: server.url.replace("//", f"//{user}:secret@")


async def produce(queue):
    await queue.add("n", 1)
    await queue.add("n", 1)
    await queue.add("n", 1, job_id="unique")
    await queue.add("later", 1, delay_ms=3_600_000, job_id="later")
    await queue.add_bulk([{"name": "n", "data": n} for n in range(3)])


async def handle(job):
    await job.update_progress(50)
    await job.log("half way")
    if job.name == "fails":
        msg = "no"
        raise ValueError(msg)
    if job.name == "waits" and job.attempt == 1 and not handle.has_waited:
        handle.has_waited = True
        raise RateLimitError(retry_after_ms=1)
    return 1


def worker(url, name, **options):
    handle.has_waited = False
    usual = {
        "redis_url": url, "store_results": True, "handle_signals": False, "retry": QUICK_RETRIES,
        "max_attempts": 2, "claim_min_idle_ms": 300, "concurrency": 2,
    }  # fmt: skip
    return Worker(name, handle, **usual | options)


@pytest.mark.parametrize("become", SERVERS, indirect=True)
async def test_a_producer_and_a_worker_need_no_more_than_the_page_says(become, queue_name, caplog):
    url = become("jobs")
    queue = Queue(queue_name, redis_url=url)
    await produce(queue)
    await queue.add("fails", 1, job_id="fails")
    await queue.add("waits", 1)
    await queue.upsert_repeatable_job("tick", 1, repeat={"kind": "every", "interval_ms": 100})
    async with running(worker(url, queue_name)):
        job = await queue.add("last", 1)
        assert await job.wait_for_result(timeout=20) == 1
        await eventually(lambda: dead(queue))
        await queue.pause()
        await queue.resume()
    async with running(worker(url, queue_name, rate_limit_max=1_000)):
        assert await (await queue.add("limited", 1)).wait_for_result(timeout=20) == 1
    assert await queue.remove("later")
    assert await queue.replay_dlq() == 1
    await queue.close()
    assert "NOPERM" not in caplog.text
    assert "permission" not in caplog.text


@pytest.mark.parametrize("become", SERVERS, indirect=True)
async def test_who_may_look_sees_everything_and_changes_nothing(become, queue_name):
    async with Queue(queue_name, redis_url=become("jobs")) as queue:
        await produce(queue)
    async with Queue(queue_name, redis_url=become("looks")) as queue:
        assert (await queue.counts()).delayed == 1
        assert await queue.get_job_state("later") == "delayed"
        assert len(await queue.get_jobs(["waiting", "active", "delayed", "failed"])) == 7
        assert await queue.peek_dlq() == []
        assert not await queue.is_paused()
        for change in (queue.add("n", 1), queue.pause(), queue.remove("later"), queue.drain()):
            with pytest.raises(ServerReplyError, match=r"NOPERM|permission|can't run"):
                await change
        assert (await queue.counts()).delayed == 1


@pytest.mark.parametrize("user", RULES)
def test_every_rule_is_for_a_command_that_is_sent(user):
    broker = Path(chasquimq.__file__).parent / "broker"
    source = "".join(path.read_text() for path in broker.rglob("*.[pl][yu]*"))
    sent = set(re.findall(r"""['"]([A-Z]{3,})['"]""", source))
    commands = [rule[1:].partition("|")[0].upper() for rule in RULES[user] if rule[0] == "+"]
    assert [name for name in commands if name not in sent] == []


async def dead(queue):
    return (await queue.counts()).dead
