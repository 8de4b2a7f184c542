"""Writes events that no script writes: `active`, `failed` and `drained`. Batched, best effort."""

import logging
from typing import cast

from chasquimq.broker import events
from chasquimq.broker.connection import Connection
from chasquimq.broker.stream import Started
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
        self.gatherer: Gatherer[Started | list[bytes]] = Gatherer(
            "teller", self._flush, most=_MOST_AT_ONCE, flights=1
        )
        self._others = 0

    def active(self, run: Run) -> None:
        """A handler is about to start."""
        if self._is_enabled and self._has_room():
            now_ms = self._clock.now_ms()
            envelope = run.envelope
            created = envelope.created_at_ms
            wait_ms = now_ms - created if now_ms > created else 0
            self.gatherer.add(Started(envelope.id, run.name, now_ms, run.attempt, wait_ms, created))

    async def take_started(self) -> list[Started]:
        """The `active` events that wait; if others wait among them, all are sent first."""
        if self._others:
            await self.gatherer.hurry()
            return []
        return cast("list[Started]", self.gatherer.take_all())

    def failed(self, run: Run, reason: str, duration_us: int) -> None:
        """A handler raised; whether the job is retried is told by another event."""
        if self._is_enabled and self._has_room():
            extras: dict[str, str | int] = {
                "attempt": run.attempt,
                "reason": reason,
                "duration_us": duration_us,
            }
            now_ms = self._clock.now_ms()
            self._add(event_fields(EventName.FAILED, run.envelope.id, now_ms, run.name, extras))

    def drained(self) -> None:
        """The last read found nothing where the one before had found jobs."""
        if self._is_enabled:
            self._add(event_fields(EventName.DRAINED, "", self._clock.now_ms(), ""))

    def _add(self, fields: list[bytes]) -> None:
        self._others += 1
        self.gatherer.add(fields)

    def _has_room(self) -> bool:
        if len(self.gatherer) < _MOST_WAITING:
            return True
        self._dropped += 1
        if self._dropped == 1:
            log.warning("events are being dropped: the server does not take them")
        return False

    async def _flush(self, batch: list[Started | list[bytes]]) -> None:
        fields = [_fields(each) if isinstance(each, Started) else each for each in batch]
        self._others -= sum(isinstance(each, list) for each in batch)
        try:
            await self._connection.run(events.append(self._keys, fields, cap=self._cap))
            self._dropped = 0
        except ChasquiError as error:
            log.warning("%d events were not written: %s", len(batch), error)


def _fields(started: Started) -> list[bytes]:
    job_id, name, ts_ms, attempt, wait_ms, created_at_ms = started
    extras = {"attempt": attempt, "wait_ms": wait_ms, "created_at_ms": created_at_ms}
    return event_fields(EventName.ACTIVE, job_id, ts_ms, name, extras)
