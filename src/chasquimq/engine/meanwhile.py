"""`Meanwhile`: makes a value while a request is on its way, when there is nothing else to do."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

# Turns of the event loop until what was sent in this one has left: a link writes in the next, and
# uvloop at the end of that.
_TURNS = 2


class Meanwhile(Generic[T]):
    """A value that is made soon, or when it is asked for; whichever comes first."""

    def __init__(self, make: Callable[[], T]) -> None:
        """Call `make` in a while, on the running event loop; it must raise nothing."""
        self._make = make
        self._made: list[T] = []
        self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self._count_down, _TURNS)

    def __repr__(self) -> str:
        """Show whether it is made."""
        return f"<Meanwhile {'made' if self._made else 'to be made'}>"

    def value(self) -> T:
        """The value."""
        if not self._made:
            self._made.append(self._make())
        return self._made[0]

    def _count_down(self, turns: int) -> None:
        if turns > 1:
            self._loop.call_soon(self._count_down, turns - 1)
        else:
            self.value()
