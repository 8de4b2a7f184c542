"""The nemesis, with faults of its own and nobody to break."""

import threading

from chaos.faults import Fault
from chaos.fleet import Fleet
from chaos.history import Scroll, read_all
from chaos.nemesis import Nemesis
from chaos.scene import FutileError, Scene
from chasquimq.wire.keys import QueueKeys


def play(tmp_path, *faults, seconds=0.0):
    """What was written down of a run."""
    fleet = Fleet((), str, queue="q", folder=tmp_path, seed=1)
    scroll = Scroll(tmp_path / "nemesis.jsonl")
    scene = Scene(None, fleet, QueueKeys("q"), scroll, threading.Event())
    Nemesis(scene, list(faults), seed=1).run(seconds)
    scroll.close()
    return read_all(tmp_path)


def test_a_run_goes_on_until_every_fault_was_done_once(tmp_path):
    tries = iter([OSError("away"), FutileError("nobody there"), None])

    def stubborn(scene, chance):
        if problem := next(tries):
            raise problem
        return "at last"

    written = play(tmp_path, Fault("easy", 1, lambda *_: "done"), Fault("stubborn", 1, stubborn))

    assert [each.detail for each in written if each.fault == "easy"] == ["done"]
    assert [(each.detail, each.is_done) for each in written if each.fault == "stubborn"] == [
        ("OSError: away", False),
        ("FutileError: nobody there", False),
        ("at last", True),
    ]


def test_no_fault_is_begun_again_only_because_it_takes_its_time(tmp_path):
    easy_was_done = threading.Event()

    def slow(scene, chance):
        easy_was_done.wait(30)
        return "slow"

    def easy(scene, chance):
        easy_was_done.set()
        return "easy"

    written = play(tmp_path, Fault("slow", 1, slow), Fault("easy", 1, easy))

    assert sorted(each.fault for each in written) == ["easy", "slow"]
