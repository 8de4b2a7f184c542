"""Runs the handler for one delivery after another in a fixed number of slots.

A slot is a long-lived task: a handler that never suspends costs no task and no turn of the event
loop. A slot is woken for the first run of a batch and goes on to the next by itself; only when a
handler suspends, and so keeps its slot, are others woken. Amid a large batch it lets the others
write: the server then settles what has run, and looks for more, while the rest runs. Each run sees
a context of its own, so context variables that one job sets are never seen by the next.
"""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, TypeAlias, Unpack

from chasquimq.engine.admission import Run
from chasquimq.engine.disposition import Ok, Outcome
from chasquimq.engine.slots import Parts, Slots

Handler: TypeAlias = Callable[[Run], Coroutine[Any, Any, bytes | None]]

# Most handlers return nothing that is stored: they share one outcome.
_NOTHING: Outcome = Ok(None)

# A slot that runs handlers which never suspend lets others have the loop after this long.
_TURN_NS = 2_000_000
# After how many runs the others write: a quarter of what waits, and no fewer than are worth a round
# trip of their own; of less the requests would cost more than is gained by sending them sooner.
_PORTIONS = 4
_LEAST_PORTION = 100
# Turns of the event loop until what the others have to send has left: they make their requests in
# the first, a link joins those in the second, and uvloop writes at the end of a turn.
_TURNS_TO_WRITE = 3
# Slots woken when a handler suspends. Two, so that a batch fills all slots in a few turns of the
# event loop (it doubles with each) while a batch that never suspends wakes one slot in all.
_WOKEN_AT_SUSPENSION = 2


class Executor(Slots):
    """`concurrency` slots, each of which runs one job at a time."""

    def __init__(self, handler: Handler, *, concurrency: int, **parts: Unpack[Parts]) -> None:
        """Call `handler` for each run, on the event loop."""
        super().__init__(most=concurrency, concurrency=concurrency, **parts)
        self._handler = handler
        self._base_context = contextvars.copy_context()

    def _on_suspension(self) -> None:
        """A handler keeps its slot: what waits needs others."""
        for _ in range(min(_WOKEN_AT_SUSPENSION, len(self._waiting) - self._woken)):
            self._wake()

    def _mark(self) -> int:
        """How many will wait when the others are to write next; -1 if too few wait for that."""
        waiting = len(self._waiting)
        left = waiting - max(_LEAST_PORTION, waiting // _PORTIONS)
        return left if left >= _LEAST_PORTION else -1

    async def _slot(self) -> None:  # noqa: C901, PLR0912 -- a call costs a job 0.1 us
        """Run what waits, one after the other. The guard is around the loop: there it is free."""
        now_ns, waiting, running = self._clock.monotonic_ns, self._waiting, self._running
        is_sure, on_begin = self._is_sure, self._on_begin
        handler, new_context = self._handler, self._base_context.copy
        slot = self._awake()
        turn_began, mark = now_ns(), self._mark()
        run: Run | None = None
        while True:
            try:
                while True:
                    if not waiting:
                        if not await self._has_work(slot):
                            return
                        turn_began, mark = now_ns(), self._mark()
                    run, began = waiting.popleft(), now_ns()
                    # By a clock that was just read: who stood still until here may have lost it.
                    if not is_sure(run.delivery.entry_id, began // 1_000):
                        self._doubt(run)
                        continue
                    if on_begin is not None:
                        on_begin(run)
                    running[run] = began
                    coroutine = context = waits_for = None
                    try:
                        # Most handlers never suspend, and end within this first step.
                        coroutine, context = handler(run), new_context()
                        try:
                            waits_for = context.run(coroutine.send, None)
                        except StopIteration as done:
                            value = done.value
                        else:
                            self._on_suspension()
                            value = await _Suspended(context, coroutine, waits_for)
                        outcome = _NOTHING if value is None else Ok(value)
                    except BaseException as error:  # noqa: BLE001 -- all it raises is an outcome
                        outcome = self._raised(run, error)
                    finally:
                        # An idle slot keeps nothing of the user's alive.
                        coroutine = context = waits_for = None
                        del running[run]
                        self.finished += 1
                        self._has_changed = True
                        if self._watcher is not None:
                            self.nudge()
                    ended = now_ns()
                    self._on_outcome(run, outcome, (ended - began) // 1_000)
                    if len(waiting) == mark or ended - turn_began > _TURN_NS or slot.cancelling():
                        await self._unhurt(slot, _others_write())
                        turn_began, mark = now_ns(), self._mark()
            except BaseException as error:  # noqa: BLE001 -- whatever it is, the slot goes on
                self._slipped(run, error)


async def _others_write() -> None:
    """Let everybody else have the loop, for as long as it takes to write to the server."""
    for _ in range(_TURNS_TO_WRITE):
        await asyncio.sleep(0)


class _Suspended(Awaitable[bytes | None]):
    """Drives a coroutine that waits for something on, inside its context, from a slot's task."""

    __slots__ = ("_context", "_coroutine", "_waits_for")

    def __init__(
        self,
        context: contextvars.Context,
        coroutine: Coroutine[Any, Any, bytes | None],
        waits_for: object,
    ) -> None:
        self._context = context
        self._coroutine = coroutine
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, bytes | None]:
        enter, coroutine, waits_for = self._context.run, self._coroutine, self._waits_for
        send, throw = coroutine.send, coroutine.throw
        try:
            while True:
                try:
                    value = yield waits_for
                except GeneratorExit:
                    enter(coroutine.close)
                    raise
                except BaseException as error:  # noqa: BLE001 -- the coroutine decides
                    waits_for = enter(throw, error)
                else:
                    waits_for = enter(send, value)
        except StopIteration as done:
            result: bytes | None = done.value
            return result
