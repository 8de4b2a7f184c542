"""A caller that stops waiting, by cancellation or a timeout, disturbs nobody else."""

import asyncio

import pytest

from chasquimq.broker.call import call, together
from chasquimq.errors import ConnectionFailedError
from tests.support.eventually import eventually
from tests.support.flavours import connection, short_options
from tests.support.proxy import proxy_before


def echo(text):
    return call("ECHO", text, read=bytes.decode)


@pytest.fixture
def proxy(server):
    with proxy_before(server.port) as made:
        yield made


@pytest.fixture
async def shared(proxy):
    made = connection(proxy.url)
    await made.ready()
    yield made
    await made.close()


pytestmark = pytest.mark.servers("valkey")


async def test_the_others_get_their_own_answers(proxy, shared):
    proxy.hold_answers()
    waiting = [asyncio.ensure_future(shared.run(echo(str(number)))) for number in range(5)]
    await eventually(lambda: proxy.count(b"ECHO") == 5)
    waiting[0].cancel()
    waiting[3].cancel()
    await asyncio.sleep(0)
    proxy.pass_answers()
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert [answers[1], answers[2], answers[4]] == ["1", "2", "4"]
    assert all(isinstance(answers[at], asyncio.CancelledError) for at in (0, 3))
    assert proxy.connections == 1


async def test_the_answers_of_a_cancelled_pipeline_are_taken_from_the_line_to_the_last(
    proxy, shared
):
    proxy.hold_answers()
    pipeline = together([echo(str(number)) for number in range(1_000)])
    cancelled = asyncio.ensure_future(shared.run(pipeline))
    after = asyncio.ensure_future(shared.run(echo("mine")))
    await eventually(lambda: proxy.count(b"mine") == 1)
    cancelled.cancel()
    proxy.pass_answers()
    assert await after == "mine"


async def test_a_call_cancelled_before_it_left_is_harmless(proxy, shared):
    cancelled = asyncio.ensure_future(shared.run(echo("first")))
    after = asyncio.ensure_future(shared.run(echo("second")))
    await asyncio.sleep(0)  # both are in this turn's write, which has not happened yet
    cancelled.cancel()
    assert await after == "second"


async def test_a_timeout_around_a_blocked_read_leaves_the_connection_in_step(shared, queue_name):
    blocked = call("BLPOP", queue_name, 0.4, read=lambda reply: reply, block_ms=400)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(shared.run(blocked), 0.05)
    assert await shared.run(echo("after the block")) == "after the block"


async def test_a_break_after_a_cancellation_is_told_to_the_others_only(proxy, shared):
    proxy.hold_answers()
    cancelled = asyncio.ensure_future(shared.run(echo("cancelled")))
    other = asyncio.ensure_future(shared.run(echo("other")))
    await eventually(lambda: proxy.count(b"other") == 1)
    cancelled.cancel()
    proxy.cut()
    proxy.pass_answers()
    assert await other == "other"
    assert proxy.count(b"other") == 2
    assert proxy.count(b"cancelled") == 1


async def test_callers_that_wait_for_the_same_opening_do_not_end_it_for_each_other(proxy):
    proxy.hold_answers()
    fresh = connection(proxy.url)
    impatient = asyncio.ensure_future(fresh.run(echo("impatient")))
    patient = asyncio.ensure_future(fresh.run(echo("patient")))
    await eventually(lambda: proxy.count(b"SETNAME") == 1)
    impatient.cancel()
    proxy.pass_answers()
    assert await patient == "patient"
    assert proxy.count(b"SETNAME") == 1
    assert proxy.count(b"impatient") == 0
    await fresh.close()


async def test_an_opening_that_nobody_waits_for_is_finished_and_then_of_use(proxy):
    proxy.hold_answers()
    fresh = connection(proxy.url)
    impatient = asyncio.ensure_future(fresh.run(echo("impatient")))
    await eventually(lambda: proxy.count(b"SETNAME") == 1)
    impatient.cancel()
    proxy.pass_answers()
    await eventually(lambda: "<Link open" in repr(fresh))
    assert await fresh.run(echo("next")) == "next"
    assert proxy.connections == 1
    await fresh.close()


async def test_attempts_to_reconnect_end_when_nobody_waits_any_more(proxy, shared):
    proxy.refuse()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(shared.run(echo("anyone?")), 0.1)
    await eventually(
        lambda: "chasquimq-opening" not in map(asyncio.Task.get_name, asyncio.all_tasks())
    )
    proxy.accept()
    assert await shared.run(echo("back")) == "back"


async def test_closing_during_the_opening_leaves_nothing_behind(proxy):
    proxy.hold_answers()
    fresh = connection(proxy.url)
    waiting = asyncio.ensure_future(fresh.run(echo("never")))
    await eventually(lambda: proxy.count(b"SETNAME") == 1)
    await fresh.close()
    with pytest.raises(Exception, match="was closed"):
        await waiting
    proxy.pass_answers()


async def test_a_caller_may_be_cancelled_while_the_first_connection_fails(proxy):
    proxy.refuse()
    fresh = connection(proxy.url, short_options())
    cancelled = asyncio.ensure_future(fresh.run(echo("cancelled")))
    other = asyncio.ensure_future(fresh.run(echo("other")))
    await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(ConnectionFailedError, match="refused"):
        await other
    await fresh.close()
