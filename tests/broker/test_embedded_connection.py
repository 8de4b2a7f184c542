"""A connection's use of an embedded server: it starts it, brings it back, and lets go of it."""

import asyncio
import os
import signal

import pytest

from chasquimq.broker import embedded
from chasquimq.broker.call import call
from chasquimq.errors import ConfigError
from tests.support.embedded_users import is_gone, is_used, stopped_in_the_end
from tests.support.eventually import eventually
from tests.support.flavours import FLAVOURS, callers, short_options


@pytest.fixture(params=FLAVOURS)
async def dial(request):
    async with callers(request.param) as open_one:
        yield open_one


@pytest.fixture
def directory(tmp_path):
    with stopped_in_the_end(tmp_path) as name:
        yield name


def server_pid():
    def pid(reply):
        lines = reply.decode().splitlines()
        return int(next(line for line in lines if line.startswith("process_id:")).split(":")[1])

    return call("INFO", "server", read=pid)


async def test_the_first_call_starts_the_server_and_closing_ends_it(dial, directory):
    caller = dial(f"embedded://{directory}")
    pid = await caller.run(server_pid())
    assert is_used(directory)
    await caller.close()
    assert not is_used(directory)
    await eventually(lambda: is_gone(pid))


async def test_the_server_stays_for_as_long_as_one_connection_uses_it(dial, directory):
    first, second = dial(f"embedded://{directory}"), dial(f"embedded://{directory}")
    pid = await first.run(server_pid())
    assert await second.run(server_pid()) == pid
    await first.close()
    assert is_used(directory)
    assert await second.run(server_pid()) == pid


async def test_a_server_that_was_killed_is_started_again_by_the_next_call(dial, directory):
    caller = dial(f"embedded://{directory}")
    pid = await caller.run(server_pid())
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: is_gone(pid))
    assert await caller.run(server_pid()) != pid
    await caller.close()
    assert not is_used(directory)


async def test_a_server_in_memory_stays_when_a_connection_is_closed(dial):
    first = dial("embedded://")
    pid = await first.run(server_pid())
    await first.close()
    assert await dial("embedded://").run(server_pid()) == pid
    await asyncio.to_thread(embedded.stop)


async def test_a_directory_that_will_not_do_is_an_error_of_the_settings(dial, tmp_path):
    (tmp_path / "file").write_text("in the way")
    caller = dial(f"embedded://{tmp_path}/file", short_options())
    with pytest.raises(ConfigError, match="cannot be the directory"):
        await caller.ready()
