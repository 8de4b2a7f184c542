"""Both kinds of connection behind one face, so that a scenario is written once."""

import asyncio
import select
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

from chasquimq.broker.blocking import BlockingConnection
from chasquimq.broker.call import Call
from chasquimq.broker.connection import Connection
from chasquimq.broker.options import ConnectionOptions, CredentialProvider
from chasquimq.broker.server import ServerInfo
from chasquimq.broker.url import parse_url
from tests.support.eventually import eventually

T = TypeVar("T")

FLAVOURS = ("asyncio", "blocking")

SLOT_KEY = b"{chasqui:connection-tests}"


class Caller(Protocol):
    """What the tests need of a connection."""

    async def run(self, call: Call[T]) -> T:
        """Carry out a call."""
        ...

    async def ready(self) -> ServerInfo:
        """Connect."""
        ...

    async def close(self) -> None:
        """Close."""
        ...

    async def hears_something(self) -> None:
        """Return when bytes that nobody asked for, or the end of the connection, have arrived."""
        ...


class _AsyncioCaller:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __repr__(self) -> str:
        return repr(self._connection)

    async def run(self, call: Call[T]) -> T:
        return await self._connection.run(call)

    async def ready(self) -> ServerInfo:
        return await self._connection.ready()

    async def close(self) -> None:
        await self._connection.close()

    async def hears_something(self) -> None:
        await eventually(lambda: "lost" in repr(self))


class _BlockingCaller:
    def __init__(self, connection: BlockingConnection) -> None:
        self._connection = connection

    def __repr__(self) -> str:
        return repr(self._connection)

    async def run(self, call: Call[T]) -> T:
        return await asyncio.to_thread(self._connection.run, call)

    async def ready(self) -> ServerInfo:
        return await asyncio.to_thread(self._connection.ready)

    async def close(self) -> None:
        await asyncio.to_thread(self._connection.close)

    async def hears_something(self) -> None:
        # It has no loop that would listen while nobody calls, so we look at its socket ourselves.
        link = self._connection._link  # noqa: SLF001
        assert link is not None
        sock = link._socket  # noqa: SLF001
        assert sock is not None
        await eventually(lambda: select.select([sock], [], [], 0)[0])


class Limits:
    """Short ones, so that a test of a failure takes no longer than it must."""

    connect_timeout_ms = 2_000
    response_timeout_ms = 2_000
    patience_ms = 5_000


def short_options(
    *,
    credential_provider: CredentialProvider | None = None,
    reconnect_max_attempts: int | None = None,
    connect_timeout_ms: int = Limits.connect_timeout_ms,
    response_timeout_ms: int = Limits.response_timeout_ms,
    patience_ms: int = Limits.patience_ms,
) -> ConnectionOptions:
    """Options for tests."""
    return ConnectionOptions(
        credential_provider=credential_provider,
        reconnect_max_attempts=reconnect_max_attempts,
        connect_timeout_ms=connect_timeout_ms,
        response_timeout_ms=response_timeout_ms,
        patience_ms=patience_ms,
    )


def connection(
    url: str, options: ConnectionOptions | None = None, *, slot_key: bytes = SLOT_KEY
) -> Connection:
    """An asyncio connection that the test closes."""
    return Connection(parse_url(url), options or short_options(), slot_key=slot_key)


def blocking_connection(
    url: str, options: ConnectionOptions | None = None, *, slot_key: bytes = SLOT_KEY
) -> BlockingConnection:
    """A blocking connection that the test closes."""
    return BlockingConnection(parse_url(url), options or short_options(), slot_key=slot_key)


@asynccontextmanager
async def callers(flavour: str) -> AsyncIterator[Callable[..., Caller]]:
    """`open_one(url, options=..., slot_key=...)`, as often as wanted; all are closed in the end."""
    opened: list[Caller] = []

    def open_one(
        url: str, options: ConnectionOptions | None = None, *, slot_key: bytes = SLOT_KEY
    ) -> Caller:
        caller: Caller
        if flavour == "asyncio":
            caller = _AsyncioCaller(connection(url, options, slot_key=slot_key))
        else:
            caller = _BlockingCaller(blocking_connection(url, options, slot_key=slot_key))
        opened.append(caller)
        return caller

    try:
        yield open_one
    finally:
        for caller in opened:
            await caller.close()
