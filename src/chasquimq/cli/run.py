"""Runs what a command asks of a server: on an event loop, over the front door or the read side."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from chasquimq.broker.call import Call, Steps
from chasquimq.broker.connection import Connection
from chasquimq.broker.options import ConnectionOptions
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
    """The same for what has no end of its own: Ctrl+C is how it ends.

    What the library warns of meanwhile, a lost connection say, goes to stderr.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("chasqui: %(message)s"))
    handler.setLevel(logging.WARNING)
    logger = logging.getLogger("chasquimq")
    logger.addHandler(handler)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            run(coroutine)
    finally:
        logger.removeHandler(handler)


@asynccontextmanager
async def opened(session: Session, queue: str, group: str = "default") -> AsyncIterator[Queue]:
    """The queue, closed afterwards."""
    shared_server(session.redis_url)
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
        answer: Any = None
        try:
            while True:
                answer = await self._connection.run(steps.send(answer))
        except StopIteration as end:
            found: T = end.value
            return found


@asynccontextmanager
async def reading(session: Session, slot_key: bytes = b"") -> AsyncIterator[Reader]:
    """A connection for reading, closed afterwards; `slot_key` is the queue's tag, for clusters."""
    target = shared_server(session.redis_url)
    connection = Connection(target, ConnectionOptions(), slot_key=slot_key)
    try:
        yield Reader(connection)
    finally:
        await connection.close()
