"""A stint: how a worker takes jobs that runs for a while, in a task that somebody else starts.

What was delivered before comes first, one entry at a time and with nothing else in hand: if it
kills the process, it alone is counted as started once more, and its neighbours are not. Then comes
what is new, as any worker takes it, until there was enough or nothing comes any more.

The name of a consumer outlives its stints. What a stint that was killed left pending under it is
let go at the start of the next, with its runs counted, without waiting for its lease.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from chasquimq.broker import locks, pause, returns, stream
from chasquimq.broker.call import Steps
from chasquimq.broker.connection import Connection
from chasquimq.broker.limits import Taken
from chasquimq.broker.steps import drive
from chasquimq.broker.stream import Delivery
from chasquimq.clock import Clock
from chasquimq.config import ConsumerConfig
from chasquimq.engine.intake import InHand, gated, intake
from chasquimq.engine.reader import IDLE_FOR_ALL_MS
from chasquimq.wire.keys import QueueKeys

log = logging.getLogger("chasquimq.engine")

# A read blocks no longer than this, so that a permit that is gone is soon seen.
_SLICE_MS = 250
# Longer than anything can be idle: reads of new entries claim nothing.
_NEVER_MS = 10 * 365 * 86_400_000
# For the stop that `on_end` begins to reach the reader.
_STOP_S = 0.01
# Between two looks at whether the hand is empty.
_HAND_LOOK_S = 0.002
_LONGEST_HAND_LOOK_S = 0.1
# Deliveries let go in one call; it holds up the server for that long.
_CHUNK = 500


class StintEnd(StrEnum):
    """Why a stint took no more."""

    DRY = "dry"
    """Nothing came for a while, and nothing runs."""
    ENOUGH = "enough"
    """It has taken as many as it may."""
    LATE = "late"
    """It has lasted as long as it may."""
    PAUSED = "paused"
    """The queue is paused."""
    DISMISSED = "dismissed"
    """Its permit is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StintTerms:
    """How long a stint goes on."""

    most: int
    """Jobs it takes, at most."""
    linger_ms: int
    """How long it waits for another one."""
    longest_ms: int
    """How long it takes jobs, at most; what it has begun by then it finishes."""
    permit: tuple[bytes, str]
    """A lock, and who has to hold it: when nobody else may work under this consumer's name."""


class StintIntake:
    """Takes what came before, alone, then what is new; says once when that is over."""

    def __init__(  # noqa: PLR0913 -- what an intake is made of, and the terms
        self,
        connection: Connection,
        keys: QueueKeys,
        config: ConsumerConfig,
        clock: Clock,
        in_hand: InHand,
        *,
        terms: StintTerms,
        on_end: Callable[[StintEnd], None],
    ) -> None:
        """`on_end` may be called more than once, and should let the worker drain."""
        self._connection = connection
        self._keys = keys
        self._config = config
        self._clock = clock
        self._in_hand = in_hand
        self._terms = terms
        self._on_end = on_end
        unclaiming = replace(config, claim_min_idle_ms=_NEVER_MS)
        self._new = intake(connection, keys, unclaiming, clock)
        self._is_first = self._is_recovering = True
        self._left = terms.most
        self._late_us = 0
        # Since when reads have found nothing while nothing ran; 0 if the last one was no such read.
        self._dry_since_us = 0

    async def take(self, room: int, *, block_ms: int, may_go_on: Callable[[], bool]) -> Taken:
        """One entry that was delivered before, or at most `room` new ones."""
        asked_us = self._clock.monotonic_us()
        if self._is_first:
            # Not before: the worker has to connect first.
            self._late_us = asked_us + self._terms.longest_ms * 1_000
        end = await self._reason_to_end()
        if end is not None:
            if end is not StintEnd.DISMISSED:
                # What was read ahead is run: handed back, it would have to be run alone.
                await self._empty_hand(may_go_on)
            return await self._over(end)
        if self._is_first:
            self._is_first = False
            await self._let_go()
        if self._is_recovering:
            taken = await self._recover(may_go_on)
            if taken.deliveries or taken.is_paused or not may_go_on():
                return self._noted(taken, asked_us)
            self._is_recovering = False
        asked_us = self._clock.monotonic_us()  # what came before may have taken long
        taken = await self._new.take(
            min(room, self._left), block_ms=min(block_ms, _SLICE_MS), may_go_on=may_go_on
        )
        return self._noted(taken, asked_us)

    def look_again(self) -> None:
        """Look for what was delivered before, with the next read."""
        self._is_recovering = True

    async def _let_go(self) -> None:
        left = await drive(self._connection, let_go(self._keys, self._config))
        if left:
            log.info("%s takes up %d deliveries that were left under its name",
                     self._config.consumer_id, left, extra={"queue": self._keys.name})  # fmt: skip

    async def _recover(self, may_go_on: Callable[[], bool]) -> Taken:
        """The oldest entry whose lease ran out, once everything else is settled."""
        await self._empty_hand(may_go_on)
        if not may_go_on():
            return Taken()
        if await self._connection.run(pause.is_paused(self._keys)):
            return Taken(is_paused=True)
        claim = stream.claim(
            self._keys,
            self._config.group,
            self._config.consumer_id,
            min_idle_ms=self._config.claim_min_idle_ms,
            count=1,
        )
        deliveries, is_paused = await self._connection.run(gated(self._keys, claim))
        return Taken(deliveries, is_paused)

    async def _empty_hand(self, may_go_on: Callable[[], bool]) -> None:
        pause_s = _HAND_LOOK_S
        while self._in_hand() and may_go_on():
            await asyncio.sleep(pause_s)
            pause_s = min(_LONGEST_HAND_LOOK_S, 1.5 * pause_s)

    async def _reason_to_end(self) -> StintEnd | None:
        if not await self._connection.run(locks.is_held(*self._terms.permit)):
            return StintEnd.DISMISSED
        if self._left <= 0:
            return StintEnd.ENOUGH
        now_us = self._clock.monotonic_us()
        if now_us >= self._late_us:
            return StintEnd.LATE
        if self._dry_since_us and now_us - self._dry_since_us >= self._terms.linger_ms * 1_000:
            return StintEnd.DRY
        return None

    def _noted(self, taken: Taken, asked_us: int) -> Taken:
        self._left -= len(taken.deliveries)
        if taken.deliveries or self._in_hand():
            self._dry_since_us = 0
        else:
            self._dry_since_us = self._dry_since_us or asked_us
        if taken.is_paused:
            self._on_end(StintEnd.PAUSED)
        return taken

    async def _over(self, end: StintEnd) -> Taken:
        self._on_end(end)
        await asyncio.sleep(_STOP_S)
        return Taken()


def let_go(keys: QueueKeys, config: ConsumerConfig) -> Steps[int]:
    """Make what is pending under our name claimable at once, by anybody; its runs count.

    Returns how many that were. What is idle for a whole lease can be claimed as it is, and its
    count is left alone: that of a delivery which was handed back is not one too few.
    """
    group, consumer = config.group, config.consumer_id
    left: list[Delivery] = []
    first = "-"
    while page := (yield stream.pending(keys, group, consumer, first=first)):
        left += [each for each in page if each.idle_ms < config.claim_min_idle_ms]
        first = f"({page[-1].entry_id.decode()}"
    for each in left:
        each.deliveries += 1
    for at in range(0, len(left), _CHUNK):
        chunk = left[at : at + _CHUNK]
        yield returns.hand_back(keys, group, consumer, chunk, idle_ms=IDLE_FOR_ALL_MS)
    return len(left)
