"""`Promoter`: when leader, moves due jobs to the stream.

It sleeps until the next job is due; a producer that schedules an earlier one wakes it through a
list that the leader blocks on. The poll interval is only the upper bound, for producers that do not
wake. What a crash leaves behind: the lock, which expires; nothing else, since each step is one
script.
"""

import asyncio
import logging

from chasquimq.broker import delayed, locks
from chasquimq.broker.connection import Connection
from chasquimq.config import PromoterConfig
from chasquimq.engine.role import Role
from chasquimq.errors import ChasquiError
from chasquimq.metrics import LockOutcome, PromoterTick, report
from chasquimq.wire.keys import QueueKeys

log = logging.getLogger("chasquimq.engine")


class Promoter(Role):
    """One of many, of which one leads."""

    name = "promoter"

    def __init__(self, connection: Connection, config: PromoterConfig) -> None:
        """`connection` is the promoter's own: it blocks on it."""
        self.connection = connection
        self._config = config
        self._keys = QueueKeys(config.queue_name)
        self._promoted_ids: list[bytes] = []
        self._was_leader: bool | None = None

    def __repr__(self) -> str:
        """Show whether it leads."""
        state = "leading" if self._was_leader else "standing by"
        return f"<Promoter {self._config.queue_name} {state}>"

    async def step(self) -> float:
        """Promote one batch, if we lead; return the seconds until another could be due."""
        config = self._config
        await self._forget_indexes()
        promotion = await self.connection.run(
            delayed.promote(
                self._keys,
                holder=config.holder_id,
                lock_ttl_s=config.lock_ttl_secs,
                batch=config.promote_batch,
                capacity=config.max_stream_len,
                events_cap=config.events_max_stream_len if config.events_enabled else 0,
                dlq_cap=config.dlq_max_stream_len,
            )
        )
        self._note_leadership(is_leader=promotion.is_leader)
        longest_s = config.poll_interval_ms / 1_000
        if not promotion.is_leader:
            return longest_s
        self._promoted_ids = promotion.job_ids
        if promotion.set_aside:
            log.error("%d members of the delayed set are not jobs; they are in the DLQ",
                      promotion.set_aside, extra={"queue": config.queue_name})  # fmt: skip
        tick = PromoterTick(promotion.promoted, promotion.depth, promotion.lag_ms)
        report(config.metrics.promoter_tick, tick)
        if promotion.next_due_in_ms is None:
            return longest_s
        if promotion.next_due_in_ms == 0 and not promotion.promoted:
            return longest_s  # due, but the stream is at its cap
        return min(longest_s, promotion.next_due_in_ms / 1_000)

    async def wait(self, stop: asyncio.Event, seconds: float) -> None:
        """Sleep, but wake for a job that is scheduled before all others."""
        if not self._was_leader:
            await super().wait(stop, seconds)
            return
        await self._forget_indexes()
        timeout_ms = max(1, round(seconds * 1_000))
        waking = asyncio.ensure_future(
            self.connection.run(delayed.wait_for_earlier(self._keys, timeout_ms))
        )
        # A stop waits for the block to end: it is short, and cutting the connection would cost
        # more.
        await asyncio.wait([waking])
        error = waking.exception()
        if error is not None and not isinstance(error, ChasquiError):
            raise error

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
            await self.connection.run(delayed.forget_indexes(self._keys, promoted))

    def _note_leadership(self, *, is_leader: bool) -> None:
        if is_leader != self._was_leader:
            self._was_leader = is_leader
            outcome = LockOutcome.ACQUIRED if is_leader else LockOutcome.HELD
            report(self._config.metrics.promoter_lock_outcome, outcome)
