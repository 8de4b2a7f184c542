"""Watches the events stream for jobs that somebody in this process waits for.

One reader for any number of waiters. It ends by itself when a read returns and nobody waits any
more: cutting a read off would leave it blocked on the server, and the next waiter behind it. An
event is a hint to look again, never the answer itself: waiters also look now and then without one,
because events are best effort and a worker may have them turned off.
"""

import asyncio
import logging
from contextlib import suppress

from chasquimq.broker import events
from chasquimq.broker.connection import Connection
from chasquimq.engine.outcomes import WaitedJob
from chasquimq.errors import ChasquiError
from chasquimq.wire.event import QueueEvent
from chasquimq.wire.keys import QueueKeys

log = logging.getLogger("chasquimq.engine")

_BLOCK_MS = 2_000
_COUNT = 1_000
_PAUSE_AFTER_ERROR_S = 0.2


class Waiter:
    """One job somebody waits for."""

    def __init__(self, job: WaitedJob) -> None:
        """`job` is what is known of it so far, and learns more."""
        self.job = job
        self._hint = asyncio.Event()

    async def hint(self, timeout_s: float) -> None:
        """Return when an event ended the job, or after a while without one."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._hint.wait()
        self._hint.clear()

    def take(self, event: QueueEvent) -> None:
        """Note what an event says."""
        if self.job.take(event):
            self._hint.set()

    def look(self) -> None:
        """Give a hint without an event."""
        self._hint.set()


class Watcher:
    """Reads events while someone waits."""

    def __init__(self, connection: Connection, keys: QueueKeys) -> None:
        """`connection` is the watcher's own: it blocks on it."""
        self._connection = connection
        self._keys = keys
        self._waiters: dict[str, set[Waiter]] = {}
        self._task: asyncio.Task[None] | None = None
        self._position: asyncio.Future[None] | None = None

    async def add(self, job_id: str, job: WaitedJob) -> Waiter:
        """Begin to watch a job. Events from before this call returned may be missed: look once."""
        waiter = Waiter(job)
        self._waiters.setdefault(job_id, set()).add(waiter)
        if self._task is None:
            loop = asyncio.get_running_loop()
            self._position = loop.create_future()
            self._task = loop.create_task(self._watch(self._position), name="watcher")
        assert self._position is not None  # noqa: S101 -- made with the task
        try:
            await asyncio.shield(self._position)
        except asyncio.CancelledError:
            self.remove(job_id, waiter)
            raise
        return waiter

    def remove(self, job_id: str, waiter: Waiter) -> None:
        """Stop watching."""
        waiters = self._waiters.get(job_id, set())
        waiters.discard(waiter)
        if not waiters:
            self._waiters.pop(job_id, None)

    async def close(self) -> None:
        """Stop; waiters go on looking by themselves."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        await self._connection.close()

    async def _watch(self, positioned: "asyncio.Future[None]") -> None:
        after: str | None = None
        try:
            while self._waiters:
                try:
                    if after is None:
                        after = await self._connection.run(events.last_id(self._keys))
                        self._begin(positioned)
                    batch = await self._connection.run(
                        events.read(self._keys, after=after, count=_COUNT, block_ms=_BLOCK_MS)
                    )
                    for event in batch:
                        after = event.event_id
                        for waiter in self._waiters.get(event.job_id or "", ()):
                            waiter.take(event)
                except Exception as error:
                    # Whatever it is: those who wait would not learn that nobody watches for them.
                    is_ours = isinstance(error, ChasquiError)
                    log.log(logging.DEBUG if is_ours else logging.ERROR,
                            "events could not be read: %s", error,
                            exc_info=not is_ours)  # fmt: skip
                    _resolve(positioned)
                    await asyncio.sleep(_PAUSE_AFTER_ERROR_S)
        finally:
            _resolve(positioned)
            if self._task is asyncio.current_task():
                self._task = None

    def _begin(self, positioned: "asyncio.Future[None]") -> None:
        if positioned.done():
            # Those who did not wait for us looked before there was a place to read on from; what
            # happened in between was told to nobody.
            for waiters in self._waiters.values():
                for waiter in waiters:
                    waiter.look()
        _resolve(positioned)


def _resolve(positioned: "asyncio.Future[None]") -> None:
    if not positioned.done():
        positioned.set_result(None)
