"""Gives this process the use of an embedded server, a real Valkey that nobody has to install.

With a directory: one server for all processes that name it. The first to `acquire` starts it, the
last to leave ends it; a process leaves by `release` or by ending, however it ends. The data stay in
the directory, in an append-only file that reaches the disk every second. A server that crashed is
started again, with its data, by the next `acquire`.

Without: a server in memory, one per process, that lives until the process ends or calls `stop`. A
child process, forked or spawned, has another one. Nothing is left of it.

It listens on a socket that only this user can open, and on no network. Linux and macOS only. All
calls, `release` too, can block and are safe in any thread: from asyncio, use `asyncio.to_thread`.
A supervisor that signals whole groups of processes (systemd, unless told `KillMode=mixed`) ends the
server together with its users; those that still drain start it again.
"""

import os
import shutil
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path

from chasquimq.broker.embedded_lock import FileLock
from chasquimq.broker.embedded_server import ServerDirectory
from chasquimq.errors import ConfigError


@dataclass(frozen=True, slots=True, eq=False)
class EmbeddedServer:
    """One use of a server, as it was found; a restart changes its `pid`."""

    socket_path: str
    directory: str
    """Absolute, without links. Of a server in memory: a temporary one, that goes with it."""
    is_in_memory: bool
    pid: int
    _share: "_Share" = field(repr=False)

    def release(self) -> None:
        """End this use; the second time does nothing.

        The server ends soon after its last use anywhere. One in memory stays: see `stop`.
        """
        self._share.release(self)


def acquire(directory: str | None) -> EmbeddedServer:
    """A server that answers: of `directory`, or in memory for None. Started if it does not run.

    Every call is a use of its own, to be released, of the same server. After a lost connection call
    it again, and release the earlier use: that is what starts a crashed server anew.
    Raises `ConfigError` if the extra is missing or the directory will not do, and
    `ConnectionFailedError` if the server does not come up.
    """
    return _share_of(directory).acquire()


def stop(directory: str | None = None) -> bool:
    """End the server of `directory`, its data written out, whoever uses it; False if none runs.

    Returns when it has ended. A process that still uses it starts it again when it reconnects.
    None means the server in memory of this process.
    """
    return _share_of(directory).stop()


def check_directory(directory: str) -> None:
    """Make the directory if it is not there; `ConfigError` if that cannot be."""
    try:
        Path(directory).mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        msg = (
            f"'{directory}' cannot be the directory of an embedded server "
            f"({error.strerror}): name one that is there or can be made"
        )
        raise ConfigError(msg) from error


class _Share:
    """What this process has in one server: a lock that says so, for any number of uses."""

    def __init__(self, directory: str | None) -> None:
        self._directory = directory
        self._is_in_memory = directory is None
        self._process_id = os.getpid()
        self._mutex = threading.Lock()
        # Below: under the mutex.
        self._users: FileLock | None = None
        self._uses: set[EmbeddedServer] = set()

    def acquire(self) -> EmbeddedServer:
        with self._mutex:
            path = self._prepare()
            directory = ServerDirectory(path, is_in_memory=self._is_in_memory)
            running = directory.find() if self._is_user() else None
            if running is None:
                try:
                    users, running = directory.join()
                except BaseException:
                    self._leave_if_unused()
                    raise
                # The new lock first: between the two there must be no moment without one.
                self._leave()
                self._users = users
            use = EmbeddedServer(
                socket_path=running.socket_path,
                directory=path,
                is_in_memory=self._is_in_memory,
                pid=running.pid,
                _share=self,
            )
            self._uses.add(use)
            return use

    def release(self, use: EmbeddedServer) -> None:
        # In a forked child the use is the parent's, and so is the mutex, perhaps locked for ever.
        if os.getpid() != self._process_id:
            return
        with self._mutex:
            self._uses.discard(use)
            if not self._is_in_memory:
                self._leave_if_unused()

    def stop(self) -> bool:
        with self._mutex:
            if self._directory is None or not Path(self._directory).is_dir():
                return False
            ended = ServerDirectory(self._directory, is_in_memory=self._is_in_memory).end()
            if self._is_in_memory:
                self._leave()
                self._uses.clear()
                self._directory = None
            return ended

    def _prepare(self) -> str:
        """The directory, made if it is not there."""
        if self._is_in_memory and (self._directory is None or not Path(self._directory).is_dir()):
            self._directory = os.path.realpath(tempfile.mkdtemp(prefix="chasquimq-"))
        assert self._directory is not None  # noqa: S101 -- only None was in memory
        check_directory(self._directory)
        return self._directory

    def _is_user(self) -> bool:
        """Whether our lock is the one that others see: not if the directory was made anew."""
        return self._users is not None and self._users.is_current()

    def _leave_if_unused(self) -> None:
        if self._uses:
            return
        self._leave()
        if self._is_in_memory and self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def _leave(self) -> None:
        if self._users is not None:
            self._users.close()
            self._users = None


_shares: dict[str | None, _Share] = {}

# A forked child has none of its parent's uses: its locks are closed, and it acquires its own.
os.register_at_fork(after_in_child=_shares.clear)


def _share_of(directory: str | None) -> _Share:
    if directory is not None:
        if not directory:
            msg = "the directory of an embedded server is empty: name one, or None for memory"
            raise ValueError(msg)
        directory = os.path.realpath(directory)
    return _shares.setdefault(directory, _Share(directory))
