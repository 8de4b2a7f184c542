"""Start and stop real servers, each in a directory of its own, on loopback and a unix socket."""

import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support.eventually import eventually_sync

ROOT = Path(__file__).parents[2]
SERVERS_SCRIPT = ROOT / "scripts" / "servers.py"

# Redis 8.6 is the first with all three of XACKDEL, XREADGROUP CLAIM and XADD IDMP.
MODERN_VERSION = (8, 6)

START_ATTEMPTS = 3
START_SECS = 20
STOP_SECS = 10


@dataclass(frozen=True, slots=True)
class ServerBinary:
    """A server the tests know by name, and where it is or why it is missing."""

    name: str
    version: str | None
    path: str | None
    reason: str | None


def known_servers() -> dict[str, ServerBinary]:
    """Return every server the suite knows, by name; looks only, obtains nothing."""
    command = [sys.executable, str(SERVERS_SCRIPT), "get", "--cached", "--json"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    return {entry["name"]: ServerBinary(**entry) for entry in json.loads(listed.stdout)}


@dataclass(frozen=True, slots=True)
class ReferencePython:
    """The Python of an environment that holds the reference engine, or why there is none."""

    path: str | None
    reason: str


def reference_python() -> ReferencePython:
    """Return the reference engine's Python; looks only, obtains nothing."""
    command = [sys.executable, str(SERVERS_SCRIPT), "reference", "--cached"]
    found = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    return ReferencePython(found.stdout.strip() or None, found.stderr.strip())


class Server:
    """A running server without persistence, which can be paused, killed and restarted."""

    def __init__(self, binary: ServerBinary, arguments: Sequence[str] = ()) -> None:
        """Start the server and return when it answers; `arguments` go to its command line."""
        if binary.path is None or binary.version is None:
            message = f"{binary.name} is not there: {binary.reason}"
            raise RuntimeError(message)
        self.name = binary.name
        major, minor, *_ = (int(part) for part in binary.version.split("."))
        self.version = (major, minor)
        self._path = binary.path
        self._arguments = list(arguments)
        # Not pytest's tmp_path: a unix socket's path may have a hundred characters, no more.
        self.directory = Path(tempfile.mkdtemp(prefix="chasqui-"))
        self.socket_path = self.directory / "s"
        self.log_path = self.directory / "log"
        self.port = 0
        self._client: redis.Redis | None = None
        self._start_on_some_port()
        _open.add(self)

    def __repr__(self) -> str:
        state = f"pid {self.pid}" if self.is_alive else "stopped"
        return f"<Server {self.name} {state} port {self.port}>"

    @property
    def is_alive(self) -> bool:
        """Whether its process has not ended; one that is frozen has not."""
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id, that of the last start."""
        return self._process.pid

    @property
    def url(self) -> str:
        """The server over TCP."""
        return f"redis://127.0.0.1:{self.port}"

    @property
    def socket_url(self) -> str:
        """The server over its unix socket."""
        return f"unix://{self.socket_path}"

    @property
    def is_modern(self) -> bool:
        """Whether it has XACKDEL, XREADGROUP CLAIM and XADD IDMP."""
        return self.name.startswith("redis-") and self.version >= MODERN_VERSION

    def client(self) -> redis.Redis:
        """A raw client, bytes in and out, for looking at keys; closed with the server."""
        if self._client is None:
            self._client = redis.Redis(unix_socket_path=str(self.socket_path))
        return self._client

    def restart(self) -> None:
        """Start it again after `stop` or `kill`, on the same port and socket."""
        self._launch()

    def pause(self) -> None:
        """Freeze the process: connections stay open and nothing answers."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Undo `pause`."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it as a crash would."""
        self._process.kill()
        self._process.wait(STOP_SECS)

    def stop(self) -> None:
        """End it in good order; harmless when it has ended already."""
        if self.is_alive:
            self.resume()
            self._process.terminate()
            try:
                self._process.wait(STOP_SECS)
            except subprocess.TimeoutExpired:
                self.kill()

    def close(self) -> None:
        """Stop it and remove its directory."""
        _open.discard(self)
        if self._client is not None:
            self._client.close()
            self._client = None
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _start_on_some_port(self) -> None:
        # Between choosing a free port and listening on it another process may take it.
        for attempts_left in reversed(range(START_ATTEMPTS)):
            self.port = free_port()
            try:
                self._launch()
            except RuntimeError:
                if attempts_left:
                    continue
                self.close()
                raise
            return

    def _launch(self) -> None:
        command = [self._path, "--port", str(self.port), "--bind", "127.0.0.1"]
        command += ["--unixsocket", str(self.socket_path), "--dir", str(self.directory)]
        command += ["--logfile", str(self.log_path), "--daemonize", "no"]
        command += ["--save", "", "--appendonly", "no", *self._arguments]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        try:
            eventually_sync(self._is_up, START_SECS)
        except AssertionError as error:
            self.stop()
            log = self.log_path.read_text() if self.log_path.exists() else "no log"
            message = f"{self.name} did not start:\n{log[-2000:]}"
            raise RuntimeError(message) from error

    def _is_up(self) -> bool:
        if self._process.poll() is not None:
            message = f"{self.name} ended with status {self._process.returncode}"
            raise AssertionError(message)
        probe = redis.Redis(unix_socket_path=str(self.socket_path), retry=Retry(NoBackoff(), 0))
        try:
            return bool(probe.ping())
        except redis.ConnectionError:
            return False
        finally:
            probe.close()


# Those that were started and not closed.
_open: set[Server] = set()


def open_servers() -> frozenset[Server]:
    """Every server that somebody in this process has started and not closed, alive or not."""
    return frozenset(_open)


def free_port() -> int:
    """Return a loopback port that nobody listens on at this moment."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port
