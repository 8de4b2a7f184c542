"""Replies of something that is no server of ours: an error of ours, soon, and no memory eaten."""

import contextlib
import importlib
import inspect
import pkgutil
import re
import socket
import socketserver
import threading
import time
from collections.abc import Awaitable

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings

import chasquimq.broker
import chasquimq.engine
from chasquimq.broker import access
from chasquimq.broker.blocking import BlockingConnection
from chasquimq.broker.call import call, understood
from chasquimq.broker.connection import Connection
from chasquimq.broker.options import ConnectionOptions
from chasquimq.broker.url import parse_url
from chasquimq.errors import ChasquiError
from tests.fuzz.calls import CALLS
from tests.fuzz.nonsense import replies, spoiled
from tests.support.effort import effort

# What is returned, as a type or, where it is quoted, as its text.
_A_CALL = re.compile(r"(chasquimq\.broker\.call\.)?Call\[")


@pytest.mark.parametrize("name", CALLS)
@settings(max_examples=effort(25, 5_000))
@given(data=st.data())
def test_replies_that_mean_nothing_are_an_error_of_ours(name, data):
    asked, good = CALLS[name]
    # Good ones among them: else the first would hide how the others are read.
    told = [data.draw(st.just(reply) | spoiled(reply) | replies) for reply in good]
    with contextlib.suppress(ChasquiError):
        understood(asked, told)


@pytest.mark.parametrize("name", CALLS)
def test_replies_that_are_spoiled_here_would_be_understood_otherwise(name):
    asked, good = CALLS[name]
    assert len(good) == len(asked.requests)
    understood(asked, good)


def test_all_calls_are_told_nonsense_here():
    found = {*_calls_of(chasquimq.broker, methods=True), *_calls_of(chasquimq.engine)}
    assert found == {name.split(" ")[0] for name in CALLS}


def _calls_of(package, *, methods=False):
    """Whatever makes a call, by name; methods of the engine only hand on what the broker made."""
    for module in pkgutil.iter_modules(package.__path__):
        path = f"{package.__name__}.{module.name}"
        members = [*vars(importlib.import_module(path)).values()]
        own = [each for each in members if getattr(each, "__module__", "") == path]
        if methods:
            own += [part for kind in own if inspect.isclass(kind) for part in vars(kind).values()]
        for function in filter(inspect.isfunction, map(inspect.unwrap, own)):
            name = f"{module.name}.{function.__qualname__}"
            returned = str(inspect.signature(function).return_annotation)
            if _A_CALL.match(returned) and "._" not in name:
                yield name


class Babble(socketserver.BaseRequestHandler):
    """Says the same to everybody, whatever they ask, and then hangs up or falls silent."""

    def handle(self):
        with contextlib.suppress(OSError):
            self.request.recv(65_536)
            self.request.sendall(self.server.says)
            while self.server.floods and not self.server.is_over.is_set():
                self.request.sendall(b"x" * 65_536)
            if self.server.holds:
                self.server.is_over.wait(10)


@contextlib.contextmanager
def babbling(says, *, holds=False, floods=False):
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Babble) as babbler:
        babbler.says, babbler.holds, babbler.floods = says, holds, floods
        babbler.is_over, babbler.daemon_threads = threading.Event(), True
        thread = threading.Thread(target=babbler.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{babbler.server_address[1]}"
        finally:
            babbler.is_over.set()
            babbler.shutdown()
            thread.join()


HASTY = ConnectionOptions(
    reconnect_max_attempts=1, connect_timeout_ms=400, response_timeout_ms=400, patience_ms=800
)
pieces = st.one_of(
    st.binary(max_size=20),
    st.sampled_from(
        (
            b"+OK\r\n", b":1\r\n", b"$-1\r\n", b"*-1\r\n", b"$3\r\nabc\r\n", b"*2\r\n:1\r\n:2\r\n",
            b"-ERR no\r\n", b"-LOADING x\r\n", b"-NOAUTH x\r\n", b"%1\r\n*1\r\n:1\r\n:2\r\n",
            b"*2147483647\r\n", b"$99999999999999\r\n", b"*1\r\n" * 200, b">1\r\n+x\r\n",
            b"-MOVED 1 127.0.0.1:99999\r\n", b"*2\r\n$1\r\nh\r\n:99999\r\n",
            b"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$1\r\n?\r\n:99999\r\n", b"*1\r\n:5\r\n",
            b"$13\r\nrole:slave\r\n\r\r\n", b"#t\r\n", b",nan\r\n", b"HTTP/1.1 400 Bad\r\n\r\n",
        )
    ),
)  # fmt: skip


# What it is taken for: a server, a sentinel, a node of a cluster.
TARGETS = st.sampled_from(("redis://{}", "redis+sentinel://{}/s", "redis-cluster://{}"))
NO_RANGES = b"*1\r\n:5\r\n" * 20


@settings(max_examples=effort(25, 2_000))
@given(says=st.lists(pieces, max_size=12).map(b"".join), holds=st.booleans(), target=TARGETS)
@example(says=b"%1\r\n*1\r\n:1\r\n:2\r\n", holds=False, target="redis://{}")
@example(says=b"*2147483647\r\n", holds=True, target="redis://{}")
@example(says=NO_RANGES, holds=False, target="redis-cluster://{}")
@example(says=NO_RANGES, holds=False, target="redis+sentinel://{}/s")
@example(says=b"-MOVED 1 127.0.0.1:99999\r\n" * 20, holds=False, target="redis-cluster://{}")
def test_a_caller_in_a_thread_hears_of_babble_in_good_time(says, holds, target):
    with babbling(says, holds=holds) as place:
        connection = BlockingConnection(parse_url(target.format(place)), HASTY, slot_key=b"k")
        began = time.monotonic()
        with pytest.raises(ChasquiError):
            connection.run(call("XLEN", "k", read=_whole))
        connection.close()
        assert time.monotonic() - began < 5


@settings(max_examples=effort(25, 2_000))
@given(says=st.lists(pieces, max_size=12).map(b"".join), holds=st.booleans(), target=TARGETS)
@example(says=b"%1\r\n*1\r\n:1\r\n:2\r\n", holds=False, target="redis://{}")
@example(says=NO_RANGES, holds=False, target="redis-cluster://{}")
async def test_a_caller_in_an_event_loop_hears_of_babble_in_good_time(says, holds, target):
    with babbling(says, holds=holds) as place:
        connection = Connection(parse_url(target.format(place)), HASTY, slot_key=b"k")
        began = time.monotonic()
        with pytest.raises(ChasquiError):
            await connection.run(call("XLEN", "k", read=_whole))
        await connection.close()
        assert time.monotonic() - began < 5


@pytest.mark.parametrize("kind", [BlockingConnection, Connection])
async def test_a_reply_without_an_end_is_cut_off(kind, monkeypatch):
    monkeypatch.setattr(access, "MOST_REPLY_BYTES", 1 << 20)
    patient = ConnectionOptions(reconnect_max_attempts=1, connect_timeout_ms=60_000)
    with babbling(b"$99999999999999\r\n", floods=True) as place:
        connection = kind(parse_url(f"redis://{place}"), patient, slot_key=b"k")
        with pytest.raises(ChasquiError, match="a reply has more than 1048576 bytes"):
            await _done(connection.run, call("XLEN", "k", read=_whole))
        await _done(connection.close)


async def _done(do, *arguments):
    """Do it, whichever kind of connection it is of."""
    answer = do(*arguments)
    if isinstance(answer, Awaitable):
        await answer


def _whole(reply):
    """Babble that happens to greet well must not pass for an answer."""
    if not isinstance(reply, int) or reply != -12_345:
        msg = f"{reply!r} is no length"
        raise TypeError(msg)


def test_babble_is_sent_from_loopback_only():
    with babbling(b"") as place:
        port = int(place.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=2) as peer:
            assert peer.getpeername()[0] == "127.0.0.1"
