"""Workers of `chaos` that are told to die at a step, and what had left them by then."""

import asyncio
from contextlib import contextmanager

import pytest

from chaos.fleet import Actor, cast
from chaos.history import Died, Scroll, Started, read_all
from chaos.options import Options
from chaos.steps import STEPS, acknowledgements
from chasquimq import Queue
from chasquimq.broker import scripts
from chasquimq.wire.keys import QueueKeys
from tests.support.eventually import eventually_sync
from tests.support.proxy import proxy_before

pytestmark = [
    pytest.mark.xdist_group("chaos"),
    pytest.mark.timeout(120),
    pytest.mark.servers("valkey", "redis-8.6"),
]

PARTS = {part.name: part for part in cast(Options())}
WORKERS = [name for name in PARTS if name.startswith("worker")]
DATA = {"takes_ms": 5, "fails": 0, "ends": "ok", "returns": True, "budget": 3, "call": "p/1"}


@contextmanager
def told_to_die(step, server, queue_name, folder, part):
    """A worker that was given a job, and died of it; and the proxy that saw what it sent."""
    asyncio.run(add(server.url, queue_name))
    scroll = Scroll(folder / "test.jsonl")
    with proxy_before(server.port) as proxy:
        actor = Actor(PARTS[part], proxy.url, queue_name, folder=folder, seed=1)
        actor.start(may_be_skewed=False)
        actor.order(f"die {step}")
        try:
            assert actor.wait(60), "it did not come to that step"
            yield proxy
        finally:
            actor.kill(scroll)
            actor.end(scroll)
            scroll.close()


async def add(url, queue_name):
    async with Queue(queue_name, redis_url=url) as queue:
        await queue.add("quick", DATA)


def sent(proxy, queue_name):
    """How many acknowledgements have left the worker."""
    return sum(proxy.count(marker) for marker in acknowledgements(QueueKeys(queue_name).stream))


@pytest.mark.parametrize("part", WORKERS)
def test_a_worker_that_dies_in_a_flush_has_sent_it(server, queue_name, tmp_path, part):
    with told_to_die("in-flush", server, queue_name, tmp_path, part) as proxy:
        eventually_sync(lambda: sent(proxy, queue_name) == 1)


def test_the_workers_take_and_acknowledge_in_every_way_there_is(server, queue_name, tmp_path):
    def ways(part):
        folder = tmp_path / part
        folder.mkdir()
        with told_to_die("in-flush", server, queue_name, folder, part) as proxy:
            eventually_sync(lambda: sent(proxy, queue_name))
        server.client().delete(QueueKeys(queue_name).stream)
        by_script, bare = map(proxy.count, acknowledgements(QueueKeys(queue_name).stream))
        by_limit = proxy.count(scripts.TAKE.sha)
        return by_limit > 0, by_script > 0, bare > 0

    assert ways("worker-1") == (False, True, False)
    assert ways("worker-2") == (True, True, False)
    assert ways("worker-3") == (False, not server.is_modern, server.is_modern)


@pytest.mark.parametrize("part", ["worker-1", "worker-4"])
@pytest.mark.parametrize("step", ["after-read", "in-handler", "before-ack"])
def test_a_worker_that_dies_before_has_sent_nothing(server, queue_name, tmp_path, step, part):
    with told_to_die(step, server, queue_name, tmp_path, part) as proxy:
        pass
    assert sent(proxy, queue_name) == 0


@pytest.mark.parametrize("step", STEPS)
def test_a_death_is_written_down_with_its_step(server, queue_name, tmp_path, step):
    with told_to_die(step, server, queue_name, tmp_path, "worker-1"):
        pass
    written = read_all(tmp_path)
    assert [(each.who, each.step) for each in written if isinstance(each, Died)] == [
        ("worker-1.1", step)
    ]
    begun = [each for each in written if isinstance(each, Started)]
    assert len(begun) == (0 if step == "after-read" else 1)
