"""Runs the workers of one process until there is a reason to end."""

import asyncio
import gc
import logging
import os
import resource
import sys
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import click

from chasquimq.broker.inspect import is_idle
from chasquimq.cli.loading import Loaded, load
from chasquimq.cli.place import shared_server
from chasquimq.cli.problems import Refusal
from chasquimq.errors import ConfigError
from chasquimq.given import chosen
from chasquimq.metrics import JobOutcome, JobOutcomeKind, NoopSink
from chasquimq.queue import Queue
from chasquimq.wire.keys import QueueKeys
from chasquimq.worker import Worker

log = logging.getLogger("chasquimq.worker")

HIGHEST_PORT = 65_535

# Between two looks at whether a queue is empty, and at how much memory is used.
_BURST_LOOK_S = 0.1
_MEMORY_LOOK_S = 1.0


class Ending(StrEnum):
    """Why a process came to its end."""

    STOPPED = "stopped"
    """It was told to."""
    RECYCLED = "recycled"
    """It has run its number of jobs, or has grown too large: another takes its place."""
    DONE = "done"
    """There was nothing left to do, and it was to run until then."""
    HELD = "held"
    """What is left to do waits in a paused queue, and it was to run until nothing is left."""


class HeldUp(Refusal):
    """A burst cannot come to its end, because a queue with jobs is paused."""


@dataclass(frozen=True, slots=True)
class Settings:
    """All that a worker process has to know; travels to it as JSON."""

    target: str
    app_dir: str
    queues: list[str]
    """Empty: those of the app."""
    redis_url: str | None = field(repr=False)
    """Of the command line. Goes before the app's own."""
    options: dict[str, Any]
    """Of `Worker`, where they were given."""
    is_burst: bool = False
    max_jobs: int | None = None
    max_memory_mb: int | None = None
    log_level: str = "info"
    as_json: bool = False
    use_uvloop: bool | None = None
    place: int = 0
    """Which of several processes this is, from 0; one that is replaced leaves its place."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Ready:
    """What a process says once its handler is loaded and the server has answered."""

    handler: str
    queues: list[str]
    server: str


class Shift:
    """The workers of one process, and whatever may end them."""

    def __init__(self, settings: Settings) -> None:
        """Load the handler; `LoadError` if there is none. Needs an event loop.

        A server of the process's own is refused even where there is one process only: jobs could
        come from nobody but the handler itself, and would be lost with it.
        """
        loaded = load(settings.target, settings.app_dir)
        if loaded.app is not None and settings.redis_url is not None:
            loaded.app.redis_url = settings.redis_url
        self._settings = settings
        self._loaded = loaded
        url = settings.redis_url if loaded.app is None else loaded.app.redis_url
        self._server = shared_server(url, may_be_new=True)
        self._names = queue_names(settings, loaded)
        self._count = _Count(settings.max_jobs, lambda: self.end(Ending.RECYCLED))
        ports = _metrics_ports(settings, len(self._names))
        self._workers = [
            self._worker(name, port) for name, port in zip(self._names, ports, strict=True)
        ]
        self._queues = [self._queue(name) for name in self._names]
        self._ending: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()

    @property
    def runs(self) -> int:
        """How many have come to an end."""
        return self._count.finished

    async def check(self) -> Ready:
        """Ask the server once, so that what is wrong is told before any job is read."""
        self._refuse_a_limit_that_is_reached()
        for queue in self._queues:
            await queue.counts()
        return Ready(str(self._loaded), self._names, self._server.safe_text)

    def _refuse_a_limit_that_is_reached(self) -> None:
        """Else every process would be replaced after its first job, however small that is."""
        most_mb, size_mb = self._settings.max_memory_mb, memory_mb()
        if most_mb is not None and size_mb >= most_mb:
            msg = (
                f"--max-memory-mb is {most_mb}, but a process that has loaded {self._loaded} uses "
                f"{size_mb} MB before its first job: allow more than that"
            )
            raise ConfigError(msg)

    def end(self, ending: Ending) -> None:
        """Let the workers drain; the first reason counts."""
        if not self._ending.done():
            self._ending.set_result(ending)

    async def cut(self) -> None:
        """Let them end at once."""
        self.end(Ending.STOPPED)
        for worker in self._workers:
            await worker.close(force=True)

    async def run(self) -> Ending:
        """Work until `end`, a signal, or the end of what there is to do; then drain.

        What one worker raises ends the others, and is raised. What was loaded stays for as long as
        the process lives, so the collector does not look at it again and again, which would cost a
        tenth of the jobs a second.
        """
        gc.collect()
        gc.freeze()
        runs = [asyncio.create_task(worker.run()) for worker in self._workers]
        guards = [asyncio.create_task(guard) for guard in self._guards()]
        closing = asyncio.create_task(self._close_when_asked())
        try:
            # Whatever ends first is a reason to end: a worker, by a signal or an error, or a guard.
            done, _ = await asyncio.wait([*runs, *guards], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.end(Ending.STOPPED)
            await closing
            await asyncio.wait(runs)
            for guard in guards:
                guard.cancel()
            for queue in self._queues:
                await queue.close()
        for task in (*runs, *done):
            task.result()
        return self._ending.result()

    def _guards(self) -> list[Coroutine[Any, Any, None]]:
        guards = []
        if self._settings.is_burst:
            guards.append(self._until_idle())
        if self._settings.max_memory_mb is not None:
            guards.append(self._until_large(self._settings.max_memory_mb))
        return guards

    async def _close_when_asked(self) -> None:
        ending = await asyncio.shield(self._ending)
        if ending is Ending.RECYCLED:
            log.info("this process has run %d jobs and uses %d MB: another takes its place",
                     self.runs, memory_mb())  # fmt: skip
        for worker in self._workers:
            await worker.close()

    async def _until_idle(self) -> None:
        while True:
            held = []
            for queue in self._queues:
                if await queue._sender.run(is_idle(QueueKeys(queue.name))):  # noqa: SLF001 -- of the same package
                    continue
                if not await _stands_still(queue):
                    break
                held.append(queue.name)
            else:
                await self._finish_burst(held)
                return
            await asyncio.sleep(_BURST_LOOK_S)

    async def _finish_burst(self, held: list[str]) -> None:
        if held:
            names = ", ".join(map(repr, held))
            msg = f"paused with jobs to run: {names}; resume with: chasqui resume {held[0]}"
            raise HeldUp(msg)
        later = sum([(await queue.counts()).delayed for queue in self._queues])
        log.info("nothing waits, is in flight or is due: done%s",
                 f"; {later} delayed for later" if later else "")  # fmt: skip
        self.end(Ending.DONE)

    async def _until_large(self, most_mb: int) -> None:
        # Who has run nothing would be replaced by one that is just as large.
        while not self.runs or memory_mb() <= most_mb:  # noqa: ASYNC110 -- nothing tells of growth
            await asyncio.sleep(_MEMORY_LOOK_S)
        self.end(Ending.RECYCLED)

    def _worker(self, name: str, metrics_port: int | None) -> Worker:
        options = {
            "metrics": self._count,
            **self._settings.options,
            **chosen(metrics_port=metrics_port),
        }
        if self._loaded.app is not None:
            return self._loaded.app.worker(name, **options)
        assert self._loaded.handler is not None  # noqa: S101 -- one of the two is there
        return Worker(name, self._loaded.handler, redis_url=self._settings.redis_url, **options)

    def _queue(self, name: str) -> Queue:
        if self._loaded.app is not None:
            return self._loaded.app.queue(name)
        return Queue(name, redis_url=self._settings.redis_url)


async def _stands_still(queue: Queue) -> bool:
    """Whether nothing of it is run until it is resumed."""
    return await queue.is_paused() and not (await queue.counts()).active


def memory_mb() -> int:
    """The memory of this process now; where the system does not tell, the most it ever had."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most // (1_048_576 if sys.platform == "darwin" else 1_024)
    return pages * os.sysconf("SC_PAGE_SIZE") // 1_048_576


class _Count(NoopSink):
    """Counts runs, tells them to the log, and says when there were enough."""

    def __init__(self, most: int | None, on_enough: Callable[[], None]) -> None:
        self._most = most
        self._on_enough = on_enough
        self._is_telling = log.isEnabledFor(logging.INFO)
        self.finished = 0

    def job_outcome(self, outcome: JobOutcome) -> None:
        self.finished += 1
        if self._is_telling and outcome.kind is JobOutcomeKind.OK:
            log.info("job %s (%s) done in %.1f ms, run %d", outcome.job_id, outcome.name,
                     outcome.handler_duration_us / 1_000, outcome.attempt)  # fmt: skip
        if self._most is not None and self.finished == self._most:
            self._on_enough()


def queue_names(settings: Settings, loaded: Loaded) -> list[str]:
    """The queues to work on: those that were named, else those of the app."""
    if settings.queues:
        return list(dict.fromkeys(settings.queues))
    if loaded.app is not None:
        return loaded.app.queue_names
    msg = f"which queue? name it: chasqui worker {settings.target} QUEUE"
    raise click.UsageError(msg)


def _metrics_ports(settings: Settings, count: int) -> list[int | None]:
    """A port for each queue of this process, counted up from the one of the command line.

    Which are whose depends on the place of the process alone, so another that takes the place
    answers on the same ports. 0, any free one, stays 0 for all.
    """
    first: int | None = settings.options.get("metrics_port")
    if not first:
        return [first] * count
    first += settings.place * count
    if first + count - 1 > HIGHEST_PORT:
        msg = (
            f"--metrics-port leaves no room: process {settings.place + 1} would use {first} to "
            f"{first + count - 1}, and ports end at {HIGHEST_PORT}; begin lower"
        )
        raise click.UsageError(msg)
    return [first + position for position in range(count)]
