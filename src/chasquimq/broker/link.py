"""One live socket under asyncio: ready bytes out, replies resolved in order.

Any number of callers share a link without locks. What is asked within one turn of the event loop
leaves in one write. A link never reconnects: when it is lost every caller is told, once, and
whoever owns it opens another.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import cast

from hiredis import Reader, ReplyError

from chasquimq.broker import access
from chasquimq.broker.access import (
    CLOSED_BY_SERVER,
    NOT_RESP,
    UNREADABLE,
    LinkLostError,
    is_boastful,
    loss_text,
    silence_text,
    size_text,
    stray_text,
)
from chasquimq.broker.call import Reply


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
        # How many calls, the last of the pending, are still in `_outgoing`.
        self._unsent = 0
        self._transport: asyncio.Transport | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._heard_at = 0.0
        # Bytes of a reply that has not come to its end.
        self._unended = 0
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._retired: str | None = None
        self.is_greeted = False
        self.lost: str | None = None

    def __repr__(self) -> str:
        """Show whether the socket lives and how many calls wait on it."""
        state = f"lost: {self.lost}" if self.lost else "open"
        return f"<Link {state}, {len(self._pending)} pending>"

    def send(self, requests: Sequence[bytes], block_ms: int = 0) -> Pending:
        """Queue `requests` for this turn's write; await `.future` for the replies."""
        loop = self._loop
        future: asyncio.Future[list[Reply]] = loop.create_future()
        if self.lost is not None:
            future.set_exception(LinkLostError(self.lost, sent=False))
            return Pending(0, 0.0, future)
        if not requests:
            future.set_result([])
            return Pending(0, 0.0, future)
        deadline = loop.time() + self._response_timeout + block_ms / 1_000
        pending = Pending(len(requests), deadline, future)
        if not self._outgoing:
            loop.call_soon(self._flush)
        self._outgoing.extend(requests)
        self._unsent += 1
        self._pending.append(pending)
        if self._watch is None:
            self._watch = loop.call_at(deadline, self._check_deadline)
        return pending

    async def wait_writable(self) -> None:
        """Return once the socket's buffer has room, so that a fast producer cannot fill memory."""
        if not self._can_write.is_set():
            await self._can_write.wait()

    def retire(self, reason: str) -> None:
        """Close as soon as the replies that are still owed to others have come."""
        self._retired = reason
        if not self._pending:
            self.abort(reason)

    def abort(self, reason: str) -> None:
        """Drop the socket at once; every pending call ends with `LinkLostError`."""
        self._lose(reason)
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport (asyncio calls this)."""
        # A cast and no check: the transports of uvloop do not derive from asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell every caller, once (asyncio calls this)."""
        self._lose(str(exc or "") or CLOSED_BY_SERVER)

    def eof_received(self) -> None:
        """Tell every caller now: what is sent from here on would be lost (asyncio calls this)."""
        self._lose(CLOSED_BY_SERVER)

    def pause_writing(self) -> None:
        """Hold producers back (asyncio calls this when the write buffer is full)."""
        self._can_write.clear()

    def resume_writing(self) -> None:
        """Let producers go on (asyncio calls this)."""
        self._can_write.set()

    def data_received(self, data: bytes) -> None:
        """Hand complete replies to their callers, in order (asyncio calls this)."""
        reader, queue = self._reader, self._pending
        has_heard = False
        try:
            reader.feed(b"" if not self.is_greeted and self._is_unfit(data) else data)
            while (reply := reader.gets()) is not _NOTHING:
                if not queue:
                    self.abort(stray_text(reply))
                    return
                has_heard = True
                pending = queue[0]
                pending.replies.append(reply)
                if reply.__class__ is ReplyError:
                    pending.has_refusal = True
                if len(pending.replies) == pending.wanted:
                    queue.popleft()
                    if not pending.future.done():
                        pending.future.set_result(pending.replies)
        except UNREADABLE as error:
            self.abort(f"{NOT_RESP}: {error}")
            return
        if has_heard:
            self._unended = 0
            self._heard_at = self._loop.time()
            if self._retired is not None and not queue:
                self.abort(self._retired)
        else:
            self._count_unended(len(data))
            if self.is_greeted:
                # Who is amid a long reply is not silent, however slow the way is.
                self._heard_at = self._loop.time()

    def _is_unfit(self, data: bytes) -> bool:
        if is_boastful(data):
            self.abort(NOT_RESP)
        return self.lost is not None

    def _count_unended(self, size: int) -> None:
        self._unended += size
        if self._unended > access.MOST_REPLY_BYTES:
            self._lose(size_text(), too_large=True)
            self.abort("")

    def _lose(self, reason: str, *, too_large: bool = False) -> None:
        if self.lost is not None:
            return
        pending, self._pending = self._pending, deque()
        self.lost = loss_text(reason, pending[0].replies) if pending else reason
        self._can_write.set()
        self._outgoing.clear()
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        sent = len(pending) - self._unsent
        for position, each in enumerate(pending):
            if not each.future.done():
                each.future.set_exception(
                    LinkLostError(
                        self.lost, sent=position < sent, too_large=too_large and position == 0
                    )
                )

    def _flush(self) -> None:
        if not self._outgoing or self._transport is None:
            return
        if self._transport.is_closing():
            # The socket broke in this very turn and `connection_lost` is on its way: what has not
            # been written yet can be sent again, whatever it is.
            self._lose("the connection broke")
            return
        outgoing, self._outgoing = self._outgoing, []
        self._unsent = 0
        self._transport.write(b"".join(outgoing))

    def _check_deadline(self) -> None:
        self._watch = None
        if not self._pending:
            return
        # Replies come in order, so the head alone tells whether the server has gone quiet. A head
        # that blocks on purpose carries a later deadline of its own; one that had to wait for
        # those before it gets its time from the last that was heard on.
        deadline = max(self._pending[0].deadline, self._heard_at + self._response_timeout)
        if self._loop.time() >= deadline:
            self.abort(silence_text(self._response_timeout))
        else:
            self._watch = self._loop.call_at(deadline, self._check_deadline)


_NOTHING = object()
