"""Takes down what running jobs say of themselves: progress and log lines.

It is written in line with their events (`teller.py`) and before they are settled: who sees a job
completed sees its last progress and its last line. A worker that is killed takes with it what was
not sent yet, a turn of the event loop's worth.
"""

import asyncio
import logging
import threading
from typing import Any, Self, TypeVar

from chasquimq.broker import notes
from chasquimq.clock import Clock
from chasquimq.config import ConsumerConfig
from chasquimq.engine.admission import Run
from chasquimq.engine.gate import Tell, tell_nobody
from chasquimq.engine.note import Note
from chasquimq.engine.teller import Teller
from chasquimq.errors import ShutdownError
from chasquimq.wire.event import EventName, event_fields
from chasquimq.wire.keys import QueueKeys

log = logging.getLogger("chasquimq.engine")
T = TypeVar("T")

CUT_MARK = b" [cut]"
"""The end of a log line that was too long."""


class Scribe:
    """Takes notes from handlers, in the event loop and in threads."""

    def __init__(
        self,
        keys: QueueKeys,
        config: ConsumerConfig,
        *,
        teller: Teller,
        clock: Clock,
        tell: Tell = tell_nobody,
    ) -> None:
        """`tell` is told of progress that is stored. Needs a running event loop."""
        self._keys = keys
        self._config = config
        self._teller = teller
        self._clock = clock
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._is_over = False
        self._tells_progress = config.events_enabled and config.events_progress_enabled

    def __repr__(self) -> str:
        """Show whether it still takes notes."""
        return f"<Scribe {self._keys.name}{' (over)' if self._is_over else ''}>"

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """The scribe itself: it is shared, so that `dataclasses.asdict(job)` can work."""
        return self

    def progress(self, run: Run, progress: int, job: object) -> Note[None]:
        """Store how far a job is; `job` is what listeners are given."""
        event = None
        if self._tells_progress:
            fields = event_fields(
                EventName.PROGRESS,
                run.envelope.id,
                self._clock.now_ms(),
                run.name,
                {"progress": progress},
            )
            event = (self._config.events_max_stream_len, fields)
        call = notes.set_progress(
            self._keys, run.envelope.id, progress, ttl_s=self._config.result_ttl_secs, event=event
        )
        return self._take(
            Note(
                call,
                thread=self._thread,
                on_stored=lambda: self._tell("progress", job, progress),
            )
        )

    def log(self, run: Run, line: str) -> Note[int]:
        """Add a line to a job's log; one that is too long is cut, with a mark."""
        call = notes.append_log(
            self._keys,
            run.envelope.id,
            _cut(line, self._config.log_max_line_bytes),
            cap=self._config.log_max_stream_len,
            ttl_s=self._config.result_ttl_secs,
        )
        return self._take(Note(call, thread=self._thread))

    def end(self) -> None:
        """Take no more notes: handlers that were left behind would wait for ever."""
        self._is_over = True

    def _take(self, note: Note[T]) -> Note[T]:
        if threading.get_ident() == self._thread:
            self._hand_on(note)
            return note
        try:
            # In order with the end of the handler, which takes the same way back to the loop.
            self._loop.call_soon_threadsafe(self._hand_on, note)
        except RuntimeError:  # the loop is gone
            note.end(_too_late())
        return note

    def _hand_on(self, note: Note[Any]) -> None:
        if self._is_over:
            log.warning("a note of a job was not written: the worker has stopped",
                        extra={"queue": self._keys.name})  # fmt: skip
            note.end(_too_late())
        else:
            self._teller.note(note)


def _too_late() -> ShutdownError:
    return ShutdownError("the worker has stopped: nothing more is written for its jobs")


def _cut(line: str, most: int) -> bytes:
    raw = line.encode("utf-8", "backslashreplace")
    if len(raw) <= most:
        return raw
    kept = raw[: most - len(CUT_MARK)]
    return kept.decode("utf-8", "ignore").encode() + CUT_MARK
