"""Opening, closing, sharing: queues across event loops and threads, workers from start to end."""

import asyncio
import functools
import gc
import threading
import warnings

import pytest

from chasquimq import ConnectionFailedError, Counts, Queue, QueueEvents, SyncQueue, Worker
from chasquimq.testing import run_until_idle, running
from tests.api.conftest import NOWHERE
from tests.support.eventually import eventually


def connections(server, name="chasquimq"):
    return [each for each in server.client().client_list() if each["name"].startswith(name)]


async def test_closing_twice_is_harmless_and_a_closed_queue_opens_again_when_used(door):
    assert not door.is_closed
    await door.add("send", 1)
    await door.close()
    await door.close()
    assert door.is_closed
    await door.add("send", 2)
    assert (await door.counts()).waiting == 2
    assert door.is_closed, "it says whether close was called"


async def test_a_queue_that_was_never_used_can_be_closed(unconnected):
    await unconnected.close()
    assert unconnected.is_closed


async def test_closing_drops_the_connection(door, server):
    await door.add("send", 1)
    assert connections(server)
    await door.close()
    await eventually(lambda: not connections(server))


async def test_a_queue_is_closed_at_the_end_of_its_context(server, queue_name):
    async with Queue(queue_name, redis_url=server.url) as queue:
        assert isinstance(queue, Queue)
        assert not queue.is_closed
        await queue.add("send", 1)
    assert queue.is_closed

    with SyncQueue(queue_name, redis_url=server.url) as sync_queue:
        assert isinstance(sync_queue, SyncQueue)
        assert not sync_queue.is_closed
        assert sync_queue.counts().waiting == 1
    assert sync_queue.is_closed


@pytest.mark.parametrize("make", [Queue, SyncQueue, QueueEvents])
def test_making_one_connects_nothing_and_shows_no_password(make):
    shown = repr(make("emails", redis_url="redis://ada:s3cret@127.0.0.1:1/0"))
    assert "emails" in shown
    assert "s3cret" not in shown


async def test_a_server_that_is_not_there_is_told_at_once_with_what_to_do(unconnected):
    with pytest.raises(ConnectionFailedError, match=r"127\.0\.0\.1:1.*CHASQUI_REDIS_URL.*embedded"):
        await unconnected.add("send", 1)


def test_one_queue_serves_one_event_loop_after_another(server, queue_name):
    queue = Queue(queue_name, redis_url=server.url)

    async def add(number):
        await queue.add("send", number)
        counts = await queue.counts()
        await queue.close()
        return counts.waiting

    assert [asyncio.run(add(number)) for number in range(3)] == [1, 2, 3]


def test_loops_that_end_without_close_do_not_pile_up_connections(server, queue_name):
    queue = Queue(queue_name, redis_url=server.url)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # which Python gives for such loops
        for number in range(5):
            asyncio.run(queue.add("send", number))
            gc.collect()
            assert len(connections(server)) <= 2
        asyncio.run(queue.close())
        del queue
        gc.collect()


def test_one_queue_serves_event_loops_in_several_threads_at_the_same_time(server, queue_name):
    queue = Queue(queue_name, redis_url=server.url)
    threads, jobs_each = 4, 100
    ids = []

    async def add_all():
        added = await asyncio.gather(*(queue.add("send", n) for n in range(jobs_each)))
        added += await queue.add_bulk([{"name": "bulk", "data": n} for n in range(jobs_each)])
        ids.extend(job.id for job in added)
        await queue.close()

    running_threads = [
        threading.Thread(target=asyncio.run, args=(add_all(),)) for _ in range(threads)
    ]
    for thread in running_threads:
        thread.start()
    for thread in running_threads:
        thread.join()
    with SyncQueue(queue_name, redis_url=server.url) as check:
        assert check.counts().waiting == len(set(ids)) == 2 * threads * jobs_each


async def test_many_tasks_share_one_connection(queue, server):
    await asyncio.gather(*(queue.add("send", number) for number in range(200)))
    assert (await queue.counts()).waiting == 200
    assert len(connections(server)) == 1


async def returns(_):
    return None


async def test_a_worker_knows_its_name_and_its_state(queue, queue_name, make_worker):
    worker = make_worker(returns)
    assert (worker.name, worker.is_running, worker.is_closed) == (queue_name, False, False)
    begun = asyncio.Event()

    async def handler(_):
        begun.set()

    worker = make_worker(handler)
    await queue.add("send", 1)
    async with running(worker):
        await begun.wait()
        assert (worker.is_running, worker.is_closed) == (True, False)
        await worker.close()
        await worker.close()
        assert worker.is_closed
    assert (worker.is_running, worker.is_closed) == (False, True)


async def test_running_a_worker_twice_waits_for_the_same_end(
    queue, queue_name, server, make_worker
):
    begun, seen = asyncio.Event(), []

    async def handler(job):
        seen.append(job.data)
        begun.set()

    worker = make_worker(handler)
    runs = [asyncio.create_task(worker.run()) for _ in range(3)]
    await queue.add("send", 1)
    await begun.wait()
    assert len(server.client().xinfo_consumers(f"{{chasqui:{queue_name}}}:stream", "default")) == 1
    assert not any(run.done() for run in runs)
    await worker.close()
    await asyncio.gather(*runs)
    assert seen == [1]


async def test_a_worker_can_be_closed_from_inside_a_handler(queue, make_worker):
    async def handler(_):
        await worker.close()

    worker = make_worker(handler)
    await queue.add("send", 1)
    async with asyncio.timeout(8):
        await worker.run()
    assert await queue.counts() == Counts(0, 0, 0, 0), "the job that closed it is done"


async def test_a_closed_worker_runs_no_more_and_needs_no_server():
    worker = Worker("emails", returns, redis_url=NOWHERE)
    await worker.close()
    async with asyncio.timeout(1):
        await worker.run()
        await worker.run()
    assert not worker.is_running


async def test_a_worker_is_closed_at_the_end_of_its_context():
    async with Worker("emails", returns, redis_url=NOWHERE) as worker:
        assert isinstance(worker, Worker)
        assert not worker.is_closed
    assert worker.is_closed


async def test_a_worker_without_a_server_says_so_and_may_be_run_again():
    worker = Worker("emails", returns, redis_url=NOWHERE)
    for _ in range(2):
        with pytest.raises(ConnectionFailedError, match=r"127\.0\.0\.1:1"):
            await worker.run()
        assert not worker.is_running


async def test_cancelling_run_stops_the_worker_after_what_it_has_begun(queue, make_worker):
    begun, may_end, finished = asyncio.Event(), asyncio.Event(), []

    async def handler(_):
        begun.set()
        await may_end.wait()
        finished.append(True)

    await queue.add("send", 1)
    run = asyncio.create_task(make_worker(handler).run())
    await begun.wait()
    run.cancel()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert finished == [True]
    assert await queue.counts() == Counts(0, 0, 0, 0)


class Plain:
    def __init__(self):
        self.seen = []

    def __call__(self, job):
        self.seen.append(job.data)


class Coroutine(Plain):
    async def __call__(self, job):
        self.seen.append(job.data)


@pytest.mark.parametrize("wrap", [lambda f: f, functools.partial], ids=["itself", "partial"])
@pytest.mark.parametrize("kind_of_handler", [Plain, Coroutine])
async def test_anything_that_can_be_called_is_a_handler(queue, make_worker, wrap, kind_of_handler):
    handler = kind_of_handler()
    await queue.add("send", 1)
    await run_until_idle(make_worker(wrap(handler)), queue)
    assert handler.seen == [1]
