"""Moves deliveries from the stream to the delayed set or the DLQ; reports those that moved."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from chasquimq.broker.call import Call, together, unraised
from chasquimq.broker.connection import Connection
from chasquimq.engine.gatherer import Gatherer
from chasquimq.engine.leases import Leases
from chasquimq.engine.teller import Teller
from chasquimq.errors import ChasquiError

log = logging.getLogger("chasquimq.engine")

_FLIGHTS = 2


@dataclass(frozen=True, slots=True)
class Move:
    """One relocation: the script call, the entry it settles, and what to report if it moved."""

    entry_id: bytes
    call: Call[bool]
    on_moved: Callable[[], None]
    is_burial: bool = False
    """Whether it ends the job."""


class Relocator:
    """Carries out moves. One that fails leaves its entry pending, to come back as a claim."""

    def __init__(
        self, connection: Connection, *, leases: Leases, teller: Teller, queue: str, most: int
    ) -> None:
        """At most `most` moves travel together; flushes begin with `gatherer.start`."""
        self._connection = connection
        self._leases = leases
        self._teller = teller
        self._queue = queue
        self.gatherer: Gatherer[Move] = Gatherer(
            "relocator", self._flush, most=most, flights=_FLIGHTS
        )

    def add(self, move: Move) -> None:
        """Relocate with the next batch."""
        self.gatherer.add(move)

    async def _flush(self, batch: list[Move]) -> None:
        await self._teller.gatherer.hurry()  # `failed` comes before what follows from it
        answers: list[bool | ChasquiError]
        try:
            calls = [unraised(each.call) for each in batch]
            answers = [*(await self._connection.run(together(calls)))]
        except ChasquiError as error:
            answers = [error] * len(batch)
        for each, first in zip(batch, answers, strict=True):
            answer = first if not isinstance(first, ChasquiError) else await self._again(each)
            self._leases.drop(each.entry_id)
            if isinstance(answer, ChasquiError):
                log.error("entry %s could not be moved and will run again: %s",
                          each.entry_id.decode(), answer,
                          extra={"queue": self._queue})  # fmt: skip
                self._leases.give_up(each.entry_id)
            elif answer:
                each.on_moved()
            else:
                log.info("entry %s was settled by another worker", each.entry_id.decode(),
                         extra={"queue": self._queue})  # fmt: skip

    async def _again(self, move: Move) -> bool | ChasquiError:
        """A move that was refused, by itself; it may be that the server only had a hiccup."""
        try:
            return await self.gatherer.insist(lambda: self._connection.run(move.call))
        except ChasquiError as error:
            return error
