"""The thread that keeps leases goes on whatever happens to it."""

import asyncio
import concurrent.futures
import logging
import threading

import pytest

from chasquimq.clock import ManualClock
from chasquimq.engine.leases import Leases
from chasquimq.errors import ConnectionFailedError
from chasquimq.wire.keys import QueueKeys


class Failing:
    """A connection whose first call raises; every later one is answered."""

    reconnects = 0

    def __init__(self, error):
        self._errors = [error]
        self.has_answered = threading.Event()

    def run(self, call):
        if self._errors:
            raise self._errors.pop()
        self.has_answered.set()
        return []

    def close(self):
        pass


@pytest.mark.parametrize(
    "error",
    [
        ConnectionFailedError("away"),
        RuntimeError("a slip"),
        concurrent.futures.CancelledError(),
        asyncio.CancelledError(),
        SystemExit(1),
    ],
    ids=lambda error: type(error).__module__ + "." + type(error).__name__,
)
def test_leases_are_renewed_after_whatever_a_renewal_raised(error, caplog):
    connection, clock = Failing(error), ManualClock()
    leases = Leases(connection, QueueKeys("q"), group="g", consumer="c-1", lease_ms=30, clock=clock)
    leases.take(b"1-1")
    clock.advance(30)
    with caplog.at_level(logging.WARNING, "chasquimq.engine"):
        leases.start()
        try:
            assert connection.has_answered.wait(5)
        finally:
            leases.end()
    (record,) = caplog.records
    assert "leases could not be renewed" in record.getMessage()
    assert leases.renewals == 1
