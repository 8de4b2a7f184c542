"""What only `SyncQueue` promises: threads may share one, and a forked child has its own connection.

That it does what `Queue` does is promised by every test in this folder that takes `door`.
"""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from chasquimq import JobFailedError, Queue, SyncQueue, UnrecoverableError
from chasquimq.testing import running


@pytest.fixture
def queue(server, queue_name):
    with SyncQueue(queue_name, redis_url=server.url) as queue:
        yield queue


def test_threads_share_one_queue_and_one_connection(queue, server):
    def add(number):
        if number % 10 == 0:
            return queue.add_bulk([{"name": "bulk", "data": number}, {"name": "b", "data": 0}])
        return [queue.add("send", number)]

    with ThreadPoolExecutor(8) as threads:
        added = [job for jobs in threads.map(add, range(300)) for job in jobs]
    assert queue.counts().waiting == len({job.id for job in added}) == 330
    ours = [each for each in server.client().client_list() if each["name"] == "chasquimq"]
    assert len(ours) == 1


def test_of_many_threads_that_add_one_id_exactly_one_succeeds(queue):
    with ThreadPoolExecutor(8) as threads:
        added = list(threads.map(lambda n: queue.add("send", n, job_id="mine"), range(50)))
    assert [job.deduplicated for job in added].count(False) == 1
    assert queue.counts().waiting == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform does not fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_adds_as_its_parent_does_and_neither_loses_a_job(queue):
    """The child has its own connection, and its adds are not taken for repeats of its parent's."""
    queue.add("before", 0)
    children = []
    for child in range(2):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                for number in range(5):
                    queue.add("child", [child, number])
                queue.add_bulk([{"name": "child", "data": n} for n in range(5)])
                status = 0
            finally:
                os._exit(status)
        children.append(pid)
    for number in range(5):
        queue.add("parent", number)
    statuses = [os.waitpid(pid, 0)[1] for pid in children]
    assert statuses == [0, 0]
    queue.add("after", 0)
    assert queue.counts().waiting == 1 + 2 * 10 + 5 + 1


async def test_both_queues_read_each_others_jobs_and_results(
    queue, server, queue_name, make_worker
):
    async def echo(job):
        if job.data is None:
            raise UnrecoverableError
        return job.data

    async with (
        Queue(queue_name, redis_url=server.url) as other,
        running(make_worker(echo, store_results=True)),
    ):
        from_sync = await asyncio.to_thread(queue.add, "echo", 1)
        from_async = await other.add("echo", 2)
        assert await other.wait_for_result(from_sync.id, timeout=10) == 1
        assert await asyncio.to_thread(queue.wait_for_result, from_async.id, timeout=10) == 2

        failing = await other.add("echo", None)
        with pytest.raises(JobFailedError, match="unrecoverable"):
            await asyncio.to_thread(queue.wait_for_result, failing.id, timeout=10)


def test_a_job_added_without_asyncio_says_at_once_which_method_of_its_queue_to_use(queue):
    """Not in a coroutine, which nobody would await."""
    job = queue.add("send", 1)
    with pytest.raises(RuntimeError, match=r"use queue\.wait_for_result\(job\.id\)"):
        job.wait_for_result()
    with pytest.raises(RuntimeError, match=r"use queue\.remove\(job\.id\)"):
        job.remove()
    assert queue.get_job_state(job.id) == "waiting"


def test_a_wait_in_one_thread_does_not_hold_up_another(queue):
    """It has a connection of its own."""
    job = queue.add("send", 1)
    added = 0
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(queue.wait_for_result, job.id, timeout=0.3)
        while not waiting.done():
            queue.add("meanwhile", 1)
            added += 1
    assert isinstance(waiting.exception(), TimeoutError)
    assert added > 10
