"""Slots: tasks that wait for runs, in a fixed number, and how they wake, change, end and are cut.

What a slot does with a run is its kind's business: one after the other (`executor.py`), or many
together (`batch_executor.py`). Slots decide nothing: they report an `Outcome` for each run.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Protocol, TypedDict, Unpack

from chasquimq.clock import Clock
from chasquimq.engine.admission import Run
from chasquimq.engine.disposition import Outcome, Postponed
from chasquimq.engine.failure import failed
from chasquimq.engine.legible import legible
from chasquimq.errors import RateLimitError

log = logging.getLogger("chasquimq.engine")

# How long a cancelled handler may take to unwind before the stop goes on without it.
_CANCEL_GRACE_S = 1.0


class Parts(TypedDict):
    """What slots ask, and whom they tell; called on the event loop, so none of it may block."""

    clock: Clock
    is_sure: Callable[[bytes, int], bool]
    """Asked before a run begins: is the entry certainly ours at this time, in microseconds?"""
    on_doubt: Callable[[Run], None]
    """Given a run that is not, instead of its beginning."""
    on_begin: Callable[[Run], None] | None
    on_outcome: Callable[[Run, Outcome, int], None]
    """Told at the end of each run, with its microseconds."""
    on_slip: Callable[[Run], None]
    """Given a run that could not be begun, or settled, by a slip of ours: it is to be let go."""


class Slots:
    """Tasks, the runs that wait for one, and those that are in one."""

    def __init__(self, *, most: int, concurrency: int, **parts: Unpack[Parts]) -> None:
        """At most `most` tasks, together at most `concurrency` runs."""
        self._most = most
        self._concurrency = concurrency
        self._clock = parts["clock"]
        self._is_sure = parts["is_sure"]
        self._on_doubt = parts["on_doubt"]
        self._on_begin = parts["on_begin"]
        self._on_outcome = parts["on_outcome"]
        self._on_slip = parts["on_slip"]
        self._waiting: deque[Run] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._slots: list[asyncio.Task[None]] = []
        # Slots that were woken and have not had their turn yet.
        self._woken = 0
        self._running: dict[Run, int] = {}
        # An event of our own: to set asyncio's costs every job 0.3 us, whether anyone waits or not.
        self._has_changed = False
        self._watcher: asyncio.Future[None] | None = None
        self._is_ending = False
        self._is_cut = False
        self._patience: asyncio.Timeout | None = None
        self._cut_off: list[Run] = []
        self.finished = 0

    def __repr__(self) -> str:
        """Show live state."""
        slots = f"{len(self._running)}/{self._concurrency} slots"
        return f"<{type(self).__name__} {slots}, {len(self._waiting)} waiting>"

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
        return self._concurrency - len(self._running) - self.waiting

    def submit(self, runs: Iterable[Run]) -> None:
        """Queue runs; each starts as soon as a slot is free."""
        self._waiting.extend(runs)
        if self.waiting and not self._woken:
            self._wake()

    def _wake(self) -> None:
        """Let one more slot look for runs, if there is one that does nothing."""
        while self._idle:
            waiter = self._idle.popleft()
            if not waiter.done():
                waiter.set_result(None)
                self._woken += 1
                return
        if len(self._slots) < self._most and not self._is_ending:
            loop = asyncio.get_running_loop()
            self._slots.append(loop.create_task(self._slot(), name=f"slot-{len(self._slots)}"))
            self._woken += 1

    async def changed(self) -> None:
        """Return after a run has left its slot (at once, if one did since the last call)."""
        if not self._has_changed:
            self._watcher = asyncio.get_running_loop().create_future()
            try:
                await self._watcher
            finally:
                self._watcher = None
        self._has_changed = False

    def nudge(self) -> None:
        """Let `changed` return though nothing has."""
        self._has_changed = True
        if self._watcher is not None and not self._watcher.done():
            self._watcher.set_result(None)

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
        """Take what waits until `_has_work` says that no more will come."""
        raise NotImplementedError

    def _awake(self) -> "asyncio.Task[None]":
        """A slot begins: its own task."""
        slot = asyncio.current_task()
        assert slot is not None  # noqa: S101 -- a slot is a task
        self._woken -= 1
        return slot

    def _doubt(self, run: Run) -> None:
        """A run that is not certainly ours does not begin now."""
        self._on_doubt(run)
        self.nudge()

    def _raised(self, run: Run, error: BaseException) -> Outcome:
        """What it means that a handler raised this; raises it, if it is not meant for the job."""
        if isinstance(error, RateLimitError):
            return Postponed(error.retry_after_ms)
        if isinstance(error, Exception):
            return failed(error)
        if isinstance(error, asyncio.CancelledError) and self._is_cut:
            self._cut_off.append(run)
            raise error
        if isinstance(error, KeyboardInterrupt):
            raise error
        # It cancelled itself, or let a cancellation of its own making escape: a failure of this
        # job. So is a `sys.exit`, which must not end other jobs.
        return failed(error, is_panic=True)

    def _slipped(self, run: Run | None, error: BaseException) -> None:
        """Let go of a run that this kept from being begun or settled; raises what ends the slot.

        The job comes back when its lease is out. Held on to, it would never: leases are renewed.
        """
        is_stray = isinstance(error, asyncio.CancelledError) and not self._is_cut
        if not is_stray and not isinstance(error, Exception):
            raise error
        if run is None:
            log.error("a slot slipped and goes on", exc_info=error)
            return
        job_id = legible(run.envelope.id)
        log.error("job %s (%s) could not be settled and will run again", job_id, legible(run.name),
                  exc_info=error, extra={"job_id": job_id, "attempt": run.attempt})  # fmt: skip
        self._on_slip(run)
        self.nudge()

    async def _has_work(self, slot: "asyncio.Task[None]") -> bool:
        """Do nothing until a run waits; False if none will."""
        while not self.waiting:
            if self._is_ending:
                return False
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.append(waiter)
            await self._unhurt(slot, waiter)
            if waiter.done() and not waiter.cancelled():
                self._woken -= 1
        return True

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


class MakeSlots(Protocol):
    """Makes the slots of a worker."""

    def __call__(self, *, concurrency: int, **parts: Unpack[Parts]) -> Slots:
        """Slots for `concurrency` runs at a time."""
        ...
