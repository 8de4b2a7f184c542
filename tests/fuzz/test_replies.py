"""Replies of something that is no server of ours: an error of ours, soon, and no memory eaten."""

import contextlib
import socket
import socketserver
import threading
import time
from collections.abc import Awaitable

import hypothesis.strategies as st
import pytest
from hiredis import ReplyError
from hypothesis import example, given, settings

from chasquimq.broker import (
    access,
    backlog,
    browse,
    delayed,
    dlq,
    events,
    inspect,
    limits,
    pages,
    pause,
    repeats,
    results,
    server,
    stream,
    survey,
    topology,
    upkeep,
)
from chasquimq.broker.blocking import BlockingConnection
from chasquimq.broker.call import Call, call, understood
from chasquimq.broker.connection import Connection
from chasquimq.broker.limits import Limit
from chasquimq.broker.options import ConnectionOptions
from chasquimq.broker.url import parse_url
from chasquimq.errors import ChasquiError
from chasquimq.wire.keys import QueueKeys
from tests.support.effort import effort

KEYS = QueueKeys("q")
CALLS = {
    "handshake": server.handshake(None, database=0, client_name="x", probe_key=b"k"),
    "counts": inspect.counts(KEYS, "g"),
    "depths": survey.depths(KEYS, "g"),
    "delayed jobs": survey.delayed_jobs(KEYS, limit=3),
    "idle": inspect.is_idle(KEYS),
    "work": backlog.work(KEYS, "g", min_idle_ms=1),
    "head": pages.head(KEYS.stream),
    "read": stream.read(KEYS, "g", "c", count=3, block_ms=0, claim_min_idle_ms=1),
    "claim": stream.claim(KEYS, "g", "c", min_idle_ms=1, count=2),
    "take": limits.take(KEYS, "g", "c", limit=Limit(1, 1), count=1, min_idle_ms=1, claiming="read"),
    "pending": stream.pending(KEYS, "g", "c"),
    "join": stream.join(KEYS, "g"),
    "promote": delayed.promote(
        KEYS, holder="h", lock_ttl_s=1, batch=1, capacity=1, events_cap=1, dlq_cap=1
    ),
    "peek": dlq.peek(KEYS, limit=3),
    "results": results.read(KEYS, ["a"]),
    "events": events.read(KEYS, after="0", count=2, block_ms=0),
    "pause": pause.wait_for_resume(KEYS, after=b"0", block_ms=1),
    "time": upkeep.server_time_ms(),
    "progress": browse.progress(KEYS, "a"),
    "next fire": repeats.next_due(KEYS),
    "slots": topology.slot_ranges(),
    "primary": topology.primary_of("s"),
}

# Told to a call as they are: what hiredis can make of bytes.
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 2**63),
    st.floats(),
    st.binary(max_size=12),
    st.sampled_from((b"1-1", b"1700000000000-0", b"d", b"n", b"default", b"12", b"inf", b"", b"0")),
    st.sampled_from(("ERR no such key", "NOGROUP x", "OOM x", "", "MOVED 1 h:1")).map(ReplyError),
)
replies = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=7),
        st.dictionaries(st.binary(max_size=3), inner, max_size=2),
    ),
    max_leaves=14,
)


@pytest.mark.parametrize("name", CALLS)
@settings(max_examples=effort(25, 20_000))
@given(data=st.data())
def test_replies_that_mean_nothing_are_an_error_of_ours(name, data):
    asked: Call[object] = CALLS[name]
    told = [data.draw(replies) for _ in asked.requests]
    with contextlib.suppress(ChasquiError):
        understood(asked, told)


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
