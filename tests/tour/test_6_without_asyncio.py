"""Chapter 6: from Django, Flask and scripts, where there is no event loop."""

import asyncio

from chasquimq import SyncQueue
from chasquimq.testing import running


def test_the_same_calls_work_without_await(server, queue_name):
    with SyncQueue(queue_name, redis_url=server.url) as queue:
        job = queue.add("welcome", {"to": "ada"})
        queue.add_bulk([{"name": "welcome", "data": {"to": name}} for name in ("bob", "cyd")])

        assert queue.counts().waiting == 3
        assert queue.get_job(job.id).data == {"to": "ada"}


async def test_a_script_waits_for_what_a_plain_handler_returns(server, queue_name, make_worker):
    def shout(job):
        return job.data.upper()

    def script():
        with SyncQueue(queue_name, redis_url=server.url) as queue:
            job = queue.add("shout", "hello")
            return queue.wait_for_result(job.id, timeout=10)

    async with running(make_worker(shout, store_results=True)):
        assert await asyncio.to_thread(script) == "HELLO"
