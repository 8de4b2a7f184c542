"""A real primary with a replica and a sentinel: found by name, followed through a failover."""

import asyncio
from dataclasses import dataclass

import pytest

from chasquimq import Queue, Worker
from chasquimq.broker.call import call
from chasquimq.errors import ConnectionFailedError
from tests.support.eventually import eventually, eventually_sync
from tests.support.flavours import FLAVOURS, callers, short_options
from tests.support.servers import Server, known_servers
from tests.support.topologies import Sentinel

SERVICE = "jobs"


@dataclass(frozen=True)
class Watched:
    """Two servers and who watches them."""

    servers: tuple[Server, Server]
    sentinel: Sentinel

    @property
    def url(self):
        return f"redis+sentinel://127.0.0.1:{self.sentinel.port}/{SERVICE}"

    @property
    def primary(self):
        [primary] = [each for each in self.servers if role(each) == "master"]
        return primary

    @property
    def replica(self):
        [replica] = [each for each in self.servers if role(each) == "slave"]
        return replica


def role(server):
    return server.client().info("replication")["role"]


def is_in_step(watched):
    ours = watched.primary.client().info("replication")["master_repl_offset"]
    theirs = watched.replica.client().info("replication")
    return theirs["master_link_status"] == "up" and theirs["slave_repl_offset"] == ours


@pytest.fixture(scope="module")
def watched():
    """Slow to start, so there is one for all; the test of a failover has its own."""
    binary = known_servers()["valkey"]
    if binary.path is None:
        pytest.skip(f"needs the server valkey: {binary.reason}")
    primary = Server(binary, ["--repl-diskless-sync-delay", "0"])
    replica = Server(binary, ["--replicaof", f"127.0.0.1 {primary.port}"])
    eventually_sync(lambda: replica.client().info("replication")["master_link_status"] == "up")
    sentinel = Sentinel(binary, primary, SERVICE)
    yield Watched((primary, replica), sentinel)
    sentinel.close()
    for server in (primary, replica):
        server.close()


@pytest.fixture(params=FLAVOURS)
async def dial(request):
    async with callers(request.param) as open_one:
        yield open_one


def increment(key="counter"):
    return call("INCR", key, read=int, repeatable=False)


async def test_the_primary_is_found_by_the_name_of_its_service(watched, dial, queue_name):
    assert await dial(watched.url).run(increment(queue_name)) == 1
    assert watched.primary.client().get(queue_name) == b"1"


async def test_a_sentinel_that_does_not_answer_is_passed_over(watched, dial, queue_name):
    url = watched.url.replace("://", "://127.0.0.1:1,")
    assert await dial(url).run(increment(queue_name)) == 1


async def test_an_unknown_service_is_refused_with_its_name_and_the_sentinels(watched, dial):
    url = watched.url.removesuffix(SERVICE) + "payroll"
    with pytest.raises(ConnectionFailedError, match="knows no service 'payroll'") as caught:
        await dial(url).ready()
    assert f"127.0.0.1:{watched.sentinel.port}" in str(caught.value)


async def test_a_server_that_is_no_sentinel_is_refused_with_what_it_said(watched, dial):
    url = f"redis+sentinel://127.0.0.1:{watched.primary.port}/{SERVICE}"
    with pytest.raises(ConnectionFailedError, match=r"no sentinel named.*unknown command"):
        await dial(url).ready()


@pytest.fixture
def closed_sentinel(watched):
    watched.sentinel.ask("ACL", "SETUSER", "default", "resetpass", ">0pen")
    yield
    watched.sentinel.ask("ACL", "SETUSER", "default", "nopass")


async def test_a_sentinel_has_a_password_of_its_own(watched, dial, closed_sentinel, queue_name):
    caller = dial(f"{watched.url}?sentinel_password=0pen")
    assert await caller.run(increment(queue_name)) == 1


@pytest.mark.parametrize(
    ("option", "problem"),
    [("", "NOAUTH"), ("?sentinel_password=wr0ng", "refused the login: WRONGPASS")],
    ids=["none", "wrong"],
)
async def test_a_sentinels_wish_for_a_password_is_told(
    watched, dial, closed_sentinel, option, problem
):
    with pytest.raises(ConnectionFailedError, match=problem) as caught:
        await dial(watched.url + option).ready()
    assert "wr0ng" not in str(caught.value)


async def test_after_a_failover_everything_goes_on_at_the_new_primary_and_no_job_is_lost(
    start_server, queue_name
):
    """Writes are held at the old primary until its replica has all of them, as operators do.

    Otherwise what was acknowledged in the last moment may be lost with any server that replicates
    in the background; no client can change that.
    """
    binary = known_servers()["valkey"]
    primary = start_server("valkey", "--repl-diskless-sync-delay", "0")
    replica = start_server("valkey", "--replicaof", f"127.0.0.1 {primary.port}")
    await eventually(lambda: replica.client().info("replication")["master_link_status"] == "up")
    sentinel = await asyncio.to_thread(Sentinel, binary, primary, SERVICE)
    watched = Watched((primary, replica), sentinel)
    try:
        async with callers("asyncio") as open_one, callers("blocking") as open_other:
            options = short_options(patience_ms=20_000)
            twins = open_one(watched.url, options), open_other(watched.url, options)
            await fail_over_under_load(watched, queue_name, twins)
    finally:
        sentinel.close()


async def fail_over_under_load(watched, queue_name, twins):
    old, new = watched.primary, watched.replica
    added, done = [], set()
    stop = asyncio.Event()
    queue = Queue(queue_name, redis_url=watched.url)

    async def handler(job):
        done.add(job.data)

    async def produce():
        while not stop.is_set():
            number = len(added)
            await queue.add("work", number)
            added.append(number)

    worker = Worker(queue_name, handler, redis_url=watched.url, handle_signals=False)
    running = asyncio.ensure_future(worker.run())
    producing = asyncio.ensure_future(produce())
    assert [await twin.run(increment()) for twin in twins] == [1, 2]
    await eventually(lambda: len(done) > 50)

    old.client().execute_command("CLIENT", "PAUSE", 30_000, "WRITE")
    await eventually(lambda: is_in_step(watched))
    before = len(added)
    await asyncio.to_thread(watched.sentinel.fail_over)
    # What the sentinel does too, some ten seconds later.
    old.client().replicaof("127.0.0.1", new.port)
    old.client().execute_command("CLIENT", "KILL", "TYPE", "normal")
    old.client().execute_command("CLIENT", "UNPAUSE")
    await eventually(lambda: len(added) > before + 50, timeout=30)
    stop.set()
    await producing
    await eventually(lambda: done >= set(added), timeout=30)

    for twin in twins:
        await twin.hears_something()  # that the old primary has hung up
    assert [await twin.run(increment()) for twin in twins] == [3, 4]
    assert new.client().get("counter") == b"4"
    await worker.close()
    await running
    await queue.close()
