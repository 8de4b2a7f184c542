"""`Bell`: lets a leader sleep until its time, or until somebody rings.

Who stores what is due before all else pushes an element onto a list, and the leader blocks on that,
over a connection of its own. A ring that is lost costs no more than the rest of a sleep: leaders
also look by themselves, for those who do not ring. One may be: who has just ceased to lead listens
on for up to five seconds, and takes what was meant for its successor.
"""

import asyncio
import logging

from chasquimq.broker import bells
from chasquimq.broker.connection import Connection

log = logging.getLogger("chasquimq.engine")

_LISTEN_MS = 5_000


class Bell:
    """One list, and who listens to it."""

    def __init__(self, connection: Connection, key: bytes, *, role: str) -> None:
        """Nothing is opened before the first wait. `connection` is the bell's own: it blocks."""
        self.connection = connection
        self._key = key
        self._role = role
        # Both outlive a wait, of which a leader at rest has ten a second.
        self._listening: asyncio.Task[bool] | None = None
        self._stopping: asyncio.Task[bool] | None = None
        self._stop: asyncio.Event | None = None
        self._sleeper: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        """Show whose it is, and whether anybody listens."""
        is_heard = self._listening is not None and not self._listening.done()
        return f"<Bell of the {self._role}, {'listening' if is_heard else 'silent'}>"

    async def wait(self, stop: asyncio.Event, seconds: float) -> None:
        """Return after so long, when somebody rings, or when `stop` is set.

        The time is kept here and not by the block: a server looks at its blocked clients ten times
        a second, so a short block would end up to a tenth of a second late.
        """
        loop = asyncio.get_running_loop()
        if self._stop is not stop:
            await _ended(self._stopping)
            self._stop, self._stopping = stop, loop.create_task(stop.wait())
            self._stopping.add_done_callback(self._wake)
        if self._has_rung() or stop.is_set():
            return
        if self._listening is None:
            self._listening = loop.create_task(self._listen())
            self._listening.add_done_callback(self._wake)
        self._sleeper = loop.create_future()
        timer = loop.call_later(seconds, self._wake)
        try:
            await self._sleeper
        finally:
            timer.cancel()
            self._sleeper = None
        self._has_rung()

    def _wake(self, _: object = None) -> None:
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)

    def _has_rung(self) -> bool:
        """Whether somebody has rung since this was asked; a ring counts once.

        Also while nobody waited: the task listens on while the leader is at its work, and what it
        heard then may be of something that was stored after the leader had looked.
        """
        if self._listening is None or not self._listening.done():
            return False
        listening, self._listening = self._listening, None
        return not listening.cancelled() and listening.result()

    async def end(self) -> None:
        """Stop listening, and close the connection, even if cancelled; returns when nobody does."""
        try:
            await _ended(self._listening, self._stopping)
            self._stop = self._stopping = None
        finally:
            await self.connection.close()

    async def _listen(self) -> bool:
        """Return when somebody rings, or after a while; whether somebody did."""
        try:
            return await self.connection.run(bells.wait_for_ring(self._key, _LISTEN_MS))
        except Exception as error:  # noqa: BLE001 -- else the next wait would end at once, and so on
            log.debug("the %s cannot be woken, it goes by its own time: %s", self._role, error)
            await asyncio.sleep(_LISTEN_MS / 1_000)
            return False


async def _ended(*tasks: "asyncio.Task[bool] | None") -> None:
    """Return when these are over; who is cancelled meanwhile leaves none behind that goes on."""
    ending = [task for task in tasks if task is not None]
    for task in ending:
        task.cancel()
    if ending:
        await asyncio.wait(ending)
