"""The rules of docs/operations.md for users of the server: enough, and no more than is needed."""

import asyncio
import re
from pathlib import Path

import pytest
import redis

import chasquimq
from chasquimq import Queue, RateLimitError, Worker
from chasquimq.config import LEAST_LEASE_MS
from chasquimq.errors import ServerReplyError
from chasquimq.wire.envelope import encode
from chasquimq.wire.keys import QueueKeys
from tests.support.access import PROBES, RULES, make_users
from tests.support.builders import an_envelope
from tests.support.eventually import eventually
from tests.support.scene import QUICK_RETRIES, running

SERVERS = ("valkey", "redis-6.2", "redis-7.0", "redis-8.6")


class House:
    """A server of our own with the users of the page."""

    def __init__(self, server):
        self.server = server
        self.client = server.client()
        make_users(server)

    def url(self, user):
        """By a database of its own, so that `SELECT` is needed too."""
        return self.server.url.replace("//", f"//{user}:secret@") + "/1"

    def database(self):
        """A raw client of that database, as the user who may do everything."""
        return redis.Redis(unix_socket_path=str(self.server.socket_path), db=1)

    def called(self):
        """The commands that were carried out since the last reset, scripts included."""
        stats = self.client.info("commandstats")
        return {name.removeprefix("cmdstat_") for name, each in stats.items() if each["calls"]}

    def refused(self):
        """The commands that were refused for want of a right."""
        return {entry["object"] for entry in self.client.acl_log()}

    def needs(self, user):
        """The commands of a rule that this server can be asked for, as its statistics name them."""
        commands = {rule.removeprefix("+") for rule in RULES[user] if rule[0] == "+"}
        if not self.server.is_modern:
            commands.discard("xackdel")
        if self.server.version < (7, 0):
            return {command.partition("|")[0] for command in commands}
        return commands


@pytest.fixture
def house(start_server, request):
    return House(start_server(request.param))


@pytest.fixture
def become(house):
    return house.url


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


def worker(url, name, handler=handle, **options):
    handle.has_waited = False
    usual = {
        "redis_url": url, "store_results": True, "handle_signals": False, "retry": QUICK_RETRIES,
        "max_attempts": 2, "claim_min_idle_ms": LEAST_LEASE_MS, "concurrency": 2,
    }  # fmt: skip
    return Worker(name, handler, **usual | options)


@pytest.mark.parametrize("house", SERVERS, indirect=True)
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


@pytest.mark.parametrize("house", SERVERS, indirect=True)
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


# --- rules of one part only: all of each is needed


async def only_add(house, name):
    client = house.database()
    async with Queue(name, redis_url=house.url("adds")) as queue:
        await add_all_ways(queue)
        job = await queue.add("n", 1)
        waiting = asyncio.create_task(job.wait_for_result(timeout=30))
        await eventually(lambda: is_blocked(client, "xread"))
        client.xadd(QueueKeys(name).events, {"e": "something"})
        await eventually(lambda: "xread" in house.called())
        waiting.cancel()
        await asyncio.wait([waiting])
    client.close()


async def add_all_ways(queue):
    await produce(queue)
    await queue.add_bulk([{"name": "n", "data": 1, "job_id": "a"}, {"name": "n", "data": 1}])
    await queue.add_bulk([{"name": "later", "data": 1, "delay_ms": 3_600_000}])
    assert await queue.cancel_delayed("later")
    assert not await queue.cancel_delayed("nobody")
    spec = await queue.upsert_repeatable_job(
        "tick", 1, repeat={"kind": "every", "interval_ms": 100}
    )
    assert await queue.remove_repeatable_by_key(spec.id)


async def only_work(house, name):
    """Whatever else is done here is done before, or by commands that every worker needs."""
    keys, client = QueueKeys(name), house.database()
    async with Queue(name, redis_url=house.server.url + "/1") as queue:
        for job in ("fails", "waits", "long"):
            await queue.add(job, 1)
        await queue.upsert_repeatable_job("tick", 1, repeat={"kind": "every", "interval_ms": 100})
    house.client.config_resetstat()
    ran = set()

    async def act(job):
        result = await handle(job)
        if job.name == "endless":
            ran.add("endless")
            await asyncio.Event().wait()
        if job.name == "long":
            await asyncio.sleep(0.5)  # longer than its lease
        ran.add((job.name, job.attempt))
        return result

    async with running(worker(house.url("works"), name, act, rate_limit_max=1_000)):
        await eventually(lambda: {("long", 1), ("tick", 1), ("waits", 1)} <= ran)
        await eventually(lambda: "lpush" in house.called())  # by the retry of what fails
    options = {"run_scheduler": False, "shutdown_deadline_secs": 0.1}
    async with running(worker(house.url("works"), name, act, **options)):
        await eventually(lambda: is_blocked(client, "xreadgroup"))
        with client.pipeline() as pausing:  # as one, so that the read that waits is given the job
            pausing.set(keys.paused, 1)
            pausing.xadd(keys.stream, {"d": encode(an_envelope(id="paused")), "n": "paused"})
            pausing.execute()
        await eventually(lambda: house.called() & {"xgroup|setid", "xgroup"})
        client.delete(keys.paused)
        await eventually(lambda: ("paused", 1) in ran)
        client.xadd(keys.stream, {"d": encode(an_envelope(id="endless")), "n": "endless"})
        await eventually(lambda: "endless" in ran)  # and is handed back when the worker stops
    client.close()


def is_blocked(client, command):
    clients = client.client_list()
    return any(each["cmd"] == command and "b" in each["flags"] for each in clients)


@pytest.mark.parametrize(("user", "play"), [("adds", only_add), ("works", only_work)])
@pytest.mark.parametrize("house", SERVERS, indirect=True)
async def test_a_part_needs_every_command_of_its_rule_and_no_other(house, queue_name, user, play):
    """A command that was called would be refused without its right, and the log would tell."""
    house.client.config_resetstat()
    house.client.acl_log_reset()
    await play(house, queue_name)
    called = house.called()
    unused = {
        command
        for command in house.needs(user)
        if not any(each.partition("|")[0] == command for each in called) and command not in called
    }
    assert (unused, house.refused() - PROBES) == (set(), set())


@pytest.mark.parametrize("house", SERVERS, indirect=True)
async def test_a_command_less_is_seen(house, queue_name):
    """That the test above can fail: without one right, the log tells of it."""
    house.client.execute_command("ACL", "SETUSER", "adds", "-lpush")
    house.client.acl_log_reset()
    with pytest.raises(ServerReplyError, match=r"lpush|can't run"):
        await only_add(house, queue_name)
    assert "lpush" in house.refused()


@pytest.mark.parametrize("user", RULES)
def test_every_rule_is_for_a_command_that_is_sent(user):
    broker = Path(chasquimq.__file__).parent / "broker"
    files = [*broker.rglob("*.py"), *broker.rglob("*.lua")]
    source = "".join(path.read_text() for path in files)
    sent = set(re.findall(r"""['"]([A-Z]{3,})['"]""", source))
    commands = [rule[1:].partition("|")[0].upper() for rule in RULES[user] if rule[0] == "+"]
    assert [name for name in commands if name not in sent] == []


async def dead(queue):
    return (await queue.counts()).dead
