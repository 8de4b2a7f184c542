"""The server that all is measured on: started here, on this machine only, without persistence."""

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.raw import RawClient

SERVERS_SCRIPT = Path(__file__).parents[1] / "scripts" / "servers.py"
_START_S = 20
_STOP_S = 20


class ServerError(Exception):
    """There is no server to measure on."""


class BenchServer:
    """A server of our own; `name` is one that `scripts/servers.py` knows, or a path to a binary."""

    def __init__(self, name: str, *, tcp: bool = False) -> None:
        """Nothing is started yet. With `tcp` it listens on loopback too, for what needs a port."""
        self.name = name
        self.port = _free_port() if tcp else 0
        self.version = ""
        self._binary = name if "/" in name else _known(name)
        # Short: a unix socket's path may have a hundred characters, no more.
        self._folder = Path(tempfile.mkdtemp(prefix="chasqui-bench-"))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def socket_path(self) -> str:
        """Where it listens."""
        return str(self._folder / "s")

    @property
    def url(self) -> str:
        """The same as a URL; the one with a port, if it has one."""
        return f"redis://127.0.0.1:{self.port}" if self.port else f"unix://{self.socket_path}"

    @property
    def pid(self) -> int:
        """The process."""
        assert self._process is not None  # noqa: S101 -- asked while it runs
        return self._process.pid

    def __enter__(self) -> Self:
        """Start it, and return when it answers."""
        options = ["--port", str(self.port), "--bind", "127.0.0.1"]
        options += ["--unixsocket", self.socket_path, "--save", ""]
        options += ["--appendonly", "no", "--dir", str(self._folder), "--loglevel", "warning"]
        self._process = subprocess.Popen(
            [self._binary, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            facts = self._wait_for_it()
            self.version = facts.get("valkey_version") or facts["redis_version"]
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """End it; nothing is left."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def client(self) -> RawClient:
        """A raw client of it."""
        return RawClient(self.socket_path)

    def _wait_for_it(self) -> dict[str, str]:
        assert self._process is not None  # noqa: S101 -- called after the start
        deadline_s = time.monotonic() + _START_S
        while time.monotonic() < deadline_s and self._process.poll() is None:
            try:
                with self.client() as client:
                    return client.info("server")
            except OSError:
                time.sleep(0.02)
        msg = f"{self._binary} did not come up"
        raise ServerError(msg)


def _known(name: str) -> str:
    command = [sys.executable, str(SERVERS_SCRIPT), "get", "--cached", "--json", name]
    listed = subprocess.run(command, check=True, capture_output=True, text=True)
    (found,) = json.loads(listed.stdout)
    if found["path"] is None:
        msg = f"{name} is not there ({found['reason']}): run `make servers`, or name a binary"
        raise ServerError(msg)
    return str(found["path"])


def _free_port() -> int:
    """A port that nobody has now; somebody may take it before the server does, who then says so."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
