"""Writes events that no script writes: `active`, `failed` and `drained`. Batched, best effort."""

import logging

from chasquimq.broker import events
from chasquimq.broker.connection import Connection
from chasquimq.clock import Clock
from chasquimq.config import ConsumerConfig
from chasquimq.engine.admission import Run
from chasquimq.engine.gatherer import Gatherer
from chasquimq.errors import ChasquiError
from chasquimq.wire.event import EventName, event_fields
from chasquimq.wire.keys import QueueKeys

log = logging.getLogger("chasquimq.engine")

# While the server is away events pile up; beyond this many the newest are dropped, and that is
# said.
_MOST_WAITING = 50_000
_MOST_AT_ONCE = 512


class Teller:
    """Tells the events stream; costs a job no round trip, and never fails one."""

    def __init__(
        self, connection: Connection, keys: QueueKeys, config: ConsumerConfig, clock: Clock
    ) -> None:
        """One batch at a time, so that events keep their order."""
        self._connection = connection
        self._keys = keys
        self._cap = config.events_max_stream_len
        self._is_enabled = config.events_enabled
        self._clock = clock
        self._dropped = 0
        self.gatherer: Gatherer[list[bytes]] = Gatherer(
            "teller", self._flush, most=_MOST_AT_ONCE, flights=1
        )

    def active(self, run: Run) -> None:
        """A handler is about to start."""
        if self._is_enabled:
            now_ms = self._clock.now_ms()
            created = run.envelope.created_at_ms
            self._add(
                EventName.ACTIVE,
                run,
                now_ms,
                {
                    "attempt": run.attempt,
                    "wait_ms": max(0, now_ms - created),
                    "created_at_ms": created,
                },
            )

    def failed(self, run: Run, reason: str, duration_us: int) -> None:
        """A handler raised; whether the job is retried is told by another event."""
        if self._is_enabled:
            extras: dict[str, str | int] = {
                "attempt": run.attempt,
                "reason": reason,
                "duration_us": duration_us,
            }
            self._add(EventName.FAILED, run, self._clock.now_ms(), extras)

    def drained(self) -> None:
        """The last read found nothing where the one before had found jobs."""
        if self._is_enabled:
            self.gatherer.add(event_fields(EventName.DRAINED, "", self._clock.now_ms(), ""))

    def _add(self, name: EventName, run: Run, now_ms: int, extras: dict[str, str | int]) -> None:
        if len(self.gatherer) >= _MOST_WAITING:
            self._dropped += 1
            if self._dropped == 1:
                log.warning("events are being dropped: the server does not take them")
            return
        self.gatherer.add(event_fields(name, run.envelope.id, now_ms, run.name, extras))

    async def _flush(self, batch: list[list[bytes]]) -> None:
        try:
            await self._connection.run(events.append(self._keys, batch, cap=self._cap))
            self._dropped = 0
        except ChasquiError as error:
            log.warning("%d events were not written: %s", len(batch), error)
