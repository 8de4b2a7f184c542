"""`QueueEvents`: the events stream of a queue, as an async iterator or told to listeners."""

import asyncio
import logging
from collections import deque
from types import TracebackType
from typing import Self

from chasquimq.broker import events
from chasquimq.broker.connection import Connection
from chasquimq.broker.options import ConnectionOptions, CredentialProvider
from chasquimq.broker.url import parse_url
from chasquimq.errors import (
    ChasquiError,
    ConfigError,
    DecodeError,
    ServerTooOldError,
    ShutdownError,
)
from chasquimq.listeners import Listener, Listeners
from chasquimq.wire.event import EventName, QueueEvent
from chasquimq.wire.ids import StreamId
from chasquimq.wire.keys import QueueKeys

log = logging.getLogger("chasquimq.events")

_PAUSE_AFTER_ERROR_S = 0.2
# How long `run`, when it ends, waits for listeners that are asynchronous.
_DRAIN_S = 30.0

DEAD_LETTERED = "retries-exhausted"
"""Another name for `dlq`, which other bindings use."""
UNKNOWN = "unknown"
"""Told of events that this release does not know."""
ERROR = "error"
"""Told of what kept events from being read; reading goes on."""
_NAMES = (*EventName, DEAD_LETTERED, UNKNOWN, ERROR)


class QueueEvents:
    """What happens in a queue, in any process.

    Iterate to receive `QueueEvent` values, or register listeners and `run`. Events are kept up to a
    cap and written with best effort: they are for watching, not for bookkeeping. A broken
    connection is waited out; reading goes on after the last event seen.
    """

    def __init__(  # noqa: PLR0913 -- the documented arguments
        self,
        queue_name: str,
        *,
        redis_url: str | None = None,
        last_event_id: str = "$",
        block_ms: int = 5_000,
        count: int = 100,
        tls: bool = False,
        credential_provider: CredentialProvider | None = None,
    ) -> None:
        """Start after `last_event_id`: `$` for new events only, `0` for all that are kept."""
        for label, value in (("block_ms", block_ms), ("count", count)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                msg = f"{label} must be a whole number, 1 or more; got {value!r}"
                raise ValueError(msg)
        _check_place(last_event_id)
        self._keys = QueueKeys(queue_name)
        options = ConnectionOptions(credential_provider=credential_provider)
        target = parse_url(redis_url, tls=tls)
        self._connection = Connection(target, options, slot_key=self._keys.tag)
        self._after = last_event_id
        self._block_ms = block_ms
        self._count = count
        self._buffer: deque[QueueEvent] = deque()
        self._is_closed = False
        self._listeners = Listeners(_is_event, ", ".join(_NAMES) + ", or <event>:<job id>")

    def __repr__(self) -> str:
        """Show the queue and the place in its events."""
        return f"<QueueEvents {self._keys.name} after {self._after}>"

    async def wait_until_ready(self) -> None:
        """Connect and fix the place to start from.

        Every event after this is seen, by `run` or iteration.
        """
        if self._after == "$":
            self._after = await self._connection.run(events.last_id(self._keys))
        else:
            await self._connection.ready()

    def __aiter__(self) -> Self:
        """The iterator itself."""
        return self

    async def __anext__(self) -> QueueEvent:
        """The next event; ends when `close` is called."""
        while not self._buffer:
            if self._is_closed:
                raise StopAsyncIteration
            try:
                await self._fill()
            except ShutdownError:
                raise StopAsyncIteration from None
            except (ConfigError, ServerTooOldError):
                raise
            except ChasquiError as error:
                if self._connection.server is None:
                    raise
                log.warning("events of %s cannot be read: %s", self._keys.name, error)
                self._listeners.emit(ERROR, error)
                await asyncio.sleep(_PAUSE_AFTER_ERROR_S)
        return self._buffer.popleft()

    def on(self, event: str, listener: Listener) -> None:
        """Call `listener`, plain or async, with each `QueueEvent` of this name, while `run` runs.

        `completed:<job id>` is told of one job only. `retries-exhausted` is another name for `dlq`,
        `unknown` gets events that this release does not know, `error` gets exceptions.
        """
        self._listeners.on(event, listener)

    def once(self, event: str, listener: Listener) -> None:
        """Call `listener` the next time only."""
        self._listeners.on(event, listener, once=True)

    def off(self, event: str, listener: Listener) -> bool:
        """Take back an `on` or `once`; False if there was none."""
        return self._listeners.off(event, listener)

    async def run(self) -> None:
        """Read events and call listeners until `close`. Not beside an iteration: they would share.

        A listener that fails is logged; the others, and those to come, are called all the same.
        """
        try:
            async for event in self:
                self._tell(event)
        finally:
            await self._listeners.drain(_DRAIN_S)

    def _tell(self, event: QueueEvent) -> None:
        names = [event.name]
        if event.name == EventName.DLQ:
            names.append(DEAD_LETTERED)
        elif not _is_event(event.name):
            names.append(UNKNOWN)
        for name in names:
            self._listeners.emit(name, event)
            if event.job_id is not None:
                self._listeners.emit(f"{name}:{event.job_id}", event)

    async def close(self) -> None:
        """End the iteration and drop the connection. Idempotent."""
        self._is_closed = True
        self._buffer.clear()
        await self._connection.close()

    async def __aenter__(self) -> Self:
        """Connect, so that no event after this is missed."""
        await self.wait_until_ready()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        await self.close()

    async def _fill(self) -> None:
        await self.wait_until_ready()
        batch = await self._connection.run(
            events.read(self._keys, after=self._after, count=self._count, block_ms=self._block_ms)
        )
        if batch:
            self._after = batch[-1].event_id
            self._buffer.extend(batch)


def _is_event(name: str) -> bool:
    """Whether this, or what is before its colon, names an event."""
    return name.partition(":")[0] in _NAMES


def _check_place(last_event_id: str) -> None:
    """The server would refuse a bad id on every read, and reading would never begin."""
    if last_event_id == "$":
        return
    try:
        StreamId.parse(last_event_id)
    except (DecodeError, TypeError):
        msg = f"last_event_id must be '$', '0' or the id of an event, got {last_event_id!r}"
        raise ValueError(msg) from None
