"""A connection shared by many callers: order, writes, sizes, the server's errors, its strangeness.

What the network does to it is in `tests/faults/test_reconnect.py`.
"""

import asyncio
import threading

import pytest

from chasquimq import Queue
from chasquimq.broker.call import Call, call, together
from chasquimq.errors import (
    ConnectionFailedError,
    OutcomeUnknownError,
    ServerReplyError,
    ShutdownError,
)
from tests.support.eventually import eventually
from tests.support.flavours import (
    FLAVOURS,
    blocking_connection,
    callers,
    connection,
    short_options,
)
from tests.support.proxy import proxy_before


@pytest.fixture(params=FLAVOURS)
async def dial(request):
    async with callers(request.param) as open_one:
        yield open_one


@pytest.fixture
def key(queue_name):
    return f"{{chasqui:{queue_name}}}:scratch"


def echo(text):
    return call("ECHO", text, read=bytes.decode)


def put(key, text):
    return call("SET", key, text, "EX", 60, read=bytes.decode)


class CountingTransport:
    """A transport that notes every write, and is the real one otherwise."""

    def __init__(self, transport, writes):
        self._transport = transport
        self._writes = writes

    def write(self, data):
        self._writes.append(bytes(data))
        self._transport.write(data)

    def __getattr__(self, name):
        return getattr(self._transport, name)


@pytest.fixture
async def writes(monkeypatch):
    """Everything that is written to a socket from here on, write by write."""
    loop = asyncio.get_running_loop()
    seen = []
    real = loop.create_connection

    async def create_connection(factory, *arguments, **options):
        def observed():
            protocol = factory()
            made = protocol.connection_made
            protocol.connection_made = lambda it: made(CountingTransport(it, seen))
            return protocol

        return await real(observed, *arguments, **options)

    monkeypatch.setattr(loop, "create_connection", create_connection)
    return seen


async def test_any_number_of_callers_get_each_its_own_answer(server, dial):
    caller = dial(server.url)
    asked = [f"{number}" for number in range(200)]
    assert await asyncio.gather(*(caller.run(echo(text)) for text in asked)) == asked


@pytest.mark.servers("valkey")
async def test_all_that_is_asked_in_one_turn_of_the_loop_leaves_in_one_write(server, writes):
    shared = connection(server.url)
    await shared.ready()
    writes.clear()
    asked = [f"{number:03}" for number in range(100)]
    assert await asyncio.gather(*(shared.run(echo(text)) for text in asked)) == asked
    [written] = writes
    assert written == b"".join(echo(text).requests[0] for text in asked)
    await shared.close()


@pytest.mark.servers("valkey")
async def test_what_is_asked_in_a_later_turn_does_not_wait_for_earlier_answers(server, writes):
    with proxy_before(server.port) as proxy:
        behind = connection(proxy.url)
        await behind.ready()
        writes.clear()
        proxy.hold_answers()
        first = asyncio.ensure_future(behind.run(echo("first")))
        await eventually(lambda: len(writes) == 1)
        second = asyncio.ensure_future(behind.run(echo("second")))
        await eventually(lambda: len(writes) == 2)
        assert not first.done()
        proxy.pass_answers()
        assert [await first, await second] == ["first", "second"]
        await behind.close()


async def test_a_pipeline_may_be_larger_than_any_socket_buffer(server, dial):
    caller = dial(server.url)
    block = "x" * 1_000
    calls = [echo(f"{number}{block}") for number in range(12_000)]
    answers = await caller.run(together(calls))
    assert [answer.removesuffix(block) for answer in answers] == [str(n) for n in range(12_000)]


@pytest.mark.servers("valkey")
async def test_one_answer_may_be_larger_than_any_socket_buffer(server, dial):
    text = "y" * 8_000_000
    assert await dial(server.url).run(echo(text)) == text


@pytest.mark.servers("valkey")
async def test_a_fast_sender_can_wait_until_the_socket_takes_more(server):
    with proxy_before(server.port) as proxy:
        shared = connection(proxy.url)
        await shared.ready()
        await shared.wait_writable()  # at once
        proxy.hold_requests()
        large = "z" * 32_000_000
        running = asyncio.ensure_future(shared.run(echo(large)))
        await asyncio.sleep(0)
        waiting = asyncio.ensure_future(shared.wait_writable())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not waiting.done()
        proxy.pass_requests()
        await waiting
        assert await running == large
        await shared.close()


async def test_a_refusal_of_the_server_tells_its_kind_and_concerns_its_caller_only(
    server, dial, key
):
    caller = dial(server.url)
    await caller.run(put(key, "text"))
    wrong = caller.run(call("LPUSH", key, "x", read=int))
    before, refused, after = await asyncio.gather(
        caller.run(echo("before")), wrong, caller.run(echo("after")), return_exceptions=True
    )
    assert (before, after) == ("before", "after")
    assert isinstance(refused, ServerReplyError)
    assert refused.kind == "WRONGTYPE"
    assert "WRONGTYPE" in str(refused)


@pytest.mark.servers("valkey")
async def test_a_refusal_within_a_pipeline_leaves_the_rest_of_it_carried_out(server, dial, key):
    caller = dial(server.url)
    await caller.run(put(key, "text"))
    pipeline = together([call("LPUSH", key, "x", read=int), put(key, "later")])
    with pytest.raises(ServerReplyError, match="WRONGTYPE"):
        await caller.run(pipeline)
    assert await caller.run(call("GET", key, read=bytes.decode)) == "later"


@pytest.mark.servers("valkey")
async def test_a_call_without_requests_is_answered_at_once(server, dial):
    caller = dial(server.url)
    await caller.ready()
    assert await caller.run(Call((), list)) == []
    assert await caller.run(together([])) == []
    assert await caller.run(echo("still in step")) == "still in step"


@pytest.mark.servers("valkey")
async def test_a_reply_that_nobody_asked_for_ends_the_link_and_is_nobodys_answer(server, dial):
    with proxy_before(server.port) as proxy:
        caller = dial(proxy.url)
        assert await caller.run(echo("one")) == "one"
        proxy.say(b"+surprise\r\n")
        await caller.hears_something()
        assert await caller.run(echo("two")) == "two"
        assert proxy.connections == 2


@pytest.mark.servers("valkey")
async def test_garbage_in_place_of_an_answer_ends_the_link_with_a_clear_error(server, dial):
    with proxy_before(server.port) as proxy:
        caller = dial(proxy.url)
        await caller.ready()
        proxy.hold_answers()
        waiting = asyncio.ensure_future(
            caller.run(call("ECHO", "mid-flight", read=bytes.decode, repeatable=False))
        )
        await eventually(lambda: proxy.count(b"mid-flight"))
        proxy.say(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        with pytest.raises(OutcomeUnknownError, match="the server does not speak RESP"):
            await waiting


@pytest.mark.servers("valkey")
@pytest.mark.parametrize(
    ("greeting", "problem"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "the server does not speak RESP.*rediss://"),
        (b"\x15\x03\x03\x00\x02\x02\x0a", "the server does not speak RESP.*rediss://"),
        (b"-DENIED Redis is running in protected mode\r\n", "DENIED Redis is running in protected"),
        (b"-ERR max number of clients reached\r\n", "ERR max number of clients reached"),
    ],
    ids=["http", "tls-alert", "protected-mode", "full"],
)
async def test_what_a_server_says_before_it_hangs_up_is_in_the_error(
    server, dial, greeting, problem
):
    with proxy_before(server.port) as proxy:
        proxy.greet(greeting)
        with pytest.raises(ConnectionFailedError, match=problem):
            await dial(proxy.url).ready()


async def test_a_server_that_is_full_says_so(start_server, dial):
    own = start_server("valkey")
    own.client().config_set("maxclients", 1)
    with pytest.raises(ConnectionFailedError, match="max number of clients reached"):
        await dial(own.url).ready()


async def test_the_server_is_reached_by_its_unix_socket(server, dial, key):
    caller = dial(server.socket_url)
    await caller.run(put(key, "by path"))
    assert server.client().get(key) == b"by path"


@pytest.mark.servers("valkey")
async def test_the_database_of_the_url_is_the_one_that_is_used(server, dial, key):
    for url in (f"{server.url}/3", f"{server.socket_url}?db=3"):
        caller = dial(url)
        await caller.run(put(key, url))
        assert await caller.run(call("GET", key, read=bytes.decode)) == url
        assert server.client().get(key) is None


@pytest.mark.servers("valkey")
async def test_a_database_that_is_not_there_is_named_as_the_problem(server, dial):
    with pytest.raises(ConnectionFailedError, match=r"refused the database.*out of range"):
        await dial(f"{server.url}/4711").ready()


@pytest.mark.servers("valkey")
async def test_a_closed_connection_refuses_calls_and_may_be_closed_again(server, dial):
    caller = dial(server.url)
    await caller.ready()
    await caller.close()
    await caller.close()
    with pytest.raises(ShutdownError, match="was closed"):
        await caller.run(echo("too late"))


@pytest.mark.servers("valkey")
async def test_closing_ends_a_call_that_waits_for_a_blocked_read(server, dial, key):
    caller = dial(server.url)
    await caller.ready()
    blocked = call("BLPOP", key, 60, read=list, block_ms=60_000)
    waiting = asyncio.ensure_future(caller.run(blocked))
    await eventually(lambda: b"blpop" in repr(server.client().client_list()).encode())
    await caller.close()
    with pytest.raises(ShutdownError, match="may or may not"):
        await waiting


async def test_closing_ends_a_call_that_waits_for_the_server_to_come_back(start_server, dial):
    own = start_server("valkey")
    caller = dial(own.url, short_options(patience_ms=60_000))
    await caller.ready()
    own.kill()
    waiting = asyncio.ensure_future(caller.run(echo("anyone?")))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(waiting), 0.3)
    await asyncio.wait_for(caller.close(), 1)
    with pytest.raises(ShutdownError):
        await waiting


@pytest.mark.servers("valkey")
def test_threads_share_one_blocking_connection_without_mixing_their_answers(server):
    shared = blocking_connection(server.url)
    wrong = []

    def work(number):
        for round_ in range(50):
            text = f"{number}-{round_}"
            answers = shared.run(together([echo(text), echo(text + "!")]))
            if answers != [text, text + "!"]:
                wrong.append((text, answers))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    shared.close()


def test_a_queue_works_on_uvloop(start_server, queue_name):
    uvloop = pytest.importorskip("uvloop")
    own = start_server("valkey")

    async def add():
        async with Queue(queue_name, redis_url=own.url) as queue:
            await queue.add_bulk([{"name": "work", "data": number} for number in range(2_000)])
            return await queue.counts()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(add()).waiting == 2_000
