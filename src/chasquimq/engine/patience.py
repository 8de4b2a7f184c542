"""Who waits for room in a full queue: a few ask, and the others follow as soon as there is some.

If all asked, most would be refused again and again, and wait ever longer in between, while there is
room: 200 tasks that add to a queue of 20 jobs took 3.2 s for what one task does in 0.3. So one
asks. Who is let in lets two others ask, until one is refused.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

from chasquimq.errors import QueueFullError

T = TypeVar("T")

FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 0.5
"""How long to wait between two tries, at first and at most."""
# Who may ask at the same time while there is room.
_MOST_ASKING = 64


class Patience:
    """Those who add to one queue from one event loop and may wait."""

    def __init__(self) -> None:
        """Nobody waits."""
        self._line: deque[asyncio.Future[None]] = deque()
        self._asking = 0
        self._most = 1

    def __repr__(self) -> str:
        """Show how many wait."""
        return f"<Patience {self._asking} asking, {len(self._line)} in line>"

    async def in_line(self, attempt: Callable[[], Awaitable[T]], timeout_s: float) -> T:
        """What `attempt` gives; `QueueFullError` only after this long. First come, first served.

        For one job: who wants much room would keep all others waiting.
        """
        deadline = asyncio.get_running_loop().time() + timeout_s
        if not self._asking and not self._line:
            try:
                return await attempt()
            except QueueFullError:
                pass
        if not await self._turn(deadline):
            return await attempt()  # for the last time
        try:
            result = await _until(deadline, attempt, self._refused)
            self._most = min(_MOST_ASKING, 2 * self._most)
        finally:
            self._leave()
        return result

    async def alone(self, attempt: Callable[[], Awaitable[T]], timeout_s: float) -> T:
        """The same beside the line."""
        return await _until(asyncio.get_running_loop().time() + timeout_s, attempt)

    async def _turn(self, deadline: float) -> bool:
        """Return when it is one's turn to ask; False if that does not come in time."""
        if self._asking < self._most and not self._line:
            self._asking += 1
            return True
        place = asyncio.get_running_loop().create_future()
        self._line.append(place)
        try:
            async with asyncio.timeout_at(deadline):
                await place
        except (TimeoutError, asyncio.CancelledError) as error:
            was_let_in = place.done() and not place.cancelled()
            if isinstance(error, TimeoutError):
                return was_let_in
            if was_let_in:
                self._leave()
            raise
        return True

    def _refused(self) -> None:
        self._most = 1

    def _leave(self) -> None:
        self._asking -= 1
        while self._line and self._asking < self._most:
            place = self._line.popleft()
            if not place.done():
                place.set_result(None)
                self._asking += 1


async def _until(
    deadline: float,
    attempt: Callable[[], Awaitable[T]],
    on_refusal: Callable[[], None] = lambda: None,
) -> T:
    loop, pause_s = asyncio.get_running_loop(), FIRST_PAUSE_S
    while True:
        try:
            return await attempt()
        except QueueFullError:
            on_refusal()
            left_s = deadline - loop.time()
            if left_s <= 0:
                raise
        await asyncio.sleep(min(pause_s, left_s))
        pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)
