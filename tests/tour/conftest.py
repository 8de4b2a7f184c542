"""What every chapter of the tour starts with: a queue, and a way to make workers for it.

The chapters are numbered; read them in order. They use the public API only. In a program of your
own, leave `redis_url` out and set CHASQUI_REDIS_URL, or have a server on this machine.
"""

import pytest

from chasquimq import Queue, RetryConfig, Worker


@pytest.fixture
async def queue(server, queue_name):
    async with Queue(queue_name, redis_url=server.url) as queue:
        yield queue


@pytest.fixture
def make_worker(server, queue_name):
    """A worker of the same queue; its retries come after a millisecond, so that tests are quick."""
    quickly = RetryConfig(initial_backoff_ms=1, jitter_ms=0)

    def make(handler, **options):
        return Worker(queue_name, handler, redis_url=server.url, **{"retry": quickly} | options)

    return make
