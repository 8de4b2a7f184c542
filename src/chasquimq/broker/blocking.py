"""`BlockingConnection`: the synchronous twin of `Connection`, for threads without an event loop.

Used by the lease thread, by `SyncQueue` and by Spark executors. It sends the same calls and takes
the same decisions (`insist.py`); only the waiting differs. A lock lets threads share it. After a
fork the child drops the inherited socket and opens its own.
"""

import asyncio
import contextlib
import os
import socket
import threading
import time
from typing import TypeVar

from hiredis import HiredisError, Reader

from chasquimq.broker import embedded
from chasquimq.broker.call import Call, Reply
from chasquimq.broker.insist import (
    AskAt,
    Conduct,
    Exchange,
    Insisting,
    Leave,
    LinkLostError,
    Pause,
)
from chasquimq.broker.options import (
    ConnectionOptions,
    provided_credentials,
    ssl_context,
    url_credentials,
)
from chasquimq.broker.server import Credentials, ServerInfo, login
from chasquimq.broker.topology import Ask
from chasquimq.broker.url import Address, Target, TargetKind
from chasquimq.errors import ChasquiError, ConnectionFailedError, RedisError, ShutdownError

T = TypeVar("T")

_CHUNK = 65_536
_NOTHING = object()


class BlockingLink:
    """One live socket: send requests, wait for as many replies."""

    def __init__(self, sock: socket.socket, response_timeout_ms: int) -> None:
        """Take over a connected socket."""
        self._socket = sock
        self._timeout = response_timeout_ms / 1_000
        self._reader = Reader(notEnoughData=_NOTHING)

    def exchange(self, requests: list[bytes], block_ms: int = 0) -> list[Reply]:
        """Send and wait; `LinkLostError` when the server stays silent or the socket breaks."""
        replies: list[Reply] = []
        try:
            self._socket.settimeout(self._timeout + block_ms / 1_000)
            self._socket.sendall(b"".join(requests))
            while len(replies) < len(requests):
                reply = self._reader.gets()
                if reply is not _NOTHING:
                    replies.append(reply)
                    continue
                data = self._socket.recv(_CHUNK)
                if not data:
                    msg = "the server closed the connection"
                    raise LinkLostError(msg)
                self._reader.feed(data)
        except (OSError, HiredisError) as error:
            self.close()
            raise LinkLostError(str(error) or type(error).__name__) from error
        return replies

    def close(self) -> None:
        """Drop the socket."""
        self._socket.close()

    def interrupt(self) -> None:
        """End an exchange that another thread is waiting in."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


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
        self._conduct = Conduct(target, options, slot_key=slot_key)
        self._target = target
        self._options = options
        self._loop = loop
        self._lock = threading.Lock()
        self._link: BlockingLink | None = None
        self._pid = os.getpid()
        self._closed = threading.Event()

    def __repr__(self) -> str:
        """Show where it leads and whether it is up; never a secret."""
        state = "open" if self._link else "not open"
        return f"<BlockingConnection {self._target.safe_text} {state}>"

    def ready(self) -> ServerInfo:
        """Open the connection if need be and say what the server can do."""
        with self._lock:
            self._live_link(self._deadline())
        assert self._conduct.server is not None  # noqa: S101 -- set by every successful opening
        return self._conduct.server

    def run(self, call: Call[T]) -> T:
        """Carry out `call` and return what its replies mean."""
        with self._lock:
            replies = self._drive(self._conduct.insist(call, None))
        return call.parse(replies)

    def close(self) -> None:
        """Drop the socket. Idempotent; a call that waits in another thread ends with an error."""
        self._closed.set()
        link = self._link
        if link is not None:
            link.interrupt()
        with self._lock:
            self._leave()

    def reopen(self) -> None:
        """Allow calls again after `close`."""
        self._closed.clear()

    def _drive(self, steps: Insisting) -> list[Reply]:
        deadline = self._deadline()
        outcome: list[Reply] | None = None
        try:
            action = next(steps)
            while True:
                try:
                    match action:
                        case Exchange(requests, block_ms):
                            link = self._live_link(deadline)
                            outcome = link.exchange(list(requests), block_ms)
                        case AskAt(address, requests):
                            outcome = self._ask(address, list(requests))
                        case Leave():
                            self._leave()
                        case Pause(ms):
                            self._pause(ms, deadline)
                except LinkLostError as lost:
                    self._leave()
                    action = steps.throw(lost)
                else:
                    action = steps.send(outcome)
        except StopIteration as done:
            replies: list[Reply] = done.value
            return replies

    def _ask(self, address: Address, requests: list[bytes]) -> list[Reply]:
        link, _ = self._open(address)
        try:
            return link.exchange(requests)
        finally:
            link.close()

    def _leave(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def _deadline(self) -> float:
        return time.monotonic() + self._options.patience_ms / 1_000

    def _pause(self, ms: float, deadline: float) -> None:
        if time.monotonic() >= deadline:
            raise self._conduct.out_of_patience()
        self._closed.wait(ms / 1_000)

    def _live_link(self, deadline: float) -> BlockingLink:
        if self._pid != os.getpid():
            self._leave()
            self._pid = os.getpid()
        attempt = 0
        while self._link is None:
            if self._closed.is_set():
                msg = f"the connection to {self._target.safe_text} was closed"
                raise ShutdownError(msg)
            attempt += 1
            try:
                address = self._discover()
                link, info = self._open(address)
                try:
                    self._conduct.accept(address, info)
                except ConnectionFailedError:
                    link.close()
                    raise
                self._link = link
            except (ChasquiError, OSError) as error:
                self._pause(self._conduct.pause_after_failure(error, attempt), deadline)
        return self._link

    def _discover(self) -> Address | None:
        if self._target.kind in (TargetKind.UNIX, TargetKind.EMBEDDED):
            return None
        steps = self._conduct.topology.discover()
        try:
            ask = next(steps)
            while True:
                try:
                    answer = self._question(ask)
                except (RedisError, OSError) as error:
                    ask = steps.throw(error)
                else:
                    ask = steps.send(answer)
        except StopIteration as found:
            address: Address = found.value
            return address

    def _question(self, ask: Ask) -> object:
        link = self._socket(ask.address)
        try:
            opening = login(self._credentials(ask.address, for_sentinel=True))
            replies = link.exchange([*opening, *ask.call.requests])
            return ask.call.parse(replies[len(opening) :])
        except LinkLostError as lost:
            raise ConnectionFailedError(str(lost)) from None
        finally:
            link.close()

    def _open(self, address: Address | None) -> tuple[BlockingLink, ServerInfo]:
        link = self._socket(address)
        try:
            greeting = self._conduct.greeting(self._credentials(address))
            return link, greeting.parse(link.exchange(list(greeting.requests)))
        except LinkLostError as lost:
            raise ConnectionFailedError(str(lost)) from None
        except BaseException:
            link.close()
            raise

    def _credentials(
        self, address: Address | None, *, for_sentinel: bool = False
    ) -> Credentials | None:
        if for_sentinel and self._target.kind is TargetKind.SENTINEL:
            return url_credentials(self._target, for_sentinel=True)
        provider = self._options.credential_provider
        if provider is None:
            return url_credentials(self._target)
        question = provided_credentials(provider, str(address) if address else None)
        if self._loop is None:
            return asyncio.run(question)
        asked = asyncio.run_coroutine_threadsafe(question, self._loop)
        return asked.result(self._options.connect_timeout_ms / 1_000)

    def _socket(self, address: Address | None) -> BlockingLink:
        timeout = self._options.connect_timeout_ms / 1_000
        if address is None:
            path = self._target.path
            if self._target.kind is TargetKind.EMBEDDED:
                path = embedded.acquire(self._target.directory).socket_path
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.settimeout(timeout)
            try:
                sock.connect(path or "")
            except OSError:
                sock.close()
                raise
        else:
            sock = socket.create_connection((address.host, address.port), timeout)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if (tls := self._target.tls) is not None:
                name = tls.server_name or address.host
                sock = ssl_context(tls).wrap_socket(sock, server_hostname=name)
        return BlockingLink(sock, self._options.response_timeout_ms)
