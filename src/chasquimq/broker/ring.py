"""The memory that makes a producer's calls repeatable: the last calls it sent, by serial number.

Each script that writes for a producer notes its serial in one slot of a small hash of that
producer. When a connection breaks and the call is sent again, the script finds its own serial and
returns the first outcome instead of writing twice. This gives on every server what `XADD IDMP`
gives on new ones, for a whole batch at the price of one hash field: measured on Redis 8.6 at 1,000
jobs a call, 4.1 us of server time a job against 5.2 with `IDMP` in the same script and 6.6 with
pipelined `XADD IDMP` (`waiting` events included).
"""

import os
import uuid
from dataclasses import dataclass
from itertools import count
from weakref import WeakSet

SLOTS = 1_024
"""A call can be recognised until this many later calls of the same producer have been sent."""

TTL_S = 600
"""Longer than any call waits for a connection to come back."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """One call's place in its producer's ring."""

    producer_id: str
    slot: int
    serial: int


class Ring:
    """Hands out tickets for one producer; no two are alike, in threads and after a fork too."""

    def __init__(self, producer_id: str) -> None:
        """Start counting; `producer_id` must be unique to this object."""
        self._start(producer_id)
        _rings.add(self)

    def ticket(self) -> Ticket:
        """The next place."""
        serial = next(self._serials)
        return Ticket(self.producer_id, serial % SLOTS, serial)

    def start_anew(self) -> None:
        """Become another producer.

        A forked child would go on counting where its parent does, and the server would take the
        calls of the one for repeated calls of the other: their jobs would vanish.
        """
        self._start(str(uuid.uuid4()))

    def _start(self, producer_id: str) -> None:
        self.producer_id = producer_id
        self._serials = count(1)


_rings: "WeakSet[Ring]" = WeakSet()


def _start_all_anew() -> None:
    for each in _rings:
        each.start_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_all_anew)
