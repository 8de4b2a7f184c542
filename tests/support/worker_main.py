"""A program that runs workers, does what the names of their jobs say, and reports it line by line.

It is given one JSON object: `redis_url`, `queue`, `workers` (how many), `plain` (run the handler in
threads), `lease_ms` (shorter than users may choose, or null), and `options` for each `Worker`. It
reads orders from its standard input: `release` ends every job that waits, `close` closes the
workers.
"""

import asyncio
import json
import logging
import os
import signal
import sys
import threading
from contextlib import suppress
from typing import Any

from chasquimq import Job, RetryConfig, Worker
from tests.support.leases import with_lease

OUT = threading.Lock()


def tell(what: str, **facts: Any) -> None:
    """Report a fact."""
    with OUT:
        sys.stdout.write(json.dumps({"what": what, **facts}) + "\n")
        sys.stdout.flush()


class Tellingly(logging.Handler):
    """Reports what the library logs."""

    def emit(self, record: logging.LogRecord) -> None:
        """Report one record."""
        tell("log", text=record.getMessage())


class Play:
    """What the jobs do."""

    def __init__(self) -> None:
        """Nobody is released yet."""
        self.closing = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._released = asyncio.Event()
        self._released_in_threads = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in sys.stdin:
            with suppress(RuntimeError):  # the loop may be gone
                if line.strip() == "release":
                    self._released_in_threads.set()
                    self._loop.call_soon_threadsafe(self._released.set)
                elif line.strip() == "close":
                    self._loop.call_soon_threadsafe(self.closing.set)

    async def act(self, job: Job) -> None:
        """Do what the job's name says, in the event loop."""
        facts = {"name": job.name, "data": job.data, "attempt": job.attempt}
        tell("started", **facts)
        match job.name:
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "freeze" if job.attempt == 1:
                os.kill(os.getpid(), signal.SIGSTOP)
            case "hold" | "hold-and-fail":
                await self._released.wait()
            case "spin":  # the event loop stands still, and the interpreter is never idle
                while not self._released_in_threads.is_set():
                    pass
            case "stubborn":
                while not self._released.is_set():
                    with suppress(asyncio.CancelledError):
                        await self._released.wait()
        tell("ended", **facts)
        if job.name == "hold-and-fail":
            message = "late"
            raise ValueError(message)

    def act_plainly(self, job: Job) -> None:
        """Do it in a thread."""
        tell("started", name=job.name, data=job.data, attempt=job.attempt)
        if job.name == "hold":
            self._released_in_threads.wait()
        tell("ended", name=job.name, data=job.data, attempt=job.attempt)


async def main(given: dict[str, Any]) -> None:
    """Run the workers until they are told to stop."""
    play = Play()
    handler = play.act_plainly if given["plain"] else play.act
    retry = RetryConfig(initial_backoff_ms=1, max_backoff_ms=5, jitter_ms=0)
    workers = [
        Worker(given["queue"], handler, redis_url=given["redis_url"], retry=retry,
               **given["options"])
        for _ in range(given["workers"])
    ]  # fmt: skip
    for worker in workers:
        with_lease(worker._config, given["lease_ms"])  # noqa: SLF001
    tell("ready", pid=os.getpid())
    closing = asyncio.create_task(close(workers, play.closing))
    await asyncio.gather(*(worker.run() for worker in workers))
    closing.cancel()
    tell("stopped")


async def close(workers: list[Worker], closing: asyncio.Event) -> None:
    """Close the workers when it is ordered."""
    await closing.wait()
    for worker in workers:
        await worker.close()
    tell("closing")


if __name__ == "__main__":
    log = logging.getLogger("chasquimq")
    log.setLevel(logging.INFO)
    log.addHandler(Tellingly())
    asyncio.run(main(json.loads(sys.argv[1])))
