"""A queue's keys, a connection that carries calls to them, and the same keys seen raw."""

from contextlib import contextmanager
from functools import partial

import pytest

from chasquimq.broker.blocking import BlockingConnection
from chasquimq.broker.options import ConnectionOptions
from chasquimq.broker.url import parse_url
from chasquimq.wire.keys import QueueKeys
from tests.support import driving
from tests.support.raw_queue import RawQueue


@pytest.fixture
def keys(queue_name):
    return QueueKeys(queue_name)


@pytest.fixture
def raw(server, keys):
    """The queue as the plain client sees it."""
    return RawQueue(server.client(), keys)


@pytest.fixture
def connect(server, keys):
    """Open as many connections as the test wants; all are closed after it."""
    opened = []

    def open_one():
        opened.append(
            BlockingConnection(parse_url(server.url), ConnectionOptions(), slot_key=keys.tag)
        )
        return opened[-1]

    yield open_one
    for connection in opened:
        connection.close()


@pytest.fixture
def connect_as(server, keys):
    """Open a connection for a user with these permissions, keys apart."""
    opened = []

    def open_one(*commands):
        client, user = server.client(), f"user-{len(opened)}-{keys.name}"
        client.acl_setuser(user, enabled=True, nopass=True, keys=["*"], commands=commands)
        url = server.url.replace("//", f"//{user}:any@")
        connection = BlockingConnection(parse_url(url), ConnectionOptions(), slot_key=keys.tag)
        opened.append((user, connection))
        return connection

    yield open_one
    for user, connection in opened:
        connection.close()
        server.client().acl_deluser(user)


@pytest.fixture
def run(connect):
    """Carry out a call and return its answer."""
    return connect().run


@pytest.fixture
def drive(run):
    """Carry out steps and return what they say in the end."""
    return partial(driving.drive, run)


@pytest.fixture
def without_memory(server):
    """`with without_memory():` the server refuses every command that could need memory."""

    @contextmanager
    def used_up():
        server.client().config_set("maxmemory", 1)
        try:
            yield
        finally:
            server.client().config_set("maxmemory", 0)

    return used_up
