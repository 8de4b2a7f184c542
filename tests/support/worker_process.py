"""Worker processes that a test starts, watches, freezes and kills."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol

from tests.support.scene import Scene
from tests.support.servers import ROOT
from tests.support.sink import PATIENCE_SECS

PROGRAM = "tests.support.worker_main"


class WorkerProcess:
    """A process of `worker_main.py`, and all that it has reported so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        """Begin to listen to a process that was just started."""
        self._process = process
        self._news = asyncio.Event()
        self.reports: list[dict[str, Any]] = []
        self._listening = asyncio.get_running_loop().create_task(self._listen())

    def __repr__(self) -> str:
        """Show the process, and what it reported last."""
        return f"<WorkerProcess {self._process.pid}, {self.reports[-1:]}>"

    def told(self, what: str, **facts: Any) -> list[dict[str, Any]]:
        """The reports of a kind so far that carry these facts."""
        wanted = {"what": what, **facts}.items()
        return [report for report in self.reports if wanted <= report.items()]

    async def until(self, what: str, count: int = 1, **facts: Any) -> list[dict[str, Any]]:
        """The reports of a kind, once there are so many; fails if they do not come."""
        try:
            async with asyncio.timeout(PATIENCE_SECS):
                while len(found := self.told(what, **facts)) < count:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            message = f"waited for {count} of {what} {facts}; was told {self.reports}"
            raise AssertionError(message) from None
        return found

    async def until_logged(self, text: str) -> None:
        """Return once the process has logged a line with this text."""
        async with asyncio.timeout(PATIENCE_SECS):
            while not any(text in report["text"] for report in self.told("log")):
                self._news.clear()
                await self._news.wait()

    def release(self) -> None:
        """Let every job that waits go on."""
        self._order(b"release\n")

    async def close_workers(self) -> None:
        """Let the process call `Worker.close`; returns when it has."""
        self._order(b"close\n")
        await self.until("closing")

    def send(self, number: signal.Signals) -> None:
        """Send a signal: SIGKILL to kill, SIGSTOP to freeze, SIGCONT to go on."""
        self._process.send_signal(number)

    async def ended(self) -> int:
        """The exit status, once the process has ended: a signal's number, negative, if it did."""
        async with asyncio.timeout(PATIENCE_SECS):
            status = await self._process.wait()
            await self._listening
        return status

    async def close(self) -> None:
        """End it, however it stands."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
        await self._process.wait()
        await self._listening
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _order(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line)

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            self.reports.append(json.loads(line))
            self._news.set()
        self._news.set()


class StartWorker(Protocol):
    """What the fixture `start_worker` gives."""

    async def __call__(
        self,
        scene: Scene,
        *,
        workers: int = 1,
        plain: bool = False,
        lease_ms: int | None = None,
        **options: Any,
    ) -> WorkerProcess:
        """Start a process with so many workers on the scene's queue."""
        ...


@asynccontextmanager
async def worker_processes() -> AsyncIterator[StartWorker]:
    """A way to start worker processes; they are killed in the end."""
    started: list[WorkerProcess] = []

    async def start(
        scene: Scene,
        *,
        workers: int = 1,
        plain: bool = False,
        lease_ms: int | None = None,
        **options: Any,
    ) -> WorkerProcess:
        given = {
            "redis_url": scene.server.socket_url,
            "queue": scene.name,
            "workers": workers,
            "plain": plain,
            "lease_ms": lease_ms,
            "options": {"max_attempts": 3} | options,
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            PROGRAM,
            json.dumps(given),
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        started.append(WorkerProcess(process))
        await started[-1].until("ready")
        return started[-1]

    try:
        yield start
    finally:
        for process in started:
            await process.close()
