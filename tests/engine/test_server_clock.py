"""The server's clock, as a process knows it that asks now and then."""

import pytest

from chasquimq.broker import upkeep
from chasquimq.broker.call import call
from chasquimq.broker.connection import Connection
from chasquimq.broker.options import ConnectionOptions
from chasquimq.broker.url import parse_url
from chasquimq.engine.server_clock import ServerClock
from chasquimq.errors import ConnectionFailedError
from tests.support.eventually import eventually

SECOND_US = 1_000_000


class HostClocks:
    """The two clocks of a host, each as it is set."""

    def __init__(self):
        self.wall_us = self.passed_us = 0

    def now_ms(self):
        return self.wall_us // 1_000

    def monotonic_us(self):
        return self.passed_us

    def monotonic_ns(self):
        return self.passed_us * 1_000

    def pass_by(self, us):
        self.wall_us += us
        self.passed_us += us


@pytest.fixture
async def connection(server):
    connection = Connection(parse_url(server.url), ConnectionOptions(), slot_key=b"{chasqui:clock}")
    yield connection
    await connection.close()


@pytest.fixture
def host():
    return HostClocks()


@pytest.fixture
def asked(monkeypatch):
    """As many items as the server was asked times."""
    asks = []
    ask = upkeep.server_time_ms

    def count():
        asks.append(None)
        return ask()

    monkeypatch.setattr(upkeep, "server_time_ms", count)
    return asks


def server_ms(server):
    seconds, micros = server.client().time()
    return seconds * 1_000 + micros // 1_000


async def test_it_is_the_servers_and_goes_on_with_the_time_that_passes_here(
    server, connection, host
):
    clock = ServerClock(host)
    before_ms = server_ms(server)
    await clock.look(connection)
    assert before_ms <= (told_ms := clock.now_ms()) <= server_ms(server)
    host.wall_us += 240 * SECOND_US  # somebody set it
    assert clock.now_ms() == told_ms
    host.pass_by(2_500)
    assert clock.now_ms() == told_ms + 2


async def test_it_is_asked_for_once_in_a_while_and_not_for_every_look(connection, host, asked):
    clock = ServerClock(host)
    for _ in range(3):
        await clock.look(connection)
        host.pass_by(4 * SECOND_US)
    assert len(asked) == 1
    await clock.look(connection)
    assert len(asked) == 2


async def test_a_host_that_slept_asks_again(connection, host, asked):
    clock = ServerClock(host)
    await clock.look(connection)
    host.pass_by(SECOND_US)
    host.wall_us += SECOND_US  # the other one stands still in a sleep
    await clock.look(connection)
    await clock.look(connection)
    assert len(asked) == 2


@pytest.fixture
def slowly(connection, host, monkeypatch):
    """`slowly(times)`: so many answers take a second by the host's clocks."""
    run = connection.run

    def start(times):
        left = iter(range(times))

        async def late(call):
            answer = await run(call)
            if next(left, None) is not None:
                host.pass_by(SECOND_US)
            return answer

        monkeypatch.setattr(connection, "run", late)

    return start


async def test_an_answer_that_took_long_is_asked_for_again_at_once(
    server, connection, host, asked, slowly
):
    clock = ServerClock(host)
    slowly(1)
    before_ms = server_ms(server)
    await clock.look(connection)
    assert before_ms <= clock.now_ms() <= server_ms(server)
    await clock.look(connection)
    assert len(asked) == 2


async def test_a_server_that_is_always_slow_is_not_asked_for_ever(connection, host, asked, slowly):
    clock = ServerClock(host)
    slowly(100)
    await clock.look(connection)
    assert len(asked) == 3


async def test_another_connection_may_lead_to_another_server_and_is_asked(
    server, connection, host, asked
):
    clock = ServerClock(host)
    await clock.look(connection)
    reconnects = connection.reconnects
    server.client().client_kill_filter(_id=await connection.run(call("CLIENT", "ID", read=int)))
    await eventually(lambda: connection.run(call("PING", read=bool)))
    assert connection.reconnects > reconnects
    await clock.look(connection)
    assert len(asked) == 2


async def test_a_look_that_fails_leaves_what_was_told_before(connection, host, monkeypatch):
    clock = ServerClock(host)
    await clock.look(connection)
    told_ms = clock.now_ms()
    host.pass_by(11 * SECOND_US)

    async def refused(_):
        message = "the server is away"
        raise ConnectionFailedError(message)

    monkeypatch.setattr(connection, "run", refused)
    with pytest.raises(ConnectionFailedError):
        await clock.look(connection)
    assert clock.now_ms() == told_ms + 11_000
