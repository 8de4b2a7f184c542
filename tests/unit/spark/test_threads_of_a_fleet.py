"""The threads of a fleet's driver go on, or say why they do not."""

import threading

import pytest

from chasquimq.errors import ConnectionFailedError
from chasquimq.spark import leaders, permit
from chasquimq.spark.leaders import Leaders
from chasquimq.spark.permit import Permit


class Shaky:
    """A connection over which a lock is taken; then one renewal raises, and the next is heard."""

    def __init__(self, error):
        self._answers = [True, error]
        self.has_renewed = threading.Event()

    def run(self, call):
        answer = self._answers.pop(0) if self._answers else True
        if isinstance(answer, Exception):
            raise answer
        if not self._answers:
            self.has_renewed.set()
        return answer


@pytest.mark.parametrize("error", [ConnectionFailedError("away"), RuntimeError("a slip")])
def test_a_permit_is_kept_after_whatever_a_renewal_raised(monkeypatch, caplog, error):
    monkeypatch.setattr(permit, "_RENEW_S", 0.001)
    connection = Shaky(error)
    with Permit(connection, "q", "fleet", "driver"):
        assert connection.has_renewed.wait(5)
    assert "the permit of fleet fleet could not be renewed" in caplog.text


def test_leaders_that_end_say_who_is_left_to_do_their_work(monkeypatch, caplog):
    class Broken:
        def __init__(self, redis_url, queue):
            pass

        async def run(self):
            raise RuntimeError

        def shutdown(self):
            pass

    monkeypatch.setattr(leaders, "Promoter", Broken)
    with Leaders("redis://nowhere", "q", promoter=True, scheduler=False):
        pass
    assert "delayed and recurring jobs of queue q are left to other workers" in caplog.text
