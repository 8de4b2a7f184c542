"""The shape of a role: `step()` does a unit of work without waiting, `run(stop)` repeats it.

Starting a role twice is a mistake of ours; stopping one that has ended is harmless; `run` returns
when the role has truly ended. An error of the server never ends a role: it is logged once per
streak, and the role goes on, ever more slowly, until the server is back.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress

from chasquimq.broker import stream
from chasquimq.broker.connection import Connection
from chasquimq.errors import ChasquiError, ConfigError, ServerTooOldError

log = logging.getLogger("chasquimq.engine")

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0
_UNBLOCK_AGAIN_S = 0.02


class Role(ABC):
    """A part of the engine that repeats a step until it is told to stop."""

    name = "role"
    blocked_on: Connection | None = None
    """The connection on which the server holds our request back, while it does."""
    on_error: Callable[[Exception], None] | None = None
    """Told, besides the log, of what made a step fail."""

    @abstractmethod
    async def step(self) -> float:
        """Do one unit of work; return how many seconds may pass before the next is needed."""

    async def run(self, stop: asyncio.Event) -> None:
        """Repeat `step` until `stop` is set."""
        failures = 0
        while not stop.is_set():
            try:
                pause_s = await self.step()
                failures = 0
            except (ConfigError, ServerTooOldError):
                raise
            except ChasquiError as error:
                failures += 1
                pause_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(failures - 1, 10))
                level = logging.WARNING if failures == 1 else logging.DEBUG
                log.log(level, "%s: %s; trying again", self.name, error)
                self._report(error)
            except Exception as error:
                # A slip of ours, or something at our keys that nobody foresaw: it must not end the
                # worker, whose other roles go on.
                failures += 1
                pause_s = _LONGEST_PAUSE_S
                log.exception("%s: a step failed; trying again", self.name)
                self._report(error)
            if pause_s > 0 and not stop.is_set():
                await self.wait(stop, pause_s)

    def _report(self, error: Exception) -> None:
        if self.on_error is not None:
            self.on_error(error)

    async def wait(self, stop: asyncio.Event, seconds: float) -> None:
        """Let time pass, or less if there is a reason; the stop always is one."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await stop.wait()

    async def unblock(
        self, helper: Connection, *, is_needed: Callable[[], bool] = lambda: True
    ) -> None:
        """Through another connection, end a wait on the server: a stop need not sit it out.

        Asked more than once, because a request that is still on its way when the first one arrives
        blocks after it. A server that does not allow it is waited for: a block ends by itself.
        """
        try:
            while is_needed() and (waiting := self.blocked_on):
                if waiting.server is None or not waiting.server.client_id:
                    return
                await helper.run(stream.unblock(waiting.server.client_id))
                await asyncio.sleep(_UNBLOCK_AGAIN_S)
        except ChasquiError as error:
            log.debug("%s could not be unblocked: %s", self.name, error)
