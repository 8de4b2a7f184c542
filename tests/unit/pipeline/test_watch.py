"""Who looks on while a backfill adds jobs goes on looking, whatever is said to it."""

import threading

from chasquimq.pipeline import watch as watch_module
from chasquimq.pipeline.record import Record
from chasquimq.pipeline.watch import Watch
from chasquimq.wire.keys import QueueKeys


class Links:
    """No connection at all: the first look fails, later ones see one more row each."""

    def __init__(self, target):
        self.looks = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def run(self, keys, call):
        self.looks += 1
        if self.looks == 1:
            message = "a slip"
            raise RuntimeError(message)
        return self.looks


class Options:
    target = None


def test_progress_is_told_after_a_look_that_failed_and_a_listener_that_did(monkeypatch, caplog):
    monkeypatch.setattr(watch_module, "_LOOK_S", 0.001)
    monkeypatch.setattr(watch_module, "Links", Links)
    told, is_enough = [], threading.Event()

    def on_progress(progress):
        told.append(progress.total)
        if len(told) == 2:
            is_enough.set()
        raise RuntimeError

    record = Record(1, "", (), {}, parts=1, rows=9)
    with Watch(Options(), QueueKeys("q"), record, "run", on_progress):
        assert is_enough.wait(5)
    assert told[:2] == [9, 9]
    assert "how far run run is cannot be told now: a slip" in caplog.text
    assert "on_progress failed" in caplog.text
