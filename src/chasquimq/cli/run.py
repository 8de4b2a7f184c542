"""Runs what a command asks of a server: on an event loop, over the front door or the read side."""

import asyncio
import contextlib
import logging
import os
import stat
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from chasquimq.broker.call import Call, Steps
from chasquimq.broker.connection import Connection
from chasquimq.broker.options import ConnectionOptions
from chasquimq.broker.steps import drive
from chasquimq.cli.options import Session
from chasquimq.cli.place import shared_server
from chasquimq.queue import Queue

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """What the coroutine returns, run on a loop of its own.

    Errors pass through: `problems.exit_code_of` tells them, for all commands alike.
    """
    return asyncio.run(coroutine)


def run_until_stopped(coroutine: Coroutine[Any, Any, None]) -> None:
    """The same for what has no end of its own: Ctrl+C is how it ends, or that nobody reads it.

    What the library warns of meanwhile, a lost connection say, goes to stderr.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("chasqui: %(message)s"))
    handler.setLevel(logging.WARNING)
    logger = logging.getLogger("chasquimq")
    logger.addHandler(handler)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            run(_while_read(coroutine))
    finally:
        logger.removeHandler(handler)


async def _while_read(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run it, but no longer than somebody reads our output: then `BrokenPipeError`.

    Only a write would tell, and there may be nothing to write for hours. The writing end of a pipe
    becomes readable, in error, when the reading end is closed.
    """
    loop = asyncio.get_running_loop()
    work = loop.create_task(coroutine)
    pipe = _pipe_of_stdout()
    is_unread = False

    def stop(pipe: int) -> None:
        nonlocal is_unread
        is_unread = True
        loop.remove_reader(pipe)
        work.cancel()

    if pipe is not None:
        loop.add_reader(pipe, stop, pipe)
    try:
        await work
    except asyncio.CancelledError:
        if is_unread:
            raise BrokenPipeError from None
        raise
    finally:
        if pipe is not None:
            loop.remove_reader(pipe)


def _pipe_of_stdout() -> int | None:
    """Its descriptor, if it is a pipe: a terminal is readable when somebody types."""
    try:
        descriptor = sys.stdout.fileno()
        return descriptor if stat.S_ISFIFO(os.fstat(descriptor).st_mode) else None
    except (OSError, ValueError):
        return None


@asynccontextmanager
async def opened(
    session: Session, queue: str, group: str = "default", *, may_be_new: bool = False
) -> AsyncIterator[Queue]:
    """The queue, closed afterwards; its server may be made for it if it `may_be_new`."""
    shared_server(session.redis_url, may_be_new=may_be_new)
    async with Queue(queue, redis_url=session.redis_url, group=group) as open_queue:
        yield open_queue


class Reader:
    """Carries out calls of the read side (`broker/inspect.py`, `broker/survey.py`)."""

    def __init__(self, connection: Connection) -> None:
        """Ask over `connection`."""
        self._connection = connection

    async def ask(self, call: Call[T]) -> T:
        """The answer to one call."""
        return await self._connection.run(call)

    async def walk(self, steps: Steps[T]) -> T:
        """The answer to several calls, each chosen in the light of the one before."""
        return await drive(self._connection, steps)


@asynccontextmanager
async def reading(
    session: Session, slot_key: bytes = b"", *, may_be_new: bool = False
) -> AsyncIterator[Reader]:
    """A connection for reading, closed afterwards; `slot_key` is the queue's tag, for clusters."""
    target = shared_server(session.redis_url, may_be_new=may_be_new)
    connection = Connection(target, ConnectionOptions(), slot_key=slot_key)
    try:
        yield Reader(connection)
    finally:
        await connection.close()
