"""Moves deliveries from the stream to the delayed set or the DLQ; reports those that moved."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from chasquimq.broker.call import Call, together
from chasquimq.broker.connection import Connection
from chasquimq.engine.gatherer import Gatherer
from chasquimq.engine.leases import Leases
from chasquimq.errors import ChasquiError

log = logging.getLogger("chasquimq.engine")

_FLIGHTS = 2


@dataclass(frozen=True, slots=True)
class Move:
    """One relocation: the script call, the entry it settles, and what to report if it moved."""

    entry_id: bytes
    call: Call[bool]
    on_moved: Callable[[], None]


class Relocator:
    """Carries out moves. One that fails leaves its entry pending, to come back as a claim."""

    def __init__(self, connection: Connection, leases: Leases, *, queue: str, most: int) -> None:
        """At most `most` moves travel together; flushes begin with `gatherer.start`."""
        self._connection = connection
        self._leases = leases
        self._queue = queue
        self.gatherer: Gatherer[Move] = Gatherer(
            "relocator", self._flush, most=most, flights=_FLIGHTS
        )

    def add(self, move: Move) -> None:
        """Relocate with the next batch."""
        self.gatherer.add(move)

    async def _flush(self, batch: list[Move]) -> None:
        try:
            moved = await self._connection.run(together([each.call for each in batch]))
        except ChasquiError:
            # One bad apple must not hold the others back: each for itself.
            moved = [await self._alone(each) for each in batch]
        for each, has_moved in zip(batch, moved, strict=True):
            self._leases.drop(each.entry_id)
            if has_moved:
                each.on_moved()
            else:
                log.info("entry %s was settled by another worker", each.entry_id.decode(),
                         extra={"queue": self._queue})  # fmt: skip

    async def _alone(self, move: Move) -> bool:
        try:
            return await self._connection.run(move.call)
        except ChasquiError as error:
            log.error(  # noqa: TRY400 -- the error says it all
                "entry %s could not be moved and will run again: %s",
                move.entry_id.decode(), error, extra={"queue": self._queue},
            )  # fmt: skip
            return False
