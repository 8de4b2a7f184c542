"""`BlockingConnection`: the synchronous twin of `Connection`, for threads without an event loop.

Used by the lease thread, by `SyncQueue` and by Spark executors. It sends the same calls and takes
the same decisions (`insist.py`, `access.py`); only the waiting differs. A lock lets threads share
it. After a fork the child drops the inherited socket and opens its own.
"""

import asyncio
import os
import threading
import weakref
from collections.abc import Generator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Any, TypeVar

from hiredis import ReplyError

from chasquimq.broker.access import (
    CLOSED_BY_US,
    Access,
    Dial,
    FetchCredentials,
    LinkLostError,
    Pause,
    Talk,
    overdue,
)
from chasquimq.broker.blocking_link import BlockingLink
from chasquimq.broker.call import Call, Reply, understood
from chasquimq.broker.embedded_use import EmbeddedUse
from chasquimq.broker.insist import Action, Conduct, Exchange, Leave
from chasquimq.broker.options import ConnectionOptions, provided_credentials, ssl_context
from chasquimq.broker.server import Credentials, ServerInfo
from chasquimq.broker.url import Address, Target, TargetKind
from chasquimq.clock import monotonic_s
from chasquimq.errors import ChasquiError, ConnectionFailedError

T = TypeVar("T")


class BlockingConnection:
    """One connection for threads; calls from several threads take turns."""

    def __init__(
        self,
        target: Target,
        options: ConnectionOptions,
        *,
        slot_key: bytes,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """Nothing is opened before the first call.

        A credential provider is asynchronous: it is run on `loop`, the one it belongs to, or on a
        loop of its own if there is none.
        """
        self._target = target
        self._options = options
        self._loop = loop
        self._access: Access[BlockingLink] = Access(target, options, slot_key=slot_key)
        self._conduct = Conduct(self._access)
        self._forget_sockets()
        _connections.add(self)

    def __repr__(self) -> str:
        """Show where it leads and whether it is up; never a secret."""
        return f"<BlockingConnection {self._target.safe_text} {self._link or 'not open'}>"

    @property
    def server(self) -> ServerInfo | None:
        """What the server can do; None before the first call."""
        return self._access.server

    @property
    def reconnects(self) -> int:
        """How often the connection came back after a break."""
        return self._access.reconnects

    def ready(self) -> ServerInfo:
        """Open the connection if need be and say what the server can do."""
        deadline = self._take_turn()
        try:
            self._live_link(deadline)
        finally:
            self._lock.release()
        assert self._access.server is not None  # noqa: S101 -- set by every successful opening
        return self._access.server

    def run(self, call: Call[T]) -> T:
        """Carry out `call` and return what its replies mean."""
        deadline = self._take_turn()
        try:
            first = self._first_try(call)
            if isinstance(first, list) and not any(type(each) is ReplyError for each in first):
                return understood(call, first)
            steps = self._conduct.insist(call, first)
            replies = self._go_on(steps, deadline)
        finally:
            self._lock.release()
        while isinstance(replies, Pause):
            replies = self._after(replies, steps, deadline)
        return understood(call, replies)

    def close(self) -> None:
        """Drop the socket. Idempotent; a call that waits in another thread ends with an error."""
        self._closed.set()
        for link in list(self._links):
            link.interrupt()
        with self._lock:
            self._drop(CLOSED_BY_US)
            self._embedded.end()

    def reopen(self) -> None:
        """Allow calls again after `close`."""
        self._closed.clear()

    def forked(self) -> None:
        """Forget, in a forked child, what is the parent's; its socket stays open there."""
        for link in self._links:
            link.abort("it belongs to the parent process")
        self._forget_sockets()

    def _forget_sockets(self) -> None:
        # New locks too: after a fork the old ones may be held by a thread that is not there.
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._embedded = EmbeddedUse(self._target.directory)
        self._link: BlockingLink | None = None
        # Every link with an open socket, for `close` in another thread.
        self._links: list[BlockingLink] = []

    def _take_turn(self, deadline: float | None = None) -> float:
        """Wait for the other threads; the deadline of the call counts from before that."""
        now = monotonic_s()
        if deadline is None:
            deadline = now + self._options.patience_ms / 1_000
        if not self._lock.acquire(timeout=max(0.0, deadline - now)):
            raise self._access.out_of_patience()
        return deadline

    def _first_try(self, call: Call[T]) -> list[Reply] | LinkLostError | None:
        """How the call went over the link that is open, if one is."""
        if self._link is None or self._link.lost is not None:
            return None
        timeout_ms = self._options.response_timeout_ms + call.block_ms
        try:
            return self._link.exchange(call.requests, timeout_ms / 1_000)
        except LinkLostError as lost:
            return lost

    def _carry_out(self, steps: Generator[Action[BlockingLink], Any, T], deadline: float) -> T:
        result = self._go_on(steps, deadline)
        assert not isinstance(result, Pause)  # noqa: S101 -- who opens a link stands apart from none
        return result

    def _go_on(
        self, steps: Generator[Action[BlockingLink], Any, T], deadline: float
    ) -> "T | Pause":
        """Begin, or go on after a pause apart, until there is a result or another such pause."""
        try:
            action = steps.send(None)
            while not (isinstance(action, Pause) and action.is_apart):
                try:
                    answer = self._do(action, deadline)
                except (LinkLostError, ChasquiError, OSError, UnicodeError) as error:
                    action = steps.throw(error)
                else:
                    action = steps.send(answer)
        except StopIteration as done:
            result: T = done.value
            return result
        except BaseException:
            steps.close()
            raise
        return action

    def _after(
        self, pause: Pause, steps: Generator[Action[BlockingLink], Any, T], deadline: float
    ) -> "T | Pause":
        """Let others have the link for a while, who may be answered what we are refused; go on."""
        try:
            self._closed.wait(min(pause.ms / 1_000, self._left(deadline)))
            self._take_turn(deadline)
        except ChasquiError as error:
            steps.throw(error)  # which makes of it what is true of the call
            raise
        try:
            return self._go_on(steps, deadline)
        finally:
            self._lock.release()

    def _do(self, action: Action[BlockingLink], deadline: float) -> object:
        match action:
            case Exchange(requests, block_ms):
                timeout_ms = self._options.response_timeout_ms + block_ms
                return self._live_link(deadline).exchange(requests, timeout_ms / 1_000)
            case Leave(reason):
                self._drop(reason)
                return None
            case Pause(ms, _):
                self._closed.wait(min(ms / 1_000, self._left(deadline)))
                return None
            case Dial() | Talk() | FetchCredentials():
                timeout_s = min(self._options.connect_timeout_ms / 1_000, self._left(deadline))
                try:
                    return self._in_time(action, timeout_s)
                except (OSError, LinkLostError) as error:
                    if self._closed.is_set():
                        raise self._access.shut() from None
                    if isinstance(error, TimeoutError) and not isinstance(action, Talk):
                        raise overdue(action, timeout_s) from None
                    raise

    def _left(self, deadline: float) -> float:
        """The seconds that a call may still wait; raises if there are none."""
        if self._closed.is_set():
            raise self._access.shut()
        left_s = deadline - monotonic_s()
        if left_s <= 0:
            raise self._access.out_of_patience()
        return left_s

    def _live_link(self, deadline: float) -> BlockingLink:
        if self._link is None or self._link.lost is not None:
            self._left(deadline)
            self._drop("lost")
            self._link = self._carry_out(self._access.link(), deadline)
        return self._link

    def _drop(self, reason: str) -> None:
        self._link = None
        for link in self._links:
            link.abort(reason)
        self._links = []

    def _in_time(
        self, step: Dial | Talk[BlockingLink] | FetchCredentials, timeout_s: float
    ) -> object:
        match step:
            case Dial(address):
                return self._dial(address, timeout_s)
            case Talk(link, requests):
                return link.exchange(requests, timeout_s)
            case FetchCredentials(endpoint):
                return self._fetch_credentials(endpoint, timeout_s)

    def _dial(self, address: Address | None, timeout_s: float) -> BlockingLink:
        link = BlockingLink()
        self._links = [each for each in self._links if each.lost is None]
        self._links.append(link)
        if self._closed.is_set():
            # Asked after the link was put where `close` looks: one of the two sees the other.
            raise self._access.shut()
        try:
            if address is None:
                path = self._target.path
                if self._target.kind is TargetKind.EMBEDDED:
                    path = self._embedded.renew()
                link.connect_to_path(path or "", timeout_s)
            else:
                tls = self._target.tls
                name = (tls.server_name or address.host) if tls else ""
                link.connect(address, timeout_s, (ssl_context(tls), name) if tls else None)
        except BaseException:
            link.abort("it could not be opened")
            raise
        return link

    def _fetch_credentials(self, endpoint: str | None, timeout_s: float) -> Credentials:
        provider = self._options.credential_provider
        assert provider is not None  # noqa: S101 -- or nobody would ask

        async def fetch() -> Credentials:
            async with asyncio.timeout(timeout_s):
                return await provided_credentials(provider, endpoint)

        try:
            if self._loop is not None and self._loop.is_running():
                asked = asyncio.run_coroutine_threadsafe(fetch(), self._loop)
                try:
                    return asked.result(timeout_s)
                except TimeoutError:
                    asked.cancel()
                    raise
            # In a thread of its own, because this one may be running an event loop already.
            with ThreadPoolExecutor(1, "chasquimq-credentials") as thread:
                return thread.submit(asyncio.run, fetch()).result()
        except (CancelledError, asyncio.CancelledError) as error:
            # Of the task that asks, by the provider itself or because its loop ends: not of ours.
            msg = "credential_provider was cancelled before it answered"
            raise ConnectionFailedError(msg) from error


_connections: weakref.WeakSet[BlockingConnection] = weakref.WeakSet()


def _after_fork() -> None:
    for connection in list(_connections):
        connection.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
