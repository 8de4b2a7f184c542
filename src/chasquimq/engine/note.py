"""`Note`: a write on behalf of a running job that is on its way, and who waits for it."""

import asyncio
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from chasquimq.broker.call import Call
from chasquimq.errors import ChasquiError

T = TypeVar("T")


class Note(Generic[T]):
    """Await it, or `wait` for it in a thread, to know that it is stored.

    Whether or not anybody waits it is sent, and a failure is logged.
    """

    __slots__ = ("_done", "_on_stored", "_thread", "call")

    def __init__(
        self, call: Call[T], *, thread: int, on_stored: Callable[[], None] | None = None
    ) -> None:
        """`thread` is the one that writes: nobody may block it by waiting."""
        self.call = call
        self._thread = thread
        self._on_stored = on_stored
        self._done: Future[T] = Future()
        # A waiter that is cancelled does not cancel the write.
        self._done.set_running_or_notify_cancel()

    def __repr__(self) -> str:
        """Show whether it is still on its way."""
        return f"<Note {'ended' if self._done.done() else 'on its way'}>"

    def __await__(self) -> Generator[Any, None, T]:
        """What the server answered once it is stored; raises what kept it from being."""
        return asyncio.shield(asyncio.wrap_future(self._done)).__await__()

    def wait(self, timeout: float | None = None) -> T:
        """The same for plain functions in threads; `TimeoutError` after `timeout` seconds."""
        if threading.get_ident() == self._thread:
            msg = "this would block the event loop that has to write: await it instead"
            raise ChasquiError(msg)
        return self._done.result(timeout)

    def end(self, answer: T | ChasquiError) -> None:
        """Tell whoever waits how it ended."""
        if isinstance(answer, ChasquiError):
            self._done.set_exception(answer)
            return
        self._done.set_result(answer)
        if self._on_stored is not None:
            self._on_stored()
