"""One live socket under asyncio: ready bytes out, replies resolved in order.

Any number of callers share a link without locks. What is asked within one turn of the event loop
leaves in one write. A link never reconnects: when it is lost every caller is told, once, and
whoever owns it opens another.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import cast

from hiredis import HiredisError, Reader, ReplyError

from chasquimq.broker.call import Reply
from chasquimq.broker.insist import LinkLostError


class Pending:
    """A call on its way: how many replies it still wants, and who waits for them."""

    __slots__ = ("deadline", "future", "has_refusal", "replies", "wanted")

    def __init__(self, wanted: int, deadline: float, future: "asyncio.Future[list[Reply]]") -> None:
        """Expect `wanted` replies by `deadline`, by the event loop's clock."""
        self.wanted = wanted
        self.deadline = deadline
        self.future = future
        self.replies: list[Reply] = []
        self.has_refusal = False


class Link(asyncio.Protocol):
    """Requests out, replies in; a reply that stays away longer than promised ends the link."""

    def __init__(self, loop: asyncio.AbstractEventLoop, response_timeout_ms: int) -> None:
        """Made by `create_connection`; usable once the transport is there."""
        self._loop = loop
        self._response_timeout = response_timeout_ms / 1_000
        self._reader = Reader(notEnoughData=_NOTHING)
        self._pending: deque[Pending] = deque()
        self._outgoing: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._can_write = asyncio.Event()
        self._can_write.set()
        self.lost: Exception | None = None

    def __repr__(self) -> str:
        """Show whether the socket lives and how many calls wait on it."""
        state = f"lost: {self.lost}" if self.lost else "open"
        return f"<Link {state}, {len(self._pending)} pending>"

    def send(self, requests: Sequence[bytes], block_ms: int = 0) -> Pending:
        """Queue `requests` for this turn's write; await `.future` for the replies."""
        loop = self._loop
        future: asyncio.Future[list[Reply]] = loop.create_future()
        if self.lost is not None:
            future.set_exception(LinkLostError(str(self.lost)))
            return Pending(0, 0.0, future)
        deadline = loop.time() + self._response_timeout + block_ms / 1_000
        pending = Pending(len(requests), deadline, future)
        if not self._outgoing:
            loop.call_soon(self._flush)
        self._outgoing.extend(requests)
        self._pending.append(pending)
        if self._watch is None:
            self._watch = loop.call_at(deadline, self._check_deadline)
        return pending

    async def wait_writable(self) -> None:
        """Return once the socket's buffer has room, so that a fast producer cannot fill memory."""
        if not self._can_write.is_set():
            await self._can_write.wait()

    def abort(self, reason: str) -> None:
        """Drop the socket at once; every pending call ends with `LinkLostError`."""
        transport = self._transport
        self.connection_lost(ConnectionError(reason))
        if transport is not None:
            transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport (asyncio calls this)."""
        # A cast, not a check: uvloop's transports do not derive from asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell every caller, once (asyncio calls this)."""
        if self.lost is not None:
            return
        self.lost = exc or ConnectionError("the server closed the connection")
        self._can_write.set()
        self._outgoing.clear()
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        pending, self._pending = self._pending, deque()
        for each in pending:
            if not each.future.done():
                each.future.set_exception(LinkLostError(str(self.lost)))

    def pause_writing(self) -> None:
        """Hold producers back (asyncio calls this when the write buffer is full)."""
        self._can_write.clear()

    def resume_writing(self) -> None:
        """Let producers go on (asyncio calls this)."""
        self._can_write.set()

    def data_received(self, data: bytes) -> None:
        """Hand complete replies to their callers, in order (asyncio calls this)."""
        reader, queue = self._reader, self._pending
        try:
            reader.feed(data)
            while (reply := reader.gets()) is not _NOTHING:
                if not queue:
                    self.abort("a reply arrived that nobody asked for")
                    return
                pending = queue[0]
                pending.replies.append(reply)
                if reply.__class__ is ReplyError:
                    pending.has_refusal = True
                if len(pending.replies) == pending.wanted:
                    queue.popleft()
                    if not pending.future.done():
                        pending.future.set_result(pending.replies)
        except HiredisError as error:
            self.abort(f"the server does not speak RESP: {error}")

    def _flush(self) -> None:
        outgoing, self._outgoing = self._outgoing, []
        if outgoing and self._transport is not None:
            self._transport.write(b"".join(outgoing))

    def _check_deadline(self) -> None:
        self._watch = None
        if not self._pending:
            return
        # Replies come in order, so the head alone tells whether the server has gone quiet. A head
        # that blocks on purpose carries a later deadline of its own.
        deadline = self._pending[0].deadline
        if self._loop.time() >= deadline:
            self.abort(f"no reply within {self._response_timeout:g} s")
        else:
            self._watch = self._loop.call_at(deadline, self._check_deadline)


_NOTHING = object()
