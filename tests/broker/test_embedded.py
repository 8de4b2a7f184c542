"""The embedded server: one per directory, shared, alive for as long as somebody uses it."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from stat import S_IMODE

import pytest

from chasquimq.broker import embedded
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
def _memory():
    yield
    embedded.stop()


# --- one server for all


def test_processes_that_begin_at_once_share_one_server(directory, start_user):
    users = [start_user() for _ in range(5)]
    for user in users:
        user.order("acquire", directory)
    told = [user.answer() for user in users]
    assert all(answer == told[0] for answer in told)
    assert starts_in_log(directory) == 1


def test_threads_that_begin_at_once_share_one_server(directory):
    with ThreadPoolExecutor(8) as threads:
        servers = list(threads.map(embedded.acquire, [directory] * 16))
    assert len({server.pid for server in servers}) == 1
    assert starts_in_log(directory) == 1
    for server in servers:
        server.release()
    eventually_sync(lambda: is_gone(servers[0].pid))


def test_all_names_of_a_directory_mean_the_same_server(directory, tmp_path, monkeypatch):
    server = embedded.acquire(directory)
    (tmp_path / "link").symlink_to(directory)
    monkeypatch.chdir(tmp_path)
    for name in ("data", "./data/", str(tmp_path / "link"), str(tmp_path / "x/../data")):
        again = embedded.acquire(name)
        assert (again.pid, again.socket_path) == (server.pid, server.socket_path)
        assert again.directory == directory


def test_a_server_is_set_up_to_keep_jobs_and_to_keep_them_private(directory):
    server = embedded.acquire(directory)
    expected = {
        "port": "0",
        "maxmemory-policy": "noeviction",
        "save": "",
        "appendonly": "yes",
        "appendfsync": "everysec",
        "logfile": "valkey.log",
    }
    for name, value in expected.items():
        assert talk(server.socket_path, "CONFIG", "GET", name).split("\r\n")[4] == value
    assert not server.is_in_memory
    assert server.socket_path == str(Path(directory, "valkey.sock"))
    assert S_IMODE(Path(server.socket_path).stat().st_mode) == 0o700
    assert S_IMODE(Path(directory).stat().st_mode) == 0o700
    data = list(Path(directory, "appendonlydir").iterdir())
    assert data
    assert all(S_IMODE(file.stat().st_mode) == 0o600 for file in data)


# --- leaving


def test_the_last_process_to_leave_ends_the_server(directory, start_user):
    first, second = start_user(), start_user()
    pid, socket_path, _ = first.ask("acquire", directory)
    assert second.ask("acquire", directory)[0] == pid
    first.ask("release")
    first.end()
    assert is_used(directory)
    assert answers(socket_path)
    second.ask("release")
    eventually_sync(lambda: is_gone(pid))
    assert not Path(socket_path).exists()


def test_every_use_in_a_process_counts_and_a_second_release_does_not(directory):
    first, second = embedded.acquire(directory), embedded.acquire(directory)
    first.release()
    first.release()
    assert is_used(directory)
    second.release()
    eventually_sync(lambda: is_gone(second.pid))


@pytest.mark.parametrize("way", ["end", "kill"])
def test_the_server_ends_when_its_only_user_does_however_that_ends(directory, start_user, way):
    only = start_user()
    pid, _, _ = only.ask("acquire", directory)
    getattr(only, way)()
    eventually_sync(lambda: is_gone(pid))


WITH_SIGNALS_BLOCKED = """
import signal, sys
from chasquimq.broker import embedded

signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
print(embedded.acquire(sys.argv[1]).pid)
"""


def test_the_server_ends_even_if_its_starter_had_blocked_all_signals(directory):
    pid = int(run_script(WITH_SIGNALS_BLOCKED, directory))
    eventually_sync(lambda: is_gone(pid))


def test_a_newcomer_never_meets_a_server_that_is_ending(directory):
    server = embedded.acquire(directory)
    remember(server.socket_path)
    for _ in range(3):
        server.release()
        server = embedded.acquire(directory)
        assert remembers(server.socket_path)
        # A server that was told to end does so within 100 ms, and would not live to answer this.
        assert talk(server.socket_path, "BLPOP", "nothing", "0.25") == "*-1\r\n"


def test_stop_ends_the_server_of_other_processes_and_says_whether_there_was_one(
    directory, start_user
):
    pid, socket_path, _ = start_user().ask("acquire", directory)
    remember(socket_path)
    assert start_user().ask("stop", directory) is True
    assert is_gone(pid)
    assert embedded.stop(directory) is False
    assert remembers(embedded.acquire(directory).socket_path)


def test_stop_writes_nothing_where_there_is_no_server(tmp_path):
    assert embedded.stop(str(tmp_path / "nothing")) is False
    assert embedded.stop(str(tmp_path)) is False
    assert list(tmp_path.iterdir()) == []


# --- in memory


@pytest.mark.usefixtures("_memory")
def test_without_a_directory_a_process_has_one_server_of_its_own(start_user):
    server = embedded.acquire(None)
    assert server.is_in_memory
    assert talk(server.socket_path, "CONFIG", "GET", "appendonly").split("\r\n")[4] == "no"
    server.release()
    assert is_used(server.directory)
    assert embedded.acquire(None).pid == server.pid
    assert start_user().ask("acquire")[0] != server.pid


@pytest.mark.parametrize("way", ["end", "kill"])
def test_nothing_is_left_of_a_server_in_memory_when_its_process_is_gone(way, start_user):
    user = start_user()
    pid, _, directory = user.ask("acquire")
    assert Path(directory).is_dir()
    getattr(user, way)()
    eventually_sync(lambda: is_gone(pid) and not Path(directory).exists())


@pytest.mark.usefixtures("_memory")
def test_stop_ends_the_server_in_memory_and_the_next_is_empty():
    embedded.stop()  # what another test of this process may have left
    assert embedded.stop() is False
    first = embedded.acquire(None)
    talk(first.socket_path, "SET", "city", "Cusco")
    assert embedded.stop() is True
    assert is_gone(first.pid)
    eventually_sync(lambda: not Path(first.directory).exists())
    assert not remembers(embedded.acquire(None).socket_path)


# --- forks

FORK = """
import os, sys
from chasquimq.broker import embedded

directory = sys.argv[1] or None
server = embedded.acquire(directory)
reading, writing = os.pipe()
if os.fork() == 0:
    server.release()
    own = embedded.acquire(directory)
    os.write(writing, str(own.pid).encode())
    os._exit(0)
os.wait()
print(server.pid, int(os.read(reading, 20)), embedded.acquire(directory).pid)
"""


def test_a_forked_child_shares_a_directory(directory):
    parent, child, parent_afterwards = run_script(FORK, directory).split()
    assert parent == child == parent_afterwards


def test_a_forked_child_has_a_server_in_memory_of_its_own():
    parent, child, parent_afterwards = run_script(FORK, "").split()
    assert parent != child
    assert parent == parent_afterwards


FORK_WHILE_ACQUIRING = """
import os, sys
from chasquimq.broker import embedded

server = embedded.acquire(sys.argv[1])
with server._share._mutex:
    child = os.fork()
    if child == 0:
        server.release()
        os._exit(0)
    print(os.waitpid(child, 0)[1])
"""


def test_a_forked_child_can_release_what_its_parent_was_just_acquiring(directory):
    assert run_script(FORK_WHILE_ACQUIRING, directory) == "0\n"


FORK_AND_LEAVE_A_CHILD = """
import os, sys
from chasquimq.broker import embedded

server = embedded.acquire(sys.argv[1])
if os.fork() == 0:
    sys.stdin.read()
    os._exit(0)
print(server.pid, flush=True)
os._exit(0)
"""


def test_a_forked_child_that_uses_nothing_does_not_keep_the_server_alive(directory):
    parent = subprocess.Popen(
        [sys.executable, "-c", FORK_AND_LEAVE_A_CHILD, directory],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    pid = int(parent.stdout.readline())
    eventually_sync(lambda: is_gone(pid))
    parent.communicate()
