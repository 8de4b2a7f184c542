import asyncio
import logging

import pytest

from chasquimq.engine.role import Role
from chasquimq.errors import ConfigError, ConnectionFailedError, ServerTooOldError


class Scripted(Role):
    """A role whose steps are written down; the last one stops it."""

    name = "scripted"

    def __init__(self, *script):
        self.script = list(script)
        self.stop = asyncio.Event()
        self.waits = []

    async def step(self):
        await asyncio.sleep(0)
        line = self.script.pop(0)
        if not self.script:
            self.stop.set()
        if isinstance(line, Exception):
            raise line
        return line

    async def wait(self, stop, seconds):
        self.waits.append(seconds)


def away():
    return ConnectionFailedError("the server is away")


async def test_a_role_repeats_its_step_until_it_is_stopped():
    role = Scripted(0, 0.25, 0, 1.5, 0)
    await role.run(role.stop)
    assert role.script == []
    assert role.waits == [0.25, 1.5]


async def test_a_role_that_was_stopped_before_it_began_does_nothing():
    role = Scripted(0)
    role.stop.set()
    await role.run(role.stop)
    assert role.script == [0]


async def test_an_error_of_the_server_never_ends_a_role_which_goes_on_ever_more_slowly():
    role = Scripted(*(away() for _ in range(9)), 0)
    await role.run(role.stop)
    assert role.waits == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0]


async def test_a_step_that_worked_ends_the_slowness():
    role = Scripted(away(), away(), 0, away(), 0)
    await role.run(role.stop)
    assert role.waits == [0.05, 0.1, 0.05]


async def test_a_streak_of_errors_is_told_once(caplog):
    role = Scripted(away(), away(), away(), 0, away(), 0)
    with caplog.at_level(logging.WARNING, "chasquimq.engine"):
        await role.run(role.stop)
    assert len(caplog.records) == 2
    assert "scripted: redis: the server is away" in caplog.text


async def test_a_slip_in_a_step_is_logged_and_does_not_end_the_role(caplog):
    role = Scripted(KeyError("slip"), 0)
    await role.run(role.stop)
    assert role.waits == [2.0]
    assert "scripted: a step failed; trying again" in caplog.text


@pytest.mark.parametrize("error", [ConfigError("no"), ServerTooOldError("old")])
async def test_what_no_waiting_can_cure_ends_the_role(error):
    role = Scripted(error, 0)
    with pytest.raises(type(error)):
        await role.run(role.stop)


async def test_a_stop_ends_the_wait_between_two_steps():
    class Sleepy(Role):
        async def step(self):
            return 3_600

    stop = asyncio.Event()
    running = asyncio.create_task(Sleepy().run(stop))
    await asyncio.sleep(0)
    stop.set()
    async with asyncio.timeout(5):
        await running


async def test_a_role_that_is_stopped_during_its_step_does_not_wait_any_more():
    role = Scripted(3_600)
    await role.run(role.stop)
    assert role.waits == []
