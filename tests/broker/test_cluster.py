"""A real cluster of two nodes: found from anywhere, followed wherever the queue's slot goes."""

import asyncio

import pytest

from chasquimq import Queue, SyncQueue, Worker
from chasquimq.broker.call import call, together
from chasquimq.broker.scripts import parse_script
from chasquimq.broker.topology import key_slot
from chasquimq.errors import ConnectionFailedError, ServerReplyError
from chasquimq.testing import run_until_idle
from chasquimq.wire.keys import QueueKeys
from tests.support.access import CLUSTER_RULES, PROBES, make_users
from tests.support.eventually import eventually
from tests.support.flavours import FLAVOURS, callers, short_options
from tests.support.servers import known_servers
from tests.support.topologies import Cluster

BUMP = parse_script("bump", "-- KEYS counter\nreturn redis.call('INCR', counter)\n")
SWAP = parse_script(
    "swap",
    "-- KEYS one two\n-- ARGV value\nredis.call('SET', one, value)\n"
    "redis.call('SET', two, value)\nreturn value\n",
)


@pytest.fixture(scope="module")
def cluster():
    """Slow to start, so there is one for all: each test has a slot, or nearly so, of its own."""
    binary = known_servers()["valkey"]
    if binary.path is None:
        pytest.skip(f"needs the server valkey: {binary.reason}")
    made = Cluster(binary)
    yield made
    made.close()


@pytest.fixture(params=FLAVOURS)
async def dial(request):
    async with callers(request.param) as open_one:
        yield open_one


@pytest.fixture
def tag(queue_name):
    return QueueKeys(queue_name).tag


@pytest.fixture
def join(dial, cluster, tag):
    """A caller that enters at the owner of the test's slot."""
    return lambda: dial(cluster.url(cluster.owner(tag)), slot_key=tag)


def increment(key):
    return call("INCR", key, read=int, repeatable=False)


def bump(key):
    return BUMP.call({"counter": key}, {}, read=int)


def test_the_slot_of_a_key_is_the_one_that_the_servers_compute(cluster):
    client = cluster.nodes[0].client()
    for key in (b"plain", b"{chasqui:emails}:stream", b"{}x", b"a{b}c", b"{open", "ключ".encode()):
        assert key_slot(key) == client.execute_command("CLUSTER", "KEYSLOT", key)


async def test_the_owner_is_found_from_whichever_node_is_named(cluster, dial, tag):
    key = tag + b":paused"
    for node in cluster.nodes:
        await dial(cluster.url(node), slot_key=tag).run(increment(key))
    assert cluster.owner(tag).client().get(key) == b"2"


async def test_a_node_that_does_not_answer_is_passed_over(cluster, dial, tag):
    url = cluster.url(cluster.owner(tag)).replace("://", "://127.0.0.1:1,")
    assert await dial(url, slot_key=tag).run(increment(tag + b":paused")) == 1


async def test_a_cluster_of_which_no_node_answers_is_refused_with_every_address(dial):
    caller = dial("redis-cluster://127.0.0.1:1,127.0.0.1:2")
    with pytest.raises(ConnectionFailedError, match=r"127\.0\.0\.1:1: .*; 127\.0\.0\.1:2: "):
        await caller.ready()


async def test_a_plain_url_to_a_node_that_has_the_slot_elsewhere_names_the_remedy(
    cluster, dial, tag
):
    wrong = cluster.other(cluster.owner(tag))
    with pytest.raises(ConnectionFailedError, match="use redis-cluster://"):
        await dial(wrong.url, slot_key=tag).ready()


async def test_a_slot_that_moved_is_followed_and_each_call_runs_once(cluster, join, tag):
    key = tag + b":paused"
    caller = join()
    assert await caller.run(increment(key)) == 1
    cluster.begin_move(tag).finish()
    assert await caller.run(increment(key)) == 2
    cluster.begin_move(tag).finish()
    assert await asyncio.gather(*(caller.run(increment(key)) for _ in range(20))) is not None
    assert cluster.owner(tag).client().get(key) == b"22"


async def test_scripts_are_loaded_where_the_slot_went_and_run_once(cluster, join, tag):
    key = tag + b":paused"
    caller = join()
    assert await caller.run(bump(key)) == 1
    move = cluster.begin_move(tag)
    move.destination.client().script_flush()
    move.finish()
    assert await caller.run(together([bump(key), bump(key)])) == [2, 3]


async def test_a_key_that_is_on_its_way_is_asked_for_where_it_is_going(cluster, join, tag):
    there, gone, new = (tag + suffix for suffix in (b":stream", b":paused", b":dlq"))
    caller = join()
    await caller.run(increment(there))
    await caller.run(increment(gone))
    move = cluster.begin_move(tag)
    move.destination.client().script_flush()
    move.move_key(gone)
    assert await caller.run(increment(there)) == 2
    assert await caller.run(increment(gone)) == 2
    assert await caller.run(bump(gone)) == 3
    calls = together([increment(new), bump(new), increment(there), increment(gone)])
    assert await caller.run(calls) == [1, 2, 3, 4]
    move.finish()
    assert await caller.run(bump(there)) == 4
    assert await caller.run(bump(gone)) == 5


async def test_a_call_on_keys_of_which_one_has_gone_waits_until_the_slot_has(cluster, join, tag):
    one, two = tag + b":stream", tag + b":paused"
    caller = join()
    swap = SWAP.call({"one": one, "two": two}, {"value": "x"}, read=bytes.decode)
    await caller.run(swap)
    move = cluster.begin_move(tag)
    move.move_key(two)
    waiting = asyncio.ensure_future(caller.run(swap))
    done, _ = await asyncio.wait([waiting], timeout=0.2)
    assert not done
    move.finish()
    assert await waiting == "x"


async def test_a_new_connection_can_be_opened_while_the_slot_moves(cluster, join, tag):
    key = tag + b":paused"
    move = cluster.begin_move(tag)
    caller = join()
    assert await caller.run(increment(key)) == 1
    move.finish()
    assert await caller.run(increment(key)) == 2


async def test_no_job_is_lost_or_doubled_while_the_slot_moves_to_and_fro(cluster, queue_name, tag):
    done, added = [], []
    stop = asyncio.Event()
    url = cluster.url(*cluster.nodes)
    queue = Queue(queue_name, redis_url=url)

    async def produce():
        while not stop.is_set():
            number = len(added)
            await queue.add("work", number, job_id=f"unique {number}" if number % 3 else None)
            added.append(number)

    async def more_are_added():
        before = len(added)
        await eventually(lambda: len(added) > before + 20)

    producing = asyncio.ensure_future(produce())
    await more_are_added()
    for _ in range(2):
        # In another thread: the producer goes on while the keys travel, one after the other.
        move = await asyncio.to_thread(cluster.begin_move, tag)
        await asyncio.to_thread(move.move_key, QueueKeys(queue_name).stream)
        await asyncio.to_thread(move.finish)
        await more_are_added()
    stop.set()
    await producing
    assert (await queue.counts()).waiting == len(added)

    async def handler(job):
        done.append(job.data)

    worker = Worker(queue_name, handler, redis_url=url, handle_signals=False)
    running = asyncio.ensure_future(worker.run())
    await eventually(lambda: len(done) >= len(added))
    await worker.close()
    await running
    await queue.close()
    assert sorted(done) == added


async def test_a_worker_follows_its_queue_to_another_node(cluster, queue_name, tag):
    done = []

    async def handler(job):
        done.append(job.data)

    url = cluster.url(*cluster.nodes)
    worker = Worker(queue_name, handler, redis_url=url, handle_signals=False)
    running = asyncio.ensure_future(worker.run())
    async with Queue(queue_name, redis_url=url) as queue:
        await queue.add("work", "before")
        await eventually(lambda: done == ["before"])
        # The reader is blocked on the node that loses the slot.
        move = await asyncio.to_thread(cluster.begin_move, tag)
        await asyncio.to_thread(move.finish)
        await queue.add("work", "after")
        await queue.add("work", "later", delay_ms=20)
        await eventually(lambda: sorted(done) == ["after", "before", "later"])
    await worker.close()
    await running


async def test_a_queue_and_a_worker_work_on_a_cluster_entered_at_the_wrong_node(
    cluster, queue_name, tag
):
    url = cluster.url(cluster.other(cluster.owner(tag)))

    async def handler(job):
        if job.name == "flaky" and job.attempt == 1:
            message = "once"
            raise ValueError(message)
        return job.data * 2

    worker = Worker(queue_name, handler, redis_url=url, store_results=True, handle_signals=False)
    running = asyncio.ensure_future(worker.run())
    async with Queue(queue_name, redis_url=url) as queue:
        jobs = [
            await queue.add("now", 1),
            await queue.add("later", 2, delay_ms=20),
            await queue.add("unique", 3, job_id="mine"),
            await queue.add("flaky", 4, backoff={"kind": "fixed", "delay_ms": 10}),
        ]
        results = await asyncio.gather(*(job.wait_for_result(timeout=10) for job in jobs))
    await worker.close()
    await running
    assert results == [2, 4, 6, 8]


def test_a_queue_without_an_event_loop_works_on_a_cluster(cluster, queue_name, tag):
    queue = SyncQueue(queue_name, redis_url=cluster.url(cluster.other(cluster.owner(tag))))
    queue.add("work", 1)
    cluster.begin_move(tag).finish()
    queue.add_bulk([{"name": "work", "data": 2}])
    assert queue.counts().waiting == 2
    queue.close()


async def test_a_queue_is_managed_on_a_cluster_entered_at_the_wrong_node(cluster, queue_name, tag):
    """`SCAN` names no key, so it is answered by any node: only one of them has the queue."""
    owner = cluster.owner(tag)

    async def handler(job):
        return job.data

    async with Queue(queue_name, redis_url=cluster.url(cluster.other(owner))) as queue:
        done = await queue.add("work", 0)
        await run_until_idle(
            Worker(
                queue_name,
                handler,
                redis_url=cluster.url(owner),
                store_results=True,
                handle_signals=False,
            ),
            queue,
        )
        bulk = [{"name": "work", "data": n, "job_id": f"j{n}"} for n in range(50)]
        await queue.add_bulk(bulk)
        await queue.add_bulk([{**job, "delay_ms": 60_000, "job_id": "d"} for job in bulk[:1]])
        assert [job.id for job in await queue.get_jobs("completed")] == [done.id]
        assert await queue.remove("j7")
        assert len(await queue.clean(limit=9, state="waiting")) == 9
        assert await queue.drain() == 41
        await queue.add_bulk(bulk)
        cluster.begin_move(tag).finish()
        assert (await queue.get_job_counts())["completed"] == 1
        assert await queue.obliterate() > 50
    for node in cluster.nodes:
        assert list(node.client().scan_iter(match="*" + queue_name + "*", count=1_000)) == []


async def test_a_node_that_was_killed_and_comes_back_is_waited_for(cluster, dial, tag):
    node = cluster.owner(tag)
    caller = dial(cluster.url(*cluster.nodes), short_options(patience_ms=20_000), slot_key=tag)
    await caller.run(call("GET", tag, read=bool))
    node.kill()
    waiting = asyncio.ensure_future(caller.run(call("GET", tag, read=bool)))
    await asyncio.to_thread(node.restart)
    assert await waiting is False
    await asyncio.to_thread(cluster.wait_until_it_serves)


async def test_users_need_no_more_in_a_cluster_than_the_page_says(cluster, queue_name, tag):
    """Also while keys are on their way, and are asked for where they are going."""
    done = []

    async def handler(job):
        done.append(job.data)

    for node in cluster.nodes:
        make_users(node, *CLUSTER_RULES)
        node.client().acl_log_reset()

    def url(user):
        return cluster.url(*cluster.nodes).replace("//", f"//{user}:secret@")

    async with Queue(queue_name, redis_url=url("adds")) as queue:
        await queue.add("work", 1)
        move = await asyncio.to_thread(cluster.begin_move, tag)
        await asyncio.to_thread(move.move_key, QueueKeys(queue_name).stream)
        async with Queue(queue_name, redis_url=url("looks")) as looking:
            assert await looking.is_paused() is False  # by a key that is at neither node
        await asyncio.to_thread(move.finish)
        await queue.add("work", 2, job_id="j")
    worker = Worker(queue_name, handler, redis_url=url("works"), handle_signals=False)
    async with Queue(queue_name, redis_url=url("jobs")) as queue:
        await run_until_idle(worker, queue)
    assert sorted(done) == [1, 2]
    refused = {
        (entry["username"], entry["object"])
        for node in cluster.nodes
        for entry in node.client().acl_log()
    }
    # For who only looks it is also asked whether the server can add a job once.
    assert {command for _, command in refused - {("looks", "xadd")}} <= PROBES


async def test_who_may_not_ask_where_a_key_is_going_is_told_so_at_once(cluster, queue_name, tag):
    for node in cluster.nodes:
        make_users(node, *CLUSTER_RULES, "-asking")
    url = cluster.url(*cluster.nodes).replace("//", "//jobs:secret@")
    async with Queue(queue_name, redis_url=url) as queue:
        await queue.add("work", 1)
        move = await asyncio.to_thread(cluster.begin_move, tag)
        with pytest.raises(ServerReplyError, match=r"(?i)no permissions to run the 'asking'"):
            await queue.is_paused()
        # Where the slot has come to meanwhile, nobody has to ask: it is carried out, once.
        await asyncio.to_thread(move.arrive)
        await queue.add("work", 2)
        await asyncio.to_thread(move.finish)
        assert (await queue.counts()).waiting == 2
