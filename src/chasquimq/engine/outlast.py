"""`outlast`: waits for work that drains when the one who waits for it is cancelled."""

import asyncio
from collections.abc import Callable
from contextlib import suppress


async def outlast(work: "asyncio.Task[None]", stop: Callable[[], None]) -> None:
    """End as `work` does, and never before, however often the caller is cancelled meanwhile.

    A cancellation is not handed on to the work: the first calls `stop`, and is raised when the work
    has drained.
    """
    try:
        await asyncio.shield(work)
    except asyncio.CancelledError:
        stop()
        while not work.done():
            with suppress(asyncio.CancelledError):  # the first is raised below
                await asyncio.wait([work])
        if not work.cancelled():
            work.exception()  # seen: the cancellation is what the caller hears of
        raise
