"""Calls one function for many deliveries at once, in threads, a batch to a slot.

A run that is not its job's first comes alone: what made a batch fail drags nobody along twice.
Where both wait they take turns, in the order in which they came: neither keeps the other waiting.
"""

import asyncio
import functools
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TypeAlias, Unpack

from chasquimq.engine.admission import Run
from chasquimq.engine.disposition import Outcome
from chasquimq.engine.slots import Parts, Slots
from chasquimq.engine.threads import Threads

BatchHandler: TypeAlias = Callable[[Sequence[Run]], Sequence[Outcome]]
"""Blocking; says what became of each, in their order. What it raises became of all of them."""

# A batch that is not full goes after this long.
_WAIT_S = 0.02


class BatchExecutor(Slots):
    """A slot for each batch that may run at a time."""

    def __init__(
        self, handler: BatchHandler, *, size: int, concurrency: int, **parts: Unpack[Parts]
    ) -> None:
        """Batches of at most `size`, as many at a time as `concurrency` runs are."""
        at_a_time = max(1, concurrency // size)
        super().__init__(most=at_a_time, concurrency=concurrency, **parts)
        self._handler = handler
        self._size = size
        self._threads = Threads(at_a_time, name="batch")
        self._alone: deque[Run] = deque()
        self._is_turn_of_alone = True
        # Set while a slot waits for its batch to become full.
        self._filling: asyncio.Future[None] | None = None

    @property
    def waiting(self) -> int:
        """How many runs wait for a slot, alone or not."""
        return len(self._waiting) + len(self._alone)

    def submit(self, runs: Iterable[Run]) -> None:
        """Queue runs; each starts as soon as it has a slot, alone or with others."""
        for run in runs:
            (self._alone if run.attempt > 1 else self._waiting).append(run)
        if self._filling is None:
            super().submit(())
        elif self._is_enough() and not self._filling.done():
            self._filling.set_result(None)

    def take_waiting(self) -> list[Run]:
        """Take back every run that was not started."""
        alone = list(self._alone)
        self._alone.clear()
        return [*alone, *super().take_waiting()]

    def cut(self) -> None:
        """Cancel what runs, now; its thread, which nothing can cancel, is left behind."""
        super().cut()
        self._threads.close()

    async def _slot(self) -> None:
        slot = self._awake()
        while await self._has_work(slot):
            await self._unhurt(slot, self._filled())
            batch = self._next()
            if self.waiting:
                self._wake()
            if begun := self._begun(batch):
                await self._run(begun)
            del batch, begun  # an idle slot keeps nothing of the user's alive

    async def _filled(self) -> None:
        """Wait until a batch is full, but not for long."""
        if self._is_enough() or self._filling is not None:
            return
        self._filling = asyncio.get_running_loop().create_future()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_WAIT_S):
                    await self._filling
        finally:
            self._filling = None

    def _is_enough(self) -> bool:
        return len(self._waiting) >= self._size or bool(self._alone)

    def _next(self) -> list[Run]:
        waiting = self._waiting
        if self._alone and (self._is_turn_of_alone or not waiting):
            self._is_turn_of_alone = False
            return [self._alone.popleft()]
        self._is_turn_of_alone = True
        return [waiting.popleft() for _ in range(min(self._size, len(waiting)))]

    def _begun(self, batch: list[Run]) -> list[Run]:
        """Those of a batch that are certainly ours; they run from now on."""
        began = self._clock.monotonic_ns()
        begun = []
        for run in batch:
            try:
                if not self._is_sure(run.delivery.entry_id, began // 1_000):
                    self._doubt(run)
                    continue
                if self._on_begin is not None:
                    self._on_begin(run)
            except BaseException as error:  # noqa: BLE001 -- whatever it is, the others go on
                self._slipped(run, error)
                continue
            self._running[run] = began
            begun.append(run)
        return begun

    async def _run(self, runs: list[Run]) -> None:
        began = self._running[runs[0]]
        outcomes: Sequence[Outcome]
        try:
            outcomes = await self._threads.run(functools.partial(self._handler, runs))
            if len(outcomes) != len(runs):
                msg = f"{len(outcomes)} outcomes were told of {len(runs)} runs"
                raise ValueError(msg)  # noqa: TRY301 -- as if the handler had raised it
        except BaseException as error:  # noqa: BLE001 -- whatever it raises is an outcome
            if isinstance(error, asyncio.CancelledError) and self._is_cut:
                self._cut_off += runs[1:]
            outcomes = [self._raised(runs[0], error)] * len(runs)
        finally:
            for run in runs:
                del self._running[run]
            self.finished += len(runs)
            self.nudge()
        # Each has its share: as much as all of them took is what the batch cost, not each.
        took_us = (self._clock.monotonic_ns() - began) // 1_000 // len(runs)
        for run, outcome in zip(runs, outcomes, strict=True):
            try:
                self._on_outcome(run, outcome, took_us)
            except BaseException as error:  # noqa: BLE001 -- whatever it is, the others are settled
                self._slipped(run, error)
