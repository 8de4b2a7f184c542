"""Runs the handler for one delivery after another in a fixed number of slots.

A slot is a long-lived task: a handler that never suspends costs no task and no turn of the event
loop. Each run sees a context of its own, so context variables that one job sets are never seen by
the next. The executor decides nothing: it reports an `Outcome`.
"""

import asyncio
import contextvars
import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, TypeAlias

from chasquimq.clock import Clock
from chasquimq.engine.admission import Run
from chasquimq.engine.disposition import Failed, Ok, Outcome
from chasquimq.errors import UnrecoverableError

Handler: TypeAlias = Callable[[Run], Coroutine[Any, Any, bytes | None]]

TRACEBACK_CHARS = 8_192
"""How much of a traceback a dead letter keeps: its end, where the error is."""
MESSAGE_CHARS = 4_096
"""How much of an error's text events and dead letters keep: its beginning."""

# A slot that runs handlers which never suspend lets others have the loop after this long.
_TURN_US = 2_000


class Executor:
    """`concurrency` slots and the runs that wait for one."""

    def __init__(
        self,
        handler: Handler,
        *,
        concurrency: int,
        clock: Clock,
        on_start: Callable[[Run], None],
        on_outcome: Callable[[Run, Outcome, int], None],
    ) -> None:
        """`on_start` and `on_outcome` are called on the event loop and must not block."""
        self._handler = handler
        self._concurrency = concurrency
        self._clock = clock
        self._on_start = on_start
        self._on_outcome = on_outcome
        self._waiting: deque[Run] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._slots: list[asyncio.Task[None]] = []
        self._running: dict[Run, int] = {}
        self._base_context = contextvars.copy_context()
        self._changed = asyncio.Event()
        self._is_ending = False
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
        if self._idle:
            waiter = self._idle.popleft()
            if not waiter.done():
                waiter.set_result(None)
        elif len(self._slots) < self._concurrency:
            loop = asyncio.get_running_loop()
            self._slots.append(loop.create_task(self._slot(), name=f"slot-{len(self._slots)}"))

    async def changed(self) -> None:
        """Return after a run has left its slot (at once, if one did since the last call)."""
        await self._changed.wait()
        self._changed.clear()

    def take_waiting(self) -> list[Run]:
        """Take back every run that was not started."""
        taken = list(self._waiting)
        self._waiting.clear()
        return taken

    async def end(self, deadline_s: float) -> list[Run]:
        """Let running handlers finish; cancel, and return, those that do not by the deadline."""
        self._is_ending = True
        while self._idle:
            waiter = self._idle.popleft()
            if not waiter.done():
                waiter.set_result(None)
        if self._slots:
            _, late = await asyncio.wait(self._slots, timeout=deadline_s)
            self.cut()
            if late:
                # A handler may refuse to be cancelled; it is left behind rather than waited for.
                await asyncio.wait(late, timeout=_CANCEL_GRACE_S)
        return [*self._cut_off, *self._running]

    def cut(self) -> None:
        """Cancel every handler that still runs, now."""
        self._is_ending = True
        for task in self._slots:
            task.cancel()

    async def _slot(self) -> None:
        clock, waiting = self._clock, self._waiting
        loop = asyncio.get_running_loop()
        turn_began = clock.monotonic_us()
        while True:
            while not waiting:
                if self._is_ending:
                    return
                waiter = loop.create_future()
                self._idle.append(waiter)
                await waiter
                turn_began = clock.monotonic_us()
            run = waiting.popleft()
            began = clock.monotonic_us()
            self._running[run] = began
            self._on_start(run)
            try:
                outcome = await self._outcome(run)
            except asyncio.CancelledError:
                self._cut_off.append(run)
                raise
            finally:
                del self._running[run]
                self.finished += 1
                self._changed.set()
            ended = clock.monotonic_us()
            self._on_outcome(run, outcome, ended - began)
            if ended - turn_began > _TURN_US:
                await asyncio.sleep(0)
                turn_began = clock.monotonic_us()

    async def _outcome(self, run: Run) -> Outcome:
        context = self._base_context.copy()
        try:
            return Ok(await _InContext(context, context.run(self._handler, run)))
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if self._is_ending or task is None:
                raise
            # The handler cancelled itself, or let a cancellation of its own making escape: that is
            # a failure of this job and must not reach the next one.
            while task.uncancel():
                pass
            return _failed(error, is_panic=True)
        except Exception as error:  # noqa: BLE001 -- whatever a handler raises is an outcome
            return _failed(error)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 -- GeneratorExit and the like
            return _failed(error, is_panic=True)


# How long a cancelled handler may take to unwind before the stop goes on without it.
_CANCEL_GRACE_S = 1.0


class _InContext(Awaitable[bytes | None]):
    """Drives a coroutine inside a context, from a task that has another one."""

    __slots__ = ("_context", "_coroutine")

    def __init__(
        self, context: contextvars.Context, coroutine: Coroutine[Any, Any, bytes | None]
    ) -> None:
        self._context = context
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, bytes | None]:
        enter, coroutine = self._context.run, self._coroutine
        send, throw = coroutine.send, coroutine.throw
        try:
            yielded = enter(send, None)
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
    message = str(error)
    kind = type(error).__name__
    text = "".join(traceback.format_exception(error))
    if len(text) > TRACEBACK_CHARS:
        text = "... (earlier frames left out)\n" + text[-TRACEBACK_CHARS:]
    return Failed(
        message=message or kind,
        error=f"{kind}: {message}" if message else kind,
        traceback=text,
        dlq_reason=error.dlq_reason if isinstance(error, UnrecoverableError) else None,
        is_panic=is_panic,
    )
