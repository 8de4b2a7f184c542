"""Processes that use embedded servers, and a look at those servers from outside."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from chasquimq.broker import embedded
from chasquimq.broker.embedded_lock import FileLock

_USER = """
import json, sys
from chasquimq.broker import embedded

for line in sys.stdin:
    match line.split():
        case ["acquire", *directory]:
            server = embedded.acquire(*directory or [None])
            told = [server.pid, server.socket_path, server.directory]
        case ["release"]:
            told = server.release()
        case ["stop", *directory]:
            told = embedded.stop(*directory)
    print(json.dumps(told), flush=True)
"""


class UserProcess:
    """Another process, which carries out one order at a time."""

    def __init__(self) -> None:
        """Start it; it does nothing yet."""
        self._process = subprocess.Popen(
            [sys.executable, "-c", _USER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def order(self, *words: str) -> None:
        """Tell it to `acquire [directory]`, `release` or `stop [directory]`; do not wait."""
        stdin = _given(self._process.stdin)
        stdin.write(" ".join(words) + "\n")
        stdin.flush()

    def answer(self) -> Any:
        """What came of the earliest open order; `acquire` tells pid, socket and directory."""
        return json.loads(_given(self._process.stdout).readline())

    def ask(self, *words: str) -> Any:
        """Order, and wait for the answer."""
        self.order(*words)
        return self.answer()

    def end(self) -> None:
        """Let it end as programs do."""
        self._process.communicate()

    def kill(self) -> None:
        """End it without a chance to do anything."""
        self._process.kill()
        self._process.communicate()


def _given(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


@contextmanager
def user_processes() -> Iterator[Callable[[], UserProcess]]:
    """A way to start user processes; they are killed in the end."""
    started: list[UserProcess] = []

    def start() -> UserProcess:
        started.append(UserProcess())
        return started[-1]

    try:
        yield start
    finally:
        for process in started:
            process.kill()


@contextmanager
def stopped_in_the_end(directory: Path) -> Iterator[str]:
    """The directory's name, for as long as its server may run."""
    try:
        yield str(directory)
    finally:
        embedded.stop(str(directory))


def run_script(script: str, *arguments: str) -> str:
    """What a Python process of its own printed; it must not complain."""
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], check=True, capture_output=True, text=True
    )
    assert done.stderr == ""
    return done.stdout


def talk(socket_path: str, *words: str) -> str:
    """The raw answer of a server to one command."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(5)
        connection.connect(socket_path)
        connection.sendall(" ".join(words).encode() + b"\r\n")
        return connection.recv(4096).decode()


def answers(socket_path: str) -> bool:
    """Whether there is a server behind this path."""
    return talk(socket_path, "PING") == "+PONG\r\n"


def remember(socket_path: str) -> None:
    """Leave a value with the server, and wait until the disk has it."""
    assert talk(socket_path, "SET", "city", "Cusco") == "+OK\r\n"
    assert talk(socket_path, "WAITAOF", "1", "0", "5000").startswith("*2\r\n:1")


def remembers(socket_path: str) -> bool:
    """Whether the server has the value."""
    return talk(socket_path, "GET", "city") == "$5\r\nCusco\r\n"


def is_used(directory: str) -> bool:
    """Whether a process counts as a user of the server; a keeper that is ending it does not."""
    with FileLock(str(Path(directory, "users.lock"))) as lock:
        return not lock.try_exclusive() and lock.try_shared()


def is_gone(pid: int) -> bool:
    """Whether the process has ended; one that nobody has reaped yet has."""
    try:
        os.kill(pid, 0)
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except ProcessLookupError:
        return True
    except FileNotFoundError:
        return Path("/proc/self").exists()
    return status.rpartition(")")[2].split()[0] == "Z"


def starts_in_log(directory: str) -> int:
    """How many servers this directory has seen."""
    return Path(directory, "valkey.log").read_text(encoding="utf-8").count("just started")
