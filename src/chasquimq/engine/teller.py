"""Writes, in order and in batches, what happens to jobs: events that no script writes, and notes.

The events are `active`, `failed`, `drained` and `rate-limited`; notes are what handlers say of
their jobs. They share one line, so that none overtakes another, and what settles a job comes after.
"""

import logging
from collections.abc import Sequence
from typing import Any, TypeAlias, cast

from chasquimq.broker import events
from chasquimq.broker.call import Call, together, unraised
from chasquimq.broker.connection import Connection
from chasquimq.broker.stream import StartedRow
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

Item: TypeAlias = StartedRow | list[bytes] | Note[Any]


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
        self.gatherer: Gatherer[Item] = Gatherer(
            "teller", self._flush, most=_MOST_AT_ONCE, flights=1
        )
        self._others = 0
        # Looked up once: these are asked for by every job.
        self._items = self.gatherer.items
        self._add_started = self.gatherer.add
        self._now_ms = clock.now_ms

    def active(self, run: Run) -> None:
        """A handler is about to start; only called where events are told."""
        if len(self._items) < _MOST_WAITING or self._has_room():
            self._add_started(started(run, self._now_ms()))

    async def take_started(self) -> list[StartedRow]:
        """The `active` events that wait; if others wait among them, all are sent first."""
        if self._others:
            await self.gatherer.hurry()
            return []
        return cast("list[StartedRow]", self.gatherer.take_all())

    def failed(self, run: Run, reason: str, duration_us: int) -> None:
        """A handler raised; whether the job is retried is told by another event."""
        if self._is_enabled and self._has_room():
            self._add(failed_fields(run, reason, duration_us, self._clock.now_ms()))

    def drained(self) -> None:
        """The last read found nothing where the one before had found jobs."""
        if self._is_enabled:
            self._add(event_fields(EventName.DRAINED, "", self._clock.now_ms(), ""))

    def rate_limited(self, wait_ms: int) -> None:
        """The rate limit keeps a reader from reading, for now."""
        if self._is_enabled:
            extras: dict[str, str | int] = {"wait_ms": wait_ms}
            now_ms = self._clock.now_ms()
            self._add(event_fields(EventName.RATE_LIMITED, "", now_ms, "", extras))

    def note(self, note: Note[Any]) -> None:
        """Write a note after everything that was told so far."""
        if len(self.gatherer) >= _MOST_WAITING:
            msg = f"{_MOST_WAITING} events and notes wait for the server: this one was dropped"
            self._note_drop()
            note.end(ChasquiError(msg))
            return
        self._notes += 1
        self._add(note)

    def _add(self, item: list[bytes] | Note[Any]) -> None:
        self._others += 1
        self.gatherer.add(item)

    def _has_room(self) -> bool:
        if len(self.gatherer) < _MOST_WAITING:
            return True
        self._note_drop()
        return False

    def _note_drop(self) -> None:
        self._dropped += 1
        if self._dropped == 1:
            log.warning("events and notes are being dropped: the server does not take them",
                        extra={"queue": self._keys.name})  # fmt: skip

    def abandon(self) -> None:
        """Give up what waits, and tell those who wait for their notes."""
        for each in self.gatherer.take_all():
            if isinstance(each, Note):
                each.end(_cut_off())
        self._others = self._notes = 0

    async def _flush(self, batch: list[Item]) -> None:
        # Nothing is awaited before the batch is sent: who hurries this line relies on that.
        self._others -= sum(not isinstance(each, tuple) for each in batch)
        if self._notes:
            await self._flush_with_notes(batch)
            return
        try:
            await self._connection.run(self._told(batch))
            self._dropped = 0
        except ChasquiError as error:
            log.warning("%d events were not written: %s", len(batch), error)

    async def _flush_with_notes(self, batch: list[Item]) -> None:
        notes = [each for each in batch if isinstance(each, Note)]
        self._notes -= len(notes)
        answers: list[Any] = [_cut_off()] * len(notes)
        try:
            calls = [each.call if isinstance(each, Note) else self._told([each]) for each in batch]
            told = await self._answers(calls)
            if any(isinstance(each, OutcomeUnknownError) for each in told):
                # Events are never sent twice, so the batch was not. A line that stands there twice
                # is better than none.
                answers = await self._answers([note.call for note in notes])
            else:
                pairs = zip(batch, told, strict=True)
                answers = [answer for each, answer in pairs if isinstance(each, Note)]
        except Exception as error:
            answers = [ChasquiError(f"this was not written: {error!r}")] * len(notes)
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
        fields = [active_fields(each) if isinstance(each, tuple) else each for each in batch]
        return events.append(self._keys, fields, cap=self._cap)


def _cut_off() -> ShutdownError:
    return ShutdownError("the worker was cut off before this was written")


def started(run: Run, now_ms: int) -> StartedRow:
    """What is told of a run that begins now."""
    job_id, _, created, _, _ = run.envelope
    wait_ms = now_ms - created if now_ms > created else 0
    return job_id, run.name, now_ms, run.attempt, wait_ms, created


def failed_fields(run: Run, reason: str, duration_us: int, now_ms: int) -> list[bytes]:
    """The event `failed`."""
    extras: dict[str, str | int] = {
        "attempt": run.attempt,
        "reason": reason,
        "duration_us": duration_us,
    }
    return event_fields(EventName.FAILED, run.envelope.id, now_ms, run.name, extras)


def active_fields(started: StartedRow) -> list[bytes]:
    """The event `active`."""
    job_id, name, ts_ms, attempt, wait_ms, created_at_ms = started
    extras = {"attempt": attempt, "wait_ms": wait_ms, "created_at_ms": created_at_ms}
    return event_fields(EventName.ACTIVE, job_id, ts_ms, name, extras)
