"""Moves deliveries from the stream to the delayed set or the DLQ; reports those that moved."""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

from chasquimq.broker.call import Call, Reply, together, unraised
from chasquimq.broker.connection import Connection
from chasquimq.broker.delayed import Relocation
from chasquimq.engine.gatherer import Gatherer
from chasquimq.engine.leases import Leases
from chasquimq.engine.portions import CHUNK, SETTLED_BYTES, portions
from chasquimq.engine.teller import Teller
from chasquimq.errors import ChasquiError, RedisError

log = logging.getLogger("chasquimq.engine")

_FLIGHTS = 2


class Joint(NamedTuple):
    """A retry, and the call in which it can travel with others of its worker."""

    relocation: Relocation
    join: Callable[[Sequence[Relocation]], Call[list[bool]]]


class Move(NamedTuple):
    """One relocation: how it is asked for, the entry it settles, what to report if it moved."""

    entry_id: bytes
    asked: Call[bool] | Joint
    on_moved: Callable[[], None]
    is_burial: bool = False
    """Whether it ends the job."""


def carried(moves: Sequence[Move]) -> Call[list[bool | RedisError]]:
    """All moves in one pipeline, answered in their order; True where one was carried out.

    Retries share calls, in portions; a refusal is the answer of all that it was about, and of no
    other.
    """
    calls: list[Call[Any]] = []
    about: list[Sequence[int]] = []
    retries: list[int] = []
    sizes = [0] * len(moves)
    for at, move in enumerate(moves):
        if isinstance(move.asked, Joint):
            retries.append(at)
            sizes[at] = len(move.asked.relocation.envelope)
        else:
            calls.append(unraised(move.asked))
            about.append((at,))
    for part in portions(retries, CHUNK, sizes, most_bytes=SETTLED_BYTES):
        joints = [cast("Joint", moves[at].asked) for at in part]
        calls.append(unraised(joints[0].join([joint.relocation for joint in joints])))
        about.append(part)
    pipeline = together(calls)

    def parse(replies: list[Reply]) -> list[bool | RedisError]:
        answers: list[bool | RedisError] = [False] * len(moves)
        for part, answer in zip(about, pipeline.parse(replies), strict=True):
            each = answer if isinstance(answer, list) else [answer] * len(part)
            for at, one in zip(part, each, strict=True):
                answers[at] = one
        return answers

    return replace(pipeline, parse=parse)


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
        left = deque(batch)
        try:
            for first in await self._first_answers(batch):
                is_error = isinstance(first, Exception)
                self._end(left[0], await self._again(left[0]) if is_error else first)
                left.popleft()
        finally:
            # Of what is cut off here nobody else knows: held on to, it would be renewed for ever.
            for each in left:
                self._leases.give_up(each.entry_id)

    async def _first_answers(self, batch: list[Move]) -> Sequence[bool | Exception]:
        """What the server says to each when all travel together."""
        try:
            await self._teller.gatherer.hurry()  # `failed` comes before what follows from it
            return await self._connection.run(carried(batch))
        except Exception as error:  # noqa: BLE001 -- it is told if it comes again
            return [error] * len(batch)

    async def _again(self, move: Move) -> bool | Exception:
        """A move that was refused, by itself; it may be that the server only had a hiccup."""
        try:
            return await self.gatherer.insist(lambda: self._alone(move))
        except Exception as error:  # noqa: BLE001 -- told by who asks
            return error

    async def _alone(self, move: Move) -> bool:
        [answer] = await self._connection.run(carried([move]))
        if isinstance(answer, RedisError):
            raise answer
        return answer

    def _end(self, move: Move, answer: bool | Exception) -> None:  # noqa: FBT001 -- the server's
        self._leases.drop((move.entry_id,))
        if isinstance(answer, Exception):
            is_ours = isinstance(answer, ChasquiError)  # whose message says it all
            log.error("entry %s could not be moved and will run again: %s", move.entry_id.decode(),
                      answer, exc_info=None if is_ours else answer,
                      extra={"queue": self._queue})  # fmt: skip
            self._leases.give_up(move.entry_id)
        elif answer:
            self._leases.settle((move.entry_id,))
            move.on_moved()
        else:
            log.info("entry %s was settled by another worker", move.entry_id.decode(),
                     extra={"queue": self._queue})  # fmt: skip
