"""Runs the handler for one delivery after another in a fixed number of slots.

A slot is a long-lived task: a handler that never suspends costs no task and no turn of the event
loop. A slot is woken for the first run of a batch and goes on to the next by itself; only when a
handler suspends, and so keeps its slot, are others woken. Each run sees a context of its own, so
context variables that one job sets are never seen by the next. The executor decides nothing: it
reports an `Outcome`.
"""

import asyncio
import contextvars
import os
import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

from chasquimq.clock import Clock
from chasquimq.engine.admission import Run
from chasquimq.engine.disposition import Failed, Ok, Outcome, Postponed
from chasquimq.errors import (
    DlqReason,
    HandlerError,
    RateLimitError,
    TaskError,
    UnrecoverableError,
)

Handler: TypeAlias = Callable[[Run], Coroutine[Any, Any, bytes | None]]

_PACKAGE = str(Path(__file__).parents[1]) + os.sep

# Most handlers return nothing that is stored: they share one outcome.
_NOTHING = Ok(None)

TRACEBACK_CHARS = 8_192
"""How much of a traceback a dead letter keeps: its end, where the error is."""
MESSAGE_CHARS = 4_096
"""How much of an error's text events and dead letters keep: its beginning."""

# A slot that runs handlers which never suspend lets others have the loop after this long.
_TURN_US = 2_000
# How long a cancelled handler may take to unwind before the stop goes on without it.
_CANCEL_GRACE_S = 1.0
# Slots woken when a handler suspends. Two, so that a batch fills all slots in a few turns of the
# event loop (it doubles with each) while a batch that never suspends wakes one slot in all.
_WOKEN_AT_SUSPENSION = 2


class Executor:
    """`concurrency` slots and the runs that wait for one."""

    def __init__(
        self,
        handler: Handler,
        *,
        concurrency: int,
        clock: Clock,
        begin: Callable[[Run, int], bool],
        on_outcome: Callable[[Run, Outcome, int], None],
    ) -> None:
        """`begin` and `on_outcome` are called on the event loop and must not block.

        `begin` is told of a run and the time before its handler is called. If it says no the run is
        not ours to begin any more, and whoever said so sees to it.
        """
        self._handler = handler
        self._concurrency = concurrency
        self._clock = clock
        self._begin = begin
        self._on_outcome = on_outcome
        self._waiting: deque[Run] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._slots: list[asyncio.Task[None]] = []
        # Slots that were woken and have not had their turn yet.
        self._woken = 0
        self._running: dict[Run, int] = {}
        self._base_context = contextvars.copy_context()
        self._changed = asyncio.Event()
        self._is_ending = False
        self._is_cut = False
        self._patience: asyncio.Timeout | None = None
        self._cut_off: list[Run] = []
        self.finished = 0

    def __repr__(self) -> str:
        """Show live state."""
        slots = f"{len(self._running)}/{self._concurrency} slots"
        return f"<Executor {slots}, {len(self._waiting)} waiting>"

    @property
    def running(self) -> int:
        """How many handlers run now."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """How many runs wait for a slot."""
        return len(self._waiting)

    @property
    def free(self) -> int:
        """Slots that neither run nor are spoken for; negative when runs wait."""
        return self._concurrency - len(self._running) - len(self._waiting)

    def submit(self, run: Run) -> None:
        """Queue a run; it starts as soon as a slot is free."""
        self._waiting.append(run)
        if not self._woken:
            self._wake()

    def _wake(self) -> None:
        """Let one more slot look for runs, if there is one that does nothing."""
        while self._idle:
            waiter = self._idle.popleft()
            if not waiter.done():
                waiter.set_result(None)
                self._woken += 1
                return
        if len(self._slots) < self._concurrency and not self._is_ending:
            loop = asyncio.get_running_loop()
            self._slots.append(loop.create_task(self._slot(), name=f"slot-{len(self._slots)}"))
            self._woken += 1

    def _on_suspension(self) -> None:
        """A handler keeps its slot: what waits needs others."""
        for _ in range(min(_WOKEN_AT_SUSPENSION, len(self._waiting) - self._woken)):
            self._wake()

    async def changed(self) -> None:
        """Return after a run has left its slot (at once, if one did since the last call)."""
        await self._changed.wait()
        self._changed.clear()

    def nudge(self) -> None:
        """Let `changed` return though nothing has."""
        self._changed.set()

    def take_waiting(self) -> list[Run]:
        """Take back every run that was not started."""
        taken = list(self._waiting)
        self._waiting.clear()
        return taken

    async def end(self, deadline_s: float) -> list[Run]:
        """Let running handlers finish; cancel, and return, those that do not by the deadline.

        A `cut` is a deadline that comes sooner.
        """
        self._is_ending = True
        while self._idle:
            self._wake()
        if self._slots:
            with suppress(TimeoutError):
                async with asyncio.timeout(0 if self._is_cut else deadline_s) as self._patience:
                    await asyncio.wait(self._slots)
            self._patience = None
            self.cut()
            # A handler may refuse to be cancelled; it is left behind rather than waited for.
            await asyncio.wait(self._slots, timeout=_CANCEL_GRACE_S)
        return [*self._cut_off, *self._running]

    def cut(self) -> None:
        """Cancel every handler that still runs, now."""
        self._is_ending = self._is_cut = True
        for task in self._slots:
            task.cancel()
        if self._patience is not None:
            self._patience.reschedule(asyncio.get_running_loop().time())

    async def _slot(self) -> None:
        now_us, waiting, running = self._clock.monotonic_us, self._waiting, self._running
        slot = asyncio.current_task()
        assert slot is not None  # noqa: S101 -- a slot is a task
        self._woken -= 1
        turn_began = now_us()
        while True:
            while not waiting:
                if self._is_ending:
                    return
                await self._rest(slot)
                turn_began = now_us()
            run = waiting.popleft()
            began = now_us()
            if not self._begin(run, began):
                self._changed.set()
                continue
            running[run] = began
            outcome: Outcome
            try:
                value = await _InContext(
                    self._base_context.copy(), self._handler(run), self._on_suspension
                )
                outcome = _NOTHING if value is None else Ok(value)
            except BaseException as error:  # noqa: BLE001 -- whatever it raises is an outcome
                outcome = self._raised(run, error)
            finally:
                del running[run]
                self.finished += 1
                self._changed.set()
            ended = now_us()
            self._on_outcome(run, outcome, ended - began)
            if ended - turn_began > _TURN_US or slot.cancelling():
                await self._unhurt(slot, asyncio.sleep(0))
                turn_began = now_us()

    def _raised(self, run: Run, error: BaseException) -> Outcome:
        """What it means that a handler raised this; raises it, if it is not meant for the job."""
        if isinstance(error, RateLimitError):
            return Postponed(error.retry_after_ms)
        if isinstance(error, Exception):
            return _failed(error)
        if isinstance(error, asyncio.CancelledError) and self._is_cut:
            self._cut_off.append(run)
            raise error
        if isinstance(error, KeyboardInterrupt):
            raise error
        # It cancelled itself, or let a cancellation of its own making escape: a failure of this
        # job. So is a `sys.exit`, which must not end other jobs.
        return _failed(error, is_panic=True)

    async def _rest(self, slot: "asyncio.Task[None]") -> None:
        """Do nothing until woken."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._idle.append(waiter)
        await self._unhurt(slot, waiter)
        if waiter.done() and not waiter.cancelled():
            self._woken -= 1

    async def _unhurt(self, slot: "asyncio.Task[None]", pause: Awaitable[None]) -> None:
        """Wait between two jobs, and forget a cancellation that came from one that is over.

        A handler may have cancelled its own task and returned, or have left something behind that
        cancels it later. The slot goes on: only a cut ends it.
        """
        try:
            await pause
        except asyncio.CancelledError:
            if self._is_cut:
                raise
        while slot.cancelling():
            slot.uncancel()


class _InContext(Awaitable[bytes | None]):
    """Drives a coroutine inside a context, from a task that has another one."""

    __slots__ = ("_context", "_coroutine", "_on_suspension")

    def __init__(
        self,
        context: contextvars.Context,
        coroutine: Coroutine[Any, Any, bytes | None],
        on_suspension: Callable[[], None],
    ) -> None:
        self._context = context
        self._coroutine = coroutine
        self._on_suspension = on_suspension

    def __await__(self) -> Generator[Any, Any, bytes | None]:
        enter, coroutine = self._context.run, self._coroutine
        send, throw = coroutine.send, coroutine.throw
        try:
            yielded = enter(send, None)
            self._on_suspension()
            while True:
                try:
                    value = yield yielded
                except GeneratorExit:
                    enter(coroutine.close)
                    raise
                except BaseException as error:  # noqa: BLE001 -- the coroutine decides
                    yielded = enter(throw, error)
                else:
                    yielded = enter(send, value)
        except StopIteration as done:
            result: bytes | None = done.value
            return result


def _failed(error: BaseException, *, is_panic: bool = False) -> Failed:
    source = error.source_err() if isinstance(error, HandlerError) else error
    message = _text(source)
    kind = type(source).__name__
    frames = _from_the_handler(error)
    trace = ""
    # What we refuse ourselves is all in the message: frames of ours would only hide it.
    if frames is not None or not isinstance(error, TaskError):
        trace = _whole_trace(error, frames or error.__traceback__)
    return Failed(
        message=message or kind,
        error=f"{kind}: {message}"[:MESSAGE_CHARS] if message else kind,
        traceback=trace,
        dlq_reason=reason_of(error),
        is_panic=is_panic,
    )


def _from_the_handler(error: BaseException) -> TracebackType | None:
    """The traceback without what leads to the handler: those frames are the same for every job.

    None if the handler's code was never reached.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        trace = trace.tb_next
    return trace


def _whole_trace(error: BaseException, frames: TracebackType | None) -> str:
    trace = _utf8("".join(traceback.format_exception(type(error), error, frames)))
    if len(trace) > TRACEBACK_CHARS:
        trace = "... (earlier frames left out)\n" + trace[-TRACEBACK_CHARS:]
    return trace


def reason_of(error: BaseException) -> DlqReason | None:
    """Why the job is dead-lettered at once; None if a retry may help."""
    if isinstance(error, HandlerError):
        return (
            DlqReason.UNRECOVERABLE if error.is_unrecoverable() else reason_of(error.source_err())
        )
    return error.dlq_reason if isinstance(error, UnrecoverableError) else None


def _text(error: BaseException) -> str:
    try:
        return _utf8(str(error)[:MESSAGE_CHARS])
    except Exception:  # noqa: BLE001 -- the user's `__str__` may raise anything
        return ""


def _utf8(text: str) -> str:
    """The same text; what UTF-8 cannot carry is written as escapes."""
    return text.encode("utf-8", "backslashreplace").decode()
