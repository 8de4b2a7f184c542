"""Keeps an embedded server running for nobody in particular, until it is told to stop.

An embedded server ends with its last user. The holder is a process that is a user and nothing else;
it holds `hold.lock`, by which everybody sees that it lives, and has no other duty than to start
the server again when it has crashed. Killing the holder, however, ends its use and nothing more:
the keeper then shuts the server down, unless others use it.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from chasquimq.broker import embedded
from chasquimq.broker.embedded_keeper import SERVER_LOCK, USERS_LOCK
from chasquimq.broker.embedded_lock import FileLock
from chasquimq.broker.embedded_server import RunningServer, ServerDirectory, server_binary
from chasquimq.clock import monotonic_s
from chasquimq.errors import ChasquiError, ConnectionFailedError

HOLD_LOCK = "hold.lock"
"""Held by the holder: free means that nothing keeps the server running but its users."""

_RECORD = "hold.pid"
_READY = b"ready\n"
_PAUSE_SECONDS = 0.02
_PATIENCE_SECONDS = 30.0
# After a crash; a server that crashes at once must not be started in a tight loop.
_RESTART_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Held:
    """How the server of a directory stands."""

    running: RunningServer | None
    is_held: bool
    """It runs on without users."""
    is_used: bool
    """Somebody uses it; not asked while it is held."""


def look(directory: str) -> Held:
    """How the server of a directory stands; starts nothing."""
    path = Path(directory)
    if not path.is_dir():
        return Held(None, is_held=False, is_used=False)
    is_held = _is_taken(path / HOLD_LOCK)
    running = ServerDirectory(directory).find()
    is_used = running is not None and not is_held and _has_users(path / USERS_LOCK)
    return Held(running, is_held, is_used)


def start(directory: str) -> bool:
    """Run a holder in the background and return when its server answers; False if there was one.

    Raises `ConfigError` if the extra is missing or the directory will not do,
    `ConnectionFailedError` if the server does not come up.
    """
    server_binary()
    embedded.check_directory(directory)
    if look(directory).is_held:
        return False
    # This module, in an interpreter of its own; it outlives this process and its terminal.
    with subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", __name__, directory],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=directory,
        start_new_session=True,
    ) as holder:
        assert holder.stdout is not None  # noqa: S101 -- it is a pipe
        said = holder.stdout.read()
        if said != _READY:
            msg = f"the embedded server of '{directory}' cannot be kept running: {said.decode()}"
            raise ConnectionFailedError(msg.strip())
    return True


def stop(directory: str, *, force: bool = False) -> Held:
    """End the holder; the server ends too, its data written out, unless others use it.

    With `force` it is shut down whoever uses it; those who do start it again. Returns how things
    stand afterwards; after `force` it may be used though it does not run.
    """
    path = Path(directory)
    if path.is_dir() and _is_taken(path / HOLD_LOCK):
        with contextlib.suppress(OSError, ValueError):
            os.kill(int((path / _RECORD).read_text(encoding="ascii")), signal.SIGTERM)
        _wait_until_free(path / HOLD_LOCK, "its holder has not ended")
    has_users = False
    if force and path.is_dir():
        embedded.stop(directory)
        has_users = _has_users(path / USERS_LOCK)
    held = look(directory)
    if held.running is not None and not held.is_used:
        _wait_until_free(path / SERVER_LOCK, "it has not ended")
        held = look(directory)
    return replace(held, is_used=held.is_used or has_users)


def main() -> None:
    """Be the holder of the directory in `sys.argv`."""
    directory = sys.argv[1]
    # The starter waits for this process: going on in a child of it leaves the starter no zombie.
    if os.fork():
        os._exit(0)
    # Two starts at once: the second sees the lock taken, and the server is held.
    lock = FileLock(str(Path(directory) / HOLD_LOCK))
    if not lock.try_exclusive():
        _say(_READY)
        return
    (Path(directory) / _RECORD).write_text(str(os.getpid()), encoding="ascii")
    try:
        use = embedded.acquire(directory)
    except ChasquiError as error:
        _say(str(error).encode())
        sys.exit(1)
    _say(_READY)
    while True:
        _until_it_ends(use.socket_path)
        time.sleep(_RESTART_SECONDS)
        with contextlib.suppress(ChasquiError):
            earlier, use = use, embedded.acquire(directory)
            earlier.release()


def _say(text: bytes) -> None:
    """Tell whoever started us, and let go of the pipe: they read until its end."""
    with contextlib.suppress(OSError):
        os.write(1, text)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.close(null)


def _until_it_ends(socket_path: str) -> None:
    """Return when the server at that socket is gone: it closes the connection then."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as link:
        link.connect(socket_path)
        link.recv(1)


def _is_taken(path: Path) -> bool:
    if not path.exists():
        return False
    with FileLock(str(path)) as lock:
        return not lock.try_exclusive()


def _has_users(path: Path) -> bool:
    """Whether the lock is shared by somebody; a keeper that ends the server has it alone."""
    with FileLock(str(path)) as lock:
        return lock.try_shared() and not lock.try_exclusive()


def _wait_until_free(path: Path, problem: str) -> None:
    deadline_s = monotonic_s() + _PATIENCE_SECONDS
    while _is_taken(path):
        if monotonic_s() > deadline_s:
            msg = f"the embedded server of '{path.parent}': {problem} after {_PATIENCE_SECONDS:g} s"
            raise ConnectionFailedError(msg)
        time.sleep(_PAUSE_SECONDS)


if __name__ == "__main__":
    main()
