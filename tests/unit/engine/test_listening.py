"""A promoter that cannot listen goes by its poll interval, whatever keeps it from listening."""

import asyncio

import pytest

from chasquimq.config import PromoterConfig
from chasquimq.engine.promoter import PromoterRole
from chasquimq.errors import ConnectionFailedError


class Broken:
    """A connection over which nothing can be asked."""

    def __init__(self, error):
        self.error = error
        self.asked = 0

    def sibling(self):
        return self

    async def run(self, call):
        self.asked += 1
        raise self.error


@pytest.mark.parametrize("error", [ConnectionFailedError("away"), RuntimeError("a slip")])
async def test_a_leader_that_cannot_listen_waits_as_long_as_it_was_told(error):
    connection = Broken(error)
    promoter = PromoterRole(connection, PromoterConfig(queue_name="q"))
    promoter._was_leader = True  # noqa: SLF001 -- only leaders listen
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for _ in range(2):
        began_s = loop.time()
        await promoter.wait(stop, 0.02)
        assert loop.time() - began_s >= 0.015
    assert connection.asked == 1
    stop.set()
    connection.close = lambda: asyncio.sleep(0)
    await promoter.run(stop)
