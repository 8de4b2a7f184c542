"""Wait for a fact that another process or thread brings about.

Inside one event loop nothing needs this: step a role, await an event, ask the metrics sink. It is
for what cannot be awaited, such as a killed process letting go of its port. It returns as soon as
the fact holds, so a generous timeout costs nothing.
"""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

T = TypeVar("T")

FIRST_WAIT_SECS = 0.001
LONGEST_WAIT_SECS = 0.05


async def eventually(predicate: Callable[[], T | Awaitable[T]], timeout: float = 10.0) -> T:
    """Return the first truthy answer of `predicate`, plain or async, or fail after `timeout` s."""
    deadline = time.monotonic() + timeout
    for wait_secs in _waits():
        answer = predicate()
        result = await answer if inspect.isawaitable(answer) else answer
        if result:
            return result
        _check(deadline, timeout, result)
        await asyncio.sleep(wait_secs)
    raise AssertionError  # the waits never end


def eventually_sync(predicate: Callable[[], T], timeout: float = 10.0) -> T:
    """Do the same for tests and fixtures without an event loop."""
    deadline = time.monotonic() + timeout
    for wait_secs in _waits():
        result = predicate()
        if result:
            return result
        _check(deadline, timeout, result)
        time.sleep(wait_secs)
    raise AssertionError  # the waits never end


def _waits() -> Iterator[float]:
    wait_secs = FIRST_WAIT_SECS
    while True:
        yield wait_secs
        wait_secs = min(wait_secs * 2, LONGEST_WAIT_SECS)


def _check(deadline: float, timeout: float, last: object) -> None:
    if time.monotonic() > deadline:
        message = f"still not so after {timeout} s; the last answer was {last!r}"
        raise AssertionError(message)
