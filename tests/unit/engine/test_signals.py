import asyncio
import os
import signal

import pytest

from chasquimq.engine import signals
from tests.support.eventually import eventually


@pytest.fixture
def before():
    """What handled SIGTERM before, so that a signal nobody catches does not end the test run."""
    seen = []

    def handler(number, frame):
        seen.append(number)

    old = signal.signal(signal.SIGTERM, handler)
    yield handler, seen
    signal.signal(signal.SIGTERM, old)


async def send(told, count=1):
    """Send SIGTERM, and wait until so many have been told; the loop is woken through a pipe."""
    told.clear()
    os.kill(os.getpid(), signal.SIGTERM)
    await eventually(lambda: len(told) >= count)


async def test_every_receiver_of_a_loop_is_told(before):
    told = []
    undo_first = signals.catch(lambda number: told.append(("first", number.name)))
    undo_second = signals.catch(lambda number: told.append(("second", number.name)))
    await send(told, 2)
    assert told == [("first", "SIGTERM"), ("second", "SIGTERM")]
    undo_first()
    await send(told)
    assert told == [("second", "SIGTERM")]
    undo_second()
    assert before[1] == []


async def test_what_handled_the_signal_before_is_put_back_by_the_last(before):
    handler, seen = before
    undo_first = signals.catch(lambda number: None)
    undo_second = signals.catch(lambda number: None)
    undo_first()
    assert signal.getsignal(signal.SIGTERM) is not handler
    undo_second()
    undo_second()
    assert signal.getsignal(signal.SIGTERM) is handler
    await send(seen)
    assert seen == [signal.SIGTERM]


async def test_a_receiver_may_leave_while_it_is_told(before):
    told = []

    def leave(number):
        told.append(number)
        undo()

    undo = signals.catch(leave)
    other = signals.catch(told.append)
    await send(told, 2)
    assert told == [signal.SIGTERM] * 2
    other()


async def test_in_another_thread_nothing_is_caught(before):
    handler, _ = before

    def elsewhere():
        async def work():
            signals.catch(lambda number: None)()

        asyncio.run(work())

    await asyncio.to_thread(elsewhere)
    assert signal.getsignal(signal.SIGTERM) is handler


def test_another_loop_in_the_same_thread_starts_afresh(before):
    handler, _ = before
    told = []

    async def work(name):
        undo = signals.catch(lambda number: told.append(name))
        await send(told)
        undo()

    asyncio.run(work("first"))
    assert told == ["first"]
    asyncio.run(work("second"))
    assert told == ["second"]
    assert signal.getsignal(signal.SIGTERM) is handler
