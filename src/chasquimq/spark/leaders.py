"""Runs a queue's promoter and scheduler on the driver, where a fleet is all the workers there are.

In a thread with an event loop of its own. Retries are delayed jobs: without a promoter they would
wait for ever.
"""

import asyncio
import logging
import threading
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from chasquimq.engine.standalone import Promoter, Scheduler

log = logging.getLogger("chasquimq.spark")


class Leaders:
    """Works between `__enter__` and `__exit__`; others may lead at the same time."""

    def __init__(self, redis_url: str, queue: str, *, promoter: bool, scheduler: bool) -> None:
        """Nothing is connected yet."""
        self._redis_url = redis_url
        self._queue = queue
        self._wanted = (promoter, scheduler)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._roles: Sequence[Promoter | Scheduler] = ()
        self._is_ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chasquimq-leaders", daemon=True)

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        self._is_ready.wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """Release the locks and end."""
        assert self._loop is not None  # noqa: S101 -- set before `_is_ready`
        for role in self._roles:
            # A loop that is over has no role left to stop.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(role.shutdown)
        self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._lead())
        except Exception:
            log.exception("delayed and recurring jobs of queue %s are left to other workers",
                          self._queue)  # fmt: skip
        finally:
            self._is_ready.set()

    async def _lead(self) -> None:
        self._loop = asyncio.get_running_loop()
        promoter, scheduler = self._wanted
        roles: list[Promoter | Scheduler] = []
        if promoter:
            roles.append(Promoter(self._redis_url, self._queue))
        if scheduler:
            roles.append(Scheduler(self._redis_url, self._queue))
        self._roles = roles
        self._is_ready.set()
        await asyncio.gather(*(role.run() for role in roles))
