"""Runs plain functions in threads, for handlers that are not coroutine functions.

Unlike those of `concurrent.futures` these threads never keep a process alive: a stop that has cut
off a handler must not hang because its thread, which nothing can cancel, goes on.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any


@dataclass(frozen=True, slots=True)
class _Call:
    """A function to call, and who waits for what comes of it."""

    function: Callable[[], Any]
    done: "asyncio.Future[tuple[Any, BaseException | None]]"
    loop: asyncio.AbstractEventLoop


class Threads:
    """At most `most` threads, started when they are needed."""

    def __init__(self, most: int, *, name: str) -> None:
        """No thread is started before the first call."""
        self._most = most
        self._name = name
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._count = 0

    def __repr__(self) -> str:
        """Show how many there are."""
        return f"<Threads {self._name}, {self._count} of {self._most}>"

    async def run(self, function: Callable[[], Any]) -> Any:  # noqa: ANN401 -- the handler's value
        """What `function` returns or raises; cancelling the wait does not end the thread."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
        self._calls.put(_Call(function, done, loop))
        if not self._idle.acquire(blocking=False) and self._count < self._most:
            self._count += 1
            threading.Thread(
                target=self._serve, name=f"{self._name}-{self._count}", daemon=True
            ).start()
        value, error = await done
        if error is not None:
            raise error
        return value

    def close(self) -> None:
        """Let every thread end: an idle one now, a busy one when its call returns."""
        for _ in range(self._count):
            self._calls.put(None)

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            value, error = None, None
            try:
                value = call.function()
            except BaseException as raised:  # noqa: BLE001 -- it is raised where the call was made
                error = raised
            # Idle before it is told: who then calls again must not start another thread.
            self._idle.release()
            # The pair travels as a value: a StopIteration cannot be raised into a future.
            with suppress(RuntimeError):  # the loop may be gone
                call.loop.call_soon_threadsafe(_resolve, call.done, (value, error))
            del call, value, error


def _resolve(
    done: "asyncio.Future[tuple[Any, BaseException | None]]",
    outcome: tuple[Any, BaseException | None],
) -> None:
    if not done.done():
        done.set_result(outcome)
