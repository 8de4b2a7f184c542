"""`PromoterRole`: when leader, moves due jobs to the stream.

It sleeps until the next job is due; a producer that schedules an earlier one wakes it through a
list that the leader blocks on. The poll interval is only the upper bound, for producers that do not
wake: while nothing is due a poll is one small question and no step. What a crash leaves behind: the
lock, which expires; nothing else, since each step is one script.
"""

import asyncio
import logging
from dataclasses import dataclass

from chasquimq.broker import delayed, line, locks
from chasquimq.broker.connection import Connection
from chasquimq.broker.delayed import Promotion
from chasquimq.config import PromoterConfig
from chasquimq.engine.bell import Bell
from chasquimq.engine.role import Role
from chasquimq.engine.turnstile import Turnstile
from chasquimq.errors import ChasquiError
from chasquimq.metrics import LockOutcome, PromoterTick, report
from chasquimq.wire.keys import QueueKeys

log = logging.getLogger("chasquimq.engine")

# Steps in the life of a lock, at least: each renews it.
_STEPS_PER_LOCK = 3
# How soon to look again whether a line that was full has moved; doubled for one that has not.
_LOOK_AGAIN_S = 0.005


@dataclass(frozen=True, slots=True)
class _Lull:
    """How long nothing is due, unless somebody schedules a job before the one that was next."""

    until_s: float
    due_at: bytes


class PromoterRole(Role):
    """One of many, of which one leads."""

    name = "promoter"

    def __init__(self, connection: Connection, config: PromoterConfig) -> None:
        """The promoter listens on a sibling of `connection`, for as long as it runs."""
        self.connection = connection
        self._config = config
        self._keys = QueueKeys(config.queue_name)
        self.bell = Bell(connection.sibling(), self._keys.wake, role=self.name)
        self._promoted_ids: list[bytes] = []
        self._was_leader: bool | None = None
        self._turnstile = Turnstile(config.promote_batch)
        self._is_flooded = False
        self._has_told_of_dlq = False
        self._look_again_s = _LOOK_AGAIN_S
        self._lull: _Lull | None = None

    def __repr__(self) -> str:
        """Show whether it leads."""
        state = "leading" if self._was_leader else "standing by"
        return f"<Promoter {self._config.queue_name} {state}>"

    async def step(self) -> float:
        """Promote one batch, if we lead; return the seconds until another could be due.

        While more is due than that, new jobs must get through too: see `turnstile`.
        """
        config = self._config
        await self._forget_indexes()
        if (left_s := await self._left_of_lull()) > 0:
            return min(left_s, config.poll_interval_ms / 1_000)
        began_s = asyncio.get_running_loop().time()
        room = config.promote_batch
        if self._is_flooded:
            room = self._turnstile.room(await self.connection.run(line.look(self._keys)))
        promotion = await self.connection.run(
            delayed.promote(
                self._keys,
                holder=config.holder_id,
                lock_ttl_s=config.lock_ttl_secs,
                batch=room,  # none: the lock is renewed all the same
                capacity=config.max_stream_len,
                events_cap=config.events_max_stream_len if config.events_enabled else 0,
                dlq_cap=config.dlq_max_stream_len,
            )
        )
        self._note_leadership(is_leader=promotion.is_leader)
        self._note_flood(promotion)
        self._note_lull(promotion, began_s)
        longest_s = config.poll_interval_ms / 1_000
        if not promotion.is_leader:
            return longest_s
        self._promoted_ids = promotion.job_ids
        self._note_strangers(promotion)
        tick = PromoterTick(promotion.promoted, promotion.depth, promotion.lag_ms)
        report(config.metrics.promoter_tick, tick)
        if promotion.next_due_in_ms is None:
            return longest_s
        if promotion.next_due_in_ms == 0 and not promotion.promoted:
            if room:
                return longest_s  # due, but the stream is at its cap
            pause_s = min(longest_s, self._look_again_s)
            self._look_again_s = pause_s * 2
            return pause_s
        self._look_again_s = _LOOK_AGAIN_S
        return min(longest_s, promotion.next_due_in_ms / 1_000)

    def _note_flood(self, promotion: Promotion) -> None:
        self._is_flooded = promotion.is_leader and promotion.next_due_in_ms == 0
        if not self._is_flooded:
            self._turnstile.clear()
        elif promotion.promoted:
            self._turnstile.entered(promotion.promoted, promotion.last)

    def _note_strangers(self, promotion: Promotion) -> None:
        extra = {"queue": self._config.queue_name}
        if promotion.set_aside:
            self._has_told_of_dlq = False
            log.error("%d members of the delayed set are not jobs; they are in the DLQ",
                      promotion.set_aside, extra=extra)  # fmt: skip
        if promotion.put_off and not self._has_told_of_dlq:
            self._has_told_of_dlq = True
            log.error("%d members of the delayed set are not jobs, and the DLQ takes nothing; they "
                      "stay and are tried again", promotion.put_off, extra=extra)  # fmt: skip

    def _note_lull(self, promotion: Promotion, began_s: float) -> None:
        due_in_ms = promotion.next_due_in_ms
        if not promotion.is_leader or due_in_ms == 0:
            self._lull = None
            return
        # Not from now on: the server may have answered as soon as it was asked.
        lasts_s = self._config.lock_ttl_secs / _STEPS_PER_LOCK
        if due_in_ms is not None:
            lasts_s = min(lasts_s, due_in_ms / 1_000)
        self._lull = _Lull(began_s + lasts_s, promotion.next_due_at)

    async def _left_of_lull(self) -> float:
        """Seconds until there may be something to do; 0 if there may be now."""
        if self._lull is None:
            return 0
        left_s = self._lull.until_s - asyncio.get_running_loop().time()
        if left_s > 0:
            earlier = delayed.count_earlier(self._keys, self._lull.due_at)
            if not await self.connection.run(earlier):
                return left_s
        self._lull = None
        return 0

    async def run(self, stop: asyncio.Event) -> None:
        """Repeat `step` until `stop` is set, then stop listening too."""
        try:
            await super().run(stop)
            await self._forget_indexes()  # of the last step, after which nobody waited
        finally:
            await self.bell.end()

    async def wait(self, stop: asyncio.Event, seconds: float) -> None:
        """Sleep, but wake for a job that is scheduled before all others."""
        await self._forget_indexes()
        if self._was_leader:
            await self.bell.wait(stop, seconds)
        else:
            await super().wait(stop, seconds)

    async def release(self) -> None:
        """Give the lock up, so that another can lead at once."""
        try:
            await self.connection.run(
                locks.release(self._keys.promoter_lock, self._config.holder_id)
            )
        except ChasquiError as error:
            log.debug("the promoter's lock was not released, it expires by itself: %s", error)

    async def _forget_indexes(self) -> None:
        promoted, self._promoted_ids = self._promoted_ids, []
        if promoted:
            try:
                await self.connection.run(delayed.forget_indexes(self._keys, promoted))
            except ChasquiError as error:
                log.debug("%d indexes stay until they expire: %s", len(promoted), error)

    def _note_leadership(self, *, is_leader: bool) -> None:
        if is_leader != self._was_leader:
            self._was_leader = is_leader
            outcome = LockOutcome.ACQUIRED if is_leader else LockOutcome.HELD
            report(self._config.metrics.promoter_lock_outcome, outcome)
