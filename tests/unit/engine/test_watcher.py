"""Who waits for events goes on being watched for, whatever a read of them raises."""

import asyncio

import pytest

from chasquimq.engine import watcher as watcher_module
from chasquimq.engine.outcomes import WaitedJob
from chasquimq.engine.watcher import Watcher
from chasquimq.errors import ChasquiError, ConnectionFailedError
from chasquimq.wire.event import QueueEvent
from chasquimq.wire.keys import QueueKeys

COMPLETED = QueueEvent("completed", "j", "n", {}, "2-0")


class Told:
    """A connection that gives its answers one after the other; then nothing comes any more."""

    def __init__(self, *answers):
        self._answers = list(answers)

    async def run(self, call):
        if not self._answers:
            await asyncio.Event().wait()
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def close(self):
        pass


@pytest.mark.parametrize("error", [ConnectionFailedError("away"), RuntimeError("a slip")])
async def test_events_are_read_on_after_whatever_a_read_raised(monkeypatch, error, caplog):
    monkeypatch.setattr(watcher_module, "_PAUSE_AFTER_ERROR_S", 0)
    watcher = Watcher(Told("1-0", error, [COMPLETED]), QueueKeys("q"))
    job = WaitedJob()
    waiter = await watcher.add("j", job)
    await waiter.hint(5)
    assert job.has_completed
    await watcher.close()
    assert bool(caplog.records) is not isinstance(error, ChasquiError)
