"""The memory that makes a producer's calls repeatable: the last calls it sent, by serial number.

Each script that writes for a producer notes its serial in one slot of a small hash of that
producer. When a connection breaks and the call is sent again, the script finds its own serial and
returns the first outcome instead of writing twice. This gives on every server what `XADD IDMP`
gives on new ones, for a whole batch at the price of one hash field: measured on Redis 8.6 at 1,000
jobs a call, 4.1 us of server time a job against 5.2 with `IDMP` in the same script and 6.6 with
pipelined `XADD IDMP` (`waiting` events included).

A memory forgets, and what it has forgotten would be done twice. So no call is numbered that could
make the server forget one which is still under way: where a ring is full of those, another begins.
"""

import os
import threading
import uuid
from collections import deque
from dataclasses import dataclass
from types import TracebackType
from weakref import WeakSet

SLOTS = 1_024
"""A call is recognised until this many later calls of the same ring have been sent."""

IDMP_CALLS = 50
"""As many of a producer's `XADD IDMP` may be under way, from the first that is to the last.

A server remembers the last 100 ids of a producer, unless its `stream-idmp-maxsize` says otherwise.
Sent again, calls may change places: behind one of them come at most 49 that were numbered before it
and 49 that were after.
"""

TTL_S = 600
"""Longer than any call waits for a connection to come back."""


class Window:
    """Numbers calls, none of them `size` or more ahead of one that is still under way.

    Threads may share it.
    """

    def __init__(self, size: int) -> None:
        """Nothing is under way."""
        self._size = size
        self._next = 1
        self._under_way: dict[int, None] = {}  # in their order
        self._left: deque[int] = deque()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        """Show how much is under way."""
        return f"<Window {len(self._under_way) - len(self._left)} under way, next {self._next}>"

    def enter(self) -> int | None:
        """The number of a call that is about to be sent; None if it would be too far ahead."""
        with self._lock:
            while self._left:
                self._under_way.pop(self._left.popleft(), None)
            number = self._next
            if number - next(iter(self._under_way), number) >= self._size:
                return None
            self._next = number + 1
            self._under_way[number] = None
            return number

    def leave(self, number: int) -> None:
        """A call was answered, or will not be sent again.

        Takes no lock: a call that nobody waits for any more may end wherever Python collects
        garbage, amid `enter` too.
        """
        self._left.append(number)


@dataclass(frozen=True, slots=True)
class Ticket:
    """One call's place in its producer's ring."""

    producer_id: str
    slot: int
    serial: int


class Ring:
    """Hands out tickets for one producer; no two are alike, in threads and after a fork too."""

    def __init__(self, producer_id: str, size: int = SLOTS) -> None:
        """Start counting; `producer_id` must be unique to this object."""
        self._size = size
        self._start(producer_id)
        _rings.add(self)

    def tickets(self, count: int = 1) -> "Tickets":
        """Places for so many calls, until the block in which they are sent and answered ends."""
        return Tickets(self, count)

    def take(self) -> "tuple[Ticket, Window]":
        """The next place, and where to leave when its call is over.

        In a ring that is full of calls under way it would be that of one of them. The server knows
        a ring by its producer, so we go on as another: as the first that was full and is so no
        more. There are as many as it takes to hold what was ever under way at the same time.
        """
        taken = self.take_if_open()
        while taken is None:
            self._turn()
            taken = self.take_if_open()
        return taken

    def take_if_open(self) -> "tuple[Ticket, Window] | None":
        """The same, or None where the ring is full."""
        producer_id, window = self._place
        serial = window.enter()
        if serial is None:
            return None
        return Ticket(producer_id, serial % self._size, serial), window

    def start_anew(self) -> None:
        """Become another producer.

        A forked child would go on counting where its parent does, and the server would take the
        calls of the one for repeated calls of the other: their jobs would vanish.
        """
        self._start(str(uuid.uuid4()))

    def _start(self, producer_id: str) -> None:
        self._place = (producer_id, Window(self._size))
        self._full: deque[tuple[str, Window]] = deque()
        self._turning = threading.Lock()  # after a fork nobody may be there to let go of the old

    def _turn(self) -> None:
        """Leave a full ring for one that may not be."""
        with self._turning:
            producer_id, window = self._place
            number = window.enter()
            if number is not None:  # another thread has turned, or a call has ended
                window.leave(number)
                return
            for _ in range(len(self._full)):
                place = self._full.popleft()
                number = place[1].enter()
                if number is not None:
                    place[1].leave(number)
                    break
                self._full.append(place)
            else:
                place = (str(uuid.uuid4()), Window(self._size))
            self._full.append((producer_id, window))
            self._place = place


class Tickets:
    """Places that are taken while a block lasts."""

    __slots__ = ("_count", "_ring", "_taken")

    def __init__(self, ring: Ring, count: int) -> None:
        """Nothing is taken yet."""
        self._ring = ring
        self._count = count
        self._taken: list[tuple[Ticket, Window]] = []

    def __enter__(self) -> list[Ticket]:
        """Take them."""
        for _ in range(self._count):
            self._taken.append(self._ring.take())
        return [ticket for ticket, _ in self._taken]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Give them back."""
        for ticket, window in self._taken:
            window.leave(ticket.serial)


_rings: "WeakSet[Ring]" = WeakSet()


def _start_all_anew() -> None:
    for each in _rings:
        each.start_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_all_anew)
