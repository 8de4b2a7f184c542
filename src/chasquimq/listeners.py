"""Callbacks by event, for `Worker` and `QueueEvents`: called after the fact, in nobody's way.

A callback runs in a turn of the event loop of its own, never inside a job. What it raises is
logged. One that is asynchronous runs as a task; `drain` waits for those.
"""

import asyncio
import functools
import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

log = logging.getLogger("chasquimq.listeners")

Listener: TypeAlias = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class _Entry:
    listener: Listener
    is_once: bool


class Listeners:
    """Who wants to know of what. Belongs to one event loop once something is emitted."""

    def __init__(self, accepts: Callable[[str], bool], known: str) -> None:
        """`accepts` says which names are events; `known` lists them for whoever errs."""
        self._accepts = accepts
        self._known = known
        self.by_event: dict[str, list[_Entry]] = {}
        """Never replaced, so that whoever looks at it sees what comes and goes."""
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        """Show how many listen to what."""
        return f"<Listeners { {event: len(each) for event, each in self.by_event.items()} }>"

    def on(self, event: str, listener: Listener, *, once: bool = False) -> None:
        """Call `listener` on every `event`, or on the next one only."""
        if not self._accepts(event):
            msg = f"there is no event {event!r}: use one of {self._known}"
            raise ValueError(msg)
        if not callable(listener):
            msg = f"a listener must be a function, got {type(listener).__name__}"
            raise TypeError(msg)
        self.by_event.setdefault(event, []).append(_Entry(listener, once))

    def off(self, event: str, listener: Listener) -> bool:
        """Take back one `on`, the latest; False if there was none."""
        entries = self.by_event.get(event, [])
        for at in range(len(entries) - 1, -1, -1):
            if entries[at].listener == listener:
                del entries[at]
                if not entries:
                    del self.by_event[event]
                return True
        return False

    def count(self, event: str) -> int:
        """How many listen to `event`."""
        return len(self.by_event.get(event, ()))

    def emit(self, event: str, *arguments: object) -> None:
        """Let every listener of `event` be called soon, in the order they came."""
        entries = self.by_event.get(event)
        if not entries:
            return
        loop = asyncio.get_running_loop()
        for each in tuple(entries):
            if each.is_once:
                self.off(event, each.listener)
            loop.call_soon(self._call, event, each.listener, arguments)

    async def drain(self, timeout_s: float) -> None:
        """Return when every callback has ended; those that take longer are cancelled."""
        await asyncio.sleep(0)  # what was emitted in this turn has its own turn first
        if not self._tasks:
            return
        try:
            async with asyncio.timeout(timeout_s):
                while self._tasks:
                    await asyncio.wait(self._tasks)
        except TimeoutError:
            log.warning("%d listeners did not end within %g s and were cancelled",
                        len(self._tasks), timeout_s)  # fmt: skip
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks, timeout=1)

    def _call(self, event: str, listener: Listener, arguments: tuple[object, ...]) -> None:
        try:
            answer = listener(*arguments)
        except Exception:
            log.exception("a listener of %r failed; nothing else is affected", event)
            return
        if inspect.isawaitable(answer):
            task = asyncio.get_running_loop().create_task(_awaited(answer), name=f"on-{event}")
            self._tasks.add(task)
            task.add_done_callback(functools.partial(self._ended, event))

    def _ended(self, event: str, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a listener of %r failed; nothing else is affected", event, exc_info=error)


async def _awaited(answer: Awaitable[Any]) -> None:
    await answer
