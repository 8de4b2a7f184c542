"""How deep a queue is and how late, against what the server holds."""

import pytest

from chasquimq.broker.backlog import backlog
from chasquimq.metrics import QueueDepths
from chasquimq.wire.keys import QueueKeys
from tests.support.driving import drive
from tests.support.flavours import blocking_connection

GROUP = "default"


@pytest.fixture
def look(server, queue_name):
    keys = QueueKeys(queue_name)
    connection = blocking_connection(server.url, slot_key=keys.tag)
    yield lambda: drive(connection.run, backlog(keys, GROUP))
    connection.close()


@pytest.fixture
def keys(queue_name):
    return QueueKeys(queue_name)


@pytest.fixture
def client(server):
    return server.client()


def test_a_queue_that_does_not_exist_is_empty_and_not_late(look):
    assert look() == QueueDepths(waiting=0, active=0, delayed=0, dead=0, lag_ms=0)


def test_everything_is_counted_and_the_oldest_undelivered_entry_is_the_lag(look, keys, client):
    now_ms = int(client.time()[0]) * 1_000
    for ago_ms in (90_000, 60_000, 30_000):
        client.xadd(keys.stream, {"d": "x"}, id=f"{now_ms - ago_ms}-0")
    client.zadd(keys.delayed, {"a": 1, "b": 2})
    client.xadd(keys.dlq, {"d": "x"})
    before = look()
    client.xgroup_create(keys.stream, GROUP, id="0")
    assert 90_000 <= look().lag_ms < 120_000
    client.xreadgroup(GROUP, "c-1", {keys.stream: ">"}, count=1)
    after = look()
    assert (before.waiting, before.active, before.delayed, before.dead) == (3, 0, 2, 1)
    assert 90_000 <= before.lag_ms < 120_000
    assert (after.waiting, after.active) == (2, 1)
    assert 60_000 <= after.lag_ms < 90_000


def test_a_queue_whose_jobs_are_all_delivered_is_not_late(look, keys, client):
    client.xadd(keys.stream, {"d": "x"}, id="1-0")
    client.xgroup_create(keys.stream, GROUP, id="0")
    client.xreadgroup(GROUP, "c-1", {keys.stream: ">"})
    assert look() == QueueDepths(waiting=0, active=1, delayed=0, dead=0, lag_ms=0)
