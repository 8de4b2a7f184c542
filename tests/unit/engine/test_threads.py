import asyncio
import threading

import pytest

from chasquimq.engine.threads import Threads
from tests.support.eventually import eventually


def named(prefix):
    return [thread for thread in threading.enumerate() if thread.name.startswith(prefix)]


@pytest.fixture
def threads(request):
    threads = Threads(3, name=request.node.name)
    yield threads
    threads.close()


async def test_a_function_runs_in_another_thread_and_its_value_comes_back(threads):
    ident, value = await threads.run(lambda: (threading.get_ident(), 7))
    assert value == 7
    assert ident != threading.get_ident()


@pytest.mark.parametrize("kind", [ValueError, StopIteration, SystemExit, asyncio.CancelledError])
async def test_whatever_a_function_raises_is_raised_where_it_was_called(threads, kind):
    def raises():
        raise kind

    # A coroutine cannot raise StopIteration: Python makes a RuntimeError of it.
    with pytest.raises(RuntimeError if kind is StopIteration else kind):
        async with asyncio.timeout(5):
            await threads.run(raises)


async def test_as_many_functions_run_at_once_as_allowed_and_the_others_wait(threads):
    gate, started = threading.Event(), []

    def wait():
        started.append(threading.get_ident())
        assert gate.wait(5)

    calls = [asyncio.create_task(threads.run(wait)) for _ in range(5)]
    await eventually(lambda: len(started) == 3)
    assert len(set(started)) == 3
    gate.set()
    await asyncio.gather(*calls)
    assert len(started) == 5
    assert len(set(started)) == 3


async def test_an_idle_thread_is_used_again_before_another_is_started(threads):
    seen = {await threads.run(threading.get_ident) for _ in range(100)}
    assert len(seen) == 1
    assert repr(threads).endswith(", 1 of 3>")


async def test_threads_never_keep_the_process_alive(threads):
    assert await threads.run(lambda: threading.current_thread().daemon)


async def test_after_a_close_idle_threads_end_and_busy_ones_when_their_call_returns():
    threads = Threads(2, name="closing")
    gate = threading.Event()
    busy = asyncio.create_task(threads.run(gate.wait))
    await threads.run(lambda: None)
    threads.close()
    await eventually(lambda: len(named("closing")) == 1)
    gate.set()
    assert await busy
    await eventually(lambda: not named("closing"))


async def test_a_wait_that_is_cancelled_leaves_the_thread_to_finish(threads):
    gate, ended = threading.Event(), threading.Event()

    def wait():
        gate.wait(5)
        ended.set()

    call = asyncio.create_task(threads.run(wait))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    gate.set()
    await eventually(ended.is_set)
    assert await threads.run(lambda: "next") == "next"


def test_a_call_may_outlive_its_event_loop():
    threads = Threads(1, name="outliving")
    gate = threading.Event()

    async def leave_behind():
        call = asyncio.create_task(threads.run(lambda: gate.wait(5)))
        await asyncio.sleep(0)
        call.cancel()

    asyncio.run(leave_behind())
    gate.set()
    assert asyncio.run(threads.run(lambda: "alive")) == "alive"
    threads.close()
