"""Writes, in order and in batches, what happens to jobs: events that no script writes, and notes.

The events are `active`, `failed`, `drained` and `rate-limited`; notes are what handlers say of
their jobs. They share one line, so that none overtakes another, and what settles a job comes after.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from chasquimq.broker import events
from chasquimq.broker.call import Call, together, unraised
from chasquimq.broker.connection import Connection
from chasquimq.clock import Clock
from chasquimq.config import ConsumerConfig
from chasquimq.engine.admission import Run
from chasquimq.engine.gatherer import Gatherer
from chasquimq.engine.note import Note
from chasquimq.errors import ChasquiError, OutcomeUnknownError, ShutdownError
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
        self._notes = 0
        self.gatherer: Gatherer[list[bytes] | Note[Any]] = Gatherer(
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

    def rate_limited(self, wait_ms: int) -> None:
        """The rate limit keeps a reader from reading, for now."""
        if self._is_enabled:
            extras: dict[str, str | int] = {"wait_ms": wait_ms}
            now_ms = self._clock.now_ms()
            self.gatherer.add(event_fields(EventName.RATE_LIMITED, "", now_ms, "", extras))

    def note(self, note: Note[Any]) -> None:
        """Write a note after everything that was told so far."""
        if len(self.gatherer) >= _MOST_WAITING:
            msg = f"{_MOST_WAITING} events and notes wait for the server: this one was dropped"
            note.end(ChasquiError(msg))
            return
        self._notes += 1
        self.gatherer.add(note)

    def _add(self, name: EventName, run: Run, now_ms: int, extras: dict[str, str | int]) -> None:
        if len(self.gatherer) >= _MOST_WAITING:
            self._dropped += 1
            if self._dropped == 1:
                log.warning("events are being dropped: the server does not take them")
            return
        self.gatherer.add(event_fields(name, run.envelope.id, now_ms, run.name, extras))

    async def _flush(self, batch: list[list[bytes] | Note[Any]]) -> None:
        # Nothing is awaited before the batch is sent: who hurries this line relies on that.
        if self._notes:
            await self._flush_with_notes(batch)
            return
        try:
            await self._connection.run(self._told(batch))
            self._dropped = 0
        except ChasquiError as error:
            log.warning("%d events were not written: %s", len(batch), error)

    async def _flush_with_notes(self, batch: list[list[bytes] | Note[Any]]) -> None:
        notes = [each for each in batch if isinstance(each, Note)]
        self._notes -= len(notes)
        calls = [each.call if isinstance(each, Note) else self._told([each]) for each in batch]
        try:
            answers = await self._answers(calls)
            if any(isinstance(each, OutcomeUnknownError) for each in answers):
                # Events are never sent twice, so the batch was not. A line that stands there twice
                # is better than none.
                answers = await self._answers([note.call for note in notes])
            else:
                pairs = zip(batch, answers, strict=True)
                answers = [answer for each, answer in pairs if isinstance(each, Note)]
        except asyncio.CancelledError:
            answers = [ShutdownError("the worker was cut off while it wrote this")] * len(notes)
            raise
        finally:
            for note, answer in zip(notes, answers, strict=True):
                note.end(answer)

    async def _answers(self, calls: Sequence[Call[Any]]) -> list[Any]:
        """What the server says to each call of a pipeline, refusals and failures included."""
        answers: list[Any]
        try:
            answers = await self._connection.run(together([unraised(each) for each in calls]))
        except ChasquiError as error:
            answers = [error] * len(calls)
        refused = [each for each in answers if isinstance(each, ChasquiError)]
        if refused:
            log.warning("%d events and notes were not written: %s", len(refused), refused[0],
                        extra={"queue": self._keys.name})  # fmt: skip
        return answers

    def _told(self, batch: Sequence[Any]) -> Call[None]:
        return events.append(self._keys, batch, cap=self._cap)
