"""What becomes of the place of a worker process that has ended, and when a source has changed."""

import asyncio
import errno
import os
import signal
from dataclasses import replace

import pytest

from chasquimq.cli import supervisor
from chasquimq.cli.serving import Settings
from chasquimq.cli.supervisor import (
    AwaitChange,
    Death,
    GiveUp,
    Leave,
    Restart,
    Supervisor,
    verdict,
)
from chasquimq.cli.watching import SourceTree
from tests.support.eventually import eventually

KILLED = Death(
    code=-9, ending=None, runs=0, was_ready=True, lived_s=5.0, is_replaced=False, deaths_in_a_row=1
)
SERVED = replace(KILLED, code=0, runs=1)
MISTAKEN = replace(KILLED, code=2, was_ready=False)
USUAL = {"is_stopping": False, "is_reloading": False, "was_any_ready": True}


@pytest.mark.parametrize(
    ("death", "circumstances", "expected"),
    [
        (KILLED, {}, Restart(0.2)),
        (KILLED, {"is_stopping": True}, Leave()),
        (replace(KILLED, deaths_in_a_row=3), {}, Restart(0.8)),
        (replace(KILLED, deaths_in_a_row=100), {}, Restart(30.0)),
        (replace(SERVED, ending="recycled"), {}, Restart()),
        (replace(SERVED, ending="stopped"), {}, Restart()),
        (replace(SERVED, ending="recycled", runs=0), {}, Restart(0.2)),
        (replace(SERVED, ending="stopped", runs=0, deaths_in_a_row=2), {}, Restart(0.4)),
        (replace(SERVED, ending="done", runs=0), {}, Leave()),
        (replace(KILLED, code=1, ending="held"), {}, GiveUp(1)),
        (replace(KILLED, is_replaced=True), {"is_reloading": True}, Restart()),
        (MISTAKEN, {"was_any_ready": False}, GiveUp(2)),
        (replace(MISTAKEN, code=3), {"was_any_ready": False}, GiveUp(3)),
        (MISTAKEN, {}, Restart(0.2)),
        (MISTAKEN, {"is_reloading": True, "was_any_ready": False}, AwaitChange()),
        (MISTAKEN, {"is_reloading": True}, AwaitChange()),
        (replace(MISTAKEN, ending="unstarted"), {"is_reloading": True}, Restart(0.2)),
    ],
)
def test_the_place_of_a_process_that_ended_is(death, circumstances, expected):
    assert verdict(death, **USUAL | circumstances) == expected


@pytest.mark.parametrize("signals", [1, 2])
async def test_a_stop_ends_a_process_that_was_being_started_and_never_gets_to_listen(
    tmp_path, monkeypatch, caplog, signals
):
    caplog.set_level("INFO", "chasquimq.supervisor")
    (tmp_path / "hangs.py").write_text("import time\nwhile True: time.sleep(60)\n")
    settings = Settings("hangs:handler", str(tmp_path), ["q"], None, {"shutdown_deadline_secs": 0})
    # The time that does not apply would be longer than the test may take.
    monkeypatch.setattr(supervisor, "GRACE_S", 0.1 if signals == 1 else 3_600)
    monkeypatch.setattr(supervisor, "_CUT_GRACE_S", 0.1 if signals == 2 else 3_600)
    tested = Supervisor(settings, processes=1, is_reloading=False, on_ready=lambda _: None)
    child_class = supervisor._Child  # noqa: SLF001 -- the moment between start and listen is its own
    start = child_class.start

    async def stopped_meanwhile(settings):
        child = await start(settings)
        for said in ["processes finish their running jobs", "again: stopping now"][:signals]:
            signal.raise_signal(signal.SIGTERM)
            await eventually(lambda said=said: said in caplog.text)
        return child

    monkeypatch.setattr(child_class, "start", stopped_meanwhile)
    async with asyncio.timeout(20):
        assert await tested.run() == 0


def quick(monkeypatch, **parts):
    """A supervisor that loses no time, of children that are not real."""
    for pause in ("_WATCH_S", "_FIRST_PAUSE_S", "_LONGEST_PAUSE_S"):
        monkeypatch.setattr(supervisor, pause, 0.001)
    settings = Settings("m:handler", ".", ["q"], None, {})
    usual = {"processes": 1, "is_reloading": False, "on_ready": lambda _: None}
    return Supervisor(settings, **usual | parts)


@pytest.mark.parametrize(("was_any_ready", "tries", "code"), [(True, 3, 0), (False, 1, 1)])
async def test_a_process_that_cannot_be_started_now_is_started_later_if_one_ever_could(
    monkeypatch, caplog, was_any_ready, tries, code
):
    tested, tried = quick(monkeypatch), []

    async def start(settings):
        tried.append(settings.place)
        if len(tried) == 3:
            signal.raise_signal(signal.SIGTERM)
            await asyncio.sleep(0.01)
        raise BlockingIOError(errno.EAGAIN, "no process to be had")

    monkeypatch.setattr(supervisor._Child, "start", start)  # noqa: SLF001 -- the system has no room
    if was_any_ready:
        tested._is_proved.set()  # noqa: SLF001 -- as by the first child
    async with asyncio.timeout(20):
        assert await tested.run() == code
    assert len(tried) == tries
    assert "a process could not be started: [Errno 11] no process to be had" in caplog.text


async def test_a_look_at_the_source_that_failed_is_not_the_last(monkeypatch, caplog):
    looks = [RuntimeError("can't start new thread"), [], ["a.py"]]

    class Tree:
        def __init__(self, folder):
            pass

        def changed(self):
            seen = looks.pop(0) if looks else []
            if isinstance(seen, Exception):
                raise seen
            return seen

    monkeypatch.setattr(supervisor, "SourceTree", Tree)
    tested = quick(monkeypatch, is_reloading=True)

    async def start(settings):
        await tested._has_changed.wait()  # noqa: SLF001 -- what the watching brings about
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(0.01)
        raise OSError

    monkeypatch.setattr(supervisor._Child, "start", start)  # noqa: SLF001 -- no real process
    async with asyncio.timeout(20):
        await tested.run()
    assert "whether the source has changed cannot be seen" in caplog.text


@pytest.fixture
def tree(tmp_path):
    for name in ("a.py", "pkg/b.py", ".git/c.py", "venv/d.py", "__pycache__/e.py", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1")
    (tmp_path / "venv" / "pyvenv.cfg").touch()
    return SourceTree(str(tmp_path)), tmp_path


def test_nothing_has_changed_while_nothing_has(tree):
    source, _ = tree
    assert source.changed() == []


def test_a_file_that_was_edited_added_or_removed_is_named_once(tree):
    source, folder = tree
    os.utime(folder / "a.py", ns=(1, 1))
    (folder / "pkg" / "new.py").write_text("2")
    (folder / "pkg" / "b.py").unlink()
    assert source.changed() == ["a.py", "pkg/b.py", "pkg/new.py"]
    assert source.changed() == []


def test_other_files_and_folders_of_others_are_not_looked_at(tree):
    source, folder = tree
    for name in (".git/c.py", "venv/d.py", "__pycache__/e.py", "notes.txt"):
        (folder / name).write_text("changed, and longer")
    assert source.changed() == []
