"""Both doors to a queue behind one way of calling them, and quick workers.

A test that takes `door` runs twice: through `Queue`, and through `SyncQueue` in a thread. What it
promises is thereby promised of both.
"""

import asyncio
from inspect import iscoroutinefunction

import pytest

from chasquimq import Queue, RetryConfig, SyncQueue, Worker

DOORS = {"async": Queue, "sync": SyncQueue}
NOWHERE = "redis://127.0.0.1:1"


class Door:
    """The methods of a `Queue` or a `SyncQueue`, all of them to be awaited."""

    def __init__(self, queue):
        self.queue = queue

    def __getattr__(self, name):
        method = getattr(self.queue, name)
        if not callable(method) or iscoroutinefunction(method):
            return method

        async def in_a_thread(*args, **kwargs):
            return await asyncio.to_thread(method, *args, **kwargs)

        return in_a_thread


@pytest.fixture(params=DOORS)
def kind(request):
    """`Queue` and `SyncQueue` in turn."""
    return DOORS[request.param]


@pytest.fixture
async def make_door(kind, server, queue_name):
    """Open doors to this test's queue, with options; they are closed in the end."""
    doors = []

    def make(**options):
        doors.append(Door(kind(queue_name, redis_url=server.url, **options)))
        return doors[-1]

    yield make
    for door in doors:
        await door.close()


@pytest.fixture
def door(make_door):
    return make_door()


@pytest.fixture
def unconnected(kind):
    """A door to nowhere, for what must be refused before anything is sent."""
    return Door(kind("nowhere", redis_url=NOWHERE))


@pytest.fixture
async def queue(server, queue_name):
    async with Queue(queue_name, redis_url=server.url) as queue:
        yield queue


@pytest.fixture
def make_worker(server, queue_name):
    """A worker of the same queue, with retries after a millisecond."""
    quickly = RetryConfig(initial_backoff_ms=1, jitter_ms=0)

    def make(handler, **options):
        defaults = {"retry": quickly, "handle_signals": False}
        return Worker(queue_name, handler, redis_url=server.url, **defaults | options)

    return make
