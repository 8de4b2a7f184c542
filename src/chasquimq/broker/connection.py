"""`Connection`: carries calls to one queue's server over asyncio, through breaks and redirections.

Every call ends: with its answer, with the server's refusal, or with an error that says whether it
may have been carried out. A call is sent again after a break only if that is harmless
(`Call.repeatable`) or if the server said that it was not carried out (`refusal.py`). The decisions
are in `insist.py`.
"""

import asyncio
from typing import TypeVar

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
from chasquimq.broker.link import Link
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

# A link that lost its slot may still owe replies to other callers; they come within this time.
_LEAVE_AFTER_S = 1.0


class Connection:
    """One pipelined connection, shared by any number of tasks of one event loop."""

    def __init__(self, target: Target, options: ConnectionOptions, *, slot_key: bytes) -> None:
        """Nothing is opened before the first call. Calls must concern the slot of `slot_key`."""
        self._conduct = Conduct(target, options, slot_key=slot_key)
        self._target = target
        self._options = options
        self._slot_key = slot_key
        self._link: Link | None = None
        self._opening: asyncio.Task[Link] | None = None
        self._closed = False

    def __repr__(self) -> str:
        """Show where it leads and whether it is up; never a secret."""
        return f"<Connection {self._target.safe_text} {self._link or 'not open'}>"

    @property
    def server(self) -> ServerInfo | None:
        """What the server can do; None before the first call."""
        return self._conduct.server

    @property
    def reconnects(self) -> int:
        """How often the connection came back after a break."""
        return self._conduct.reconnects

    def sibling(self) -> "Connection":
        """Another connection to the same place, not opened yet: for calls that block."""
        return Connection(self._target, self._options, slot_key=self._slot_key)

    async def ready(self) -> ServerInfo:
        """Open the connection if need be and say what the server can do."""
        await self._live_link(self._deadline())
        assert self._conduct.server is not None  # noqa: S101 -- set by every successful opening
        return self._conduct.server

    async def run(self, call: Call[T]) -> T:
        """Carry out `call` and return what its replies mean."""
        link = self._link
        replies: list[Reply] | None = None
        if link is not None and link.lost is None:
            pending = link.send(call.requests, call.block_ms)
            try:
                replies = await pending.future
            except LinkLostError as lost:
                if not call.repeatable:
                    raise self._conduct.outcome_unknown(lost) from None
            else:
                if not pending.has_refusal:
                    return call.parse(replies)
        return call.parse(await self._drive(self._conduct.insist(call, replies)))

    async def wait_writable(self) -> None:
        """Return once the socket takes more; large senders call this between batches."""
        if self._link is not None:
            await self._link.wait_writable()

    async def close(self) -> None:
        """Drop the socket. Idempotent; calls still pending end with an error."""
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        if self._link is not None:
            self._link.abort("closed by this process")
            self._link = None

    async def _drive(self, steps: Insisting) -> list[Reply]:
        """Do what `steps` asks for until it has all replies or patience ends."""
        deadline = self._deadline()
        loop = asyncio.get_running_loop()
        outcome: list[Reply] | None = None
        try:
            action = next(steps)
            while True:
                try:
                    match action:
                        case Exchange(requests, block_ms):
                            link = await self._live_link(deadline)
                            outcome = await link.send(requests, block_ms).future
                        case AskAt(address, requests):
                            outcome = await self._ask(address, list(requests))
                        case Leave(reason):
                            self._leave(reason)
                        case Pause(ms):
                            if loop.time() >= deadline:
                                raise self._conduct.out_of_patience()
                            await asyncio.sleep(ms / 1_000)
                except LinkLostError as lost:
                    action = steps.throw(lost)
                else:
                    action = steps.send(outcome)
        except StopIteration as done:
            replies: list[Reply] = done.value
            return replies

    async def _ask(self, address: Address, requests: list[bytes]) -> list[Reply]:
        link, _ = await self._open(address)
        try:
            return await link.send(requests).future
        finally:
            link.abort("asked and answered")

    def _leave(self, reason: str) -> None:
        link, self._link = self._link, None
        if link is not None:
            asyncio.get_running_loop().call_later(_LEAVE_AFTER_S, link.abort, reason)

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._options.patience_ms / 1_000

    async def _live_link(self, deadline: float) -> Link:
        """The link, opened or re-opened if need be; all waiting calls share one attempt."""
        if self._link is not None and self._link.lost is None:
            return self._link
        if self._closed:
            raise self._shut()
        loop = asyncio.get_running_loop()
        if self._opening is None:
            self._opening = loop.create_task(self._reopen())
            self._opening.add_done_callback(self._opened)
        opening = self._opening
        done, _ = await asyncio.wait([opening], timeout=max(0.0, deadline - loop.time()))
        if not done:
            raise self._conduct.out_of_patience()
        if opening.cancelled():
            raise self._shut()
        return opening.result()

    def _shut(self) -> ShutdownError:
        return ShutdownError(f"the connection to {self._target.safe_text} was closed")

    def _opened(self, task: "asyncio.Task[Link]") -> None:
        self._opening = None
        if task.cancelled() or task.exception() is not None:
            return
        self._link = task.result()
        if self._closed:
            self._link.abort("closed by this process")

    async def _reopen(self) -> Link:
        attempt = 0
        while True:
            attempt += 1
            try:
                address = await self._discover()
                link, info = await self._open(address)
                try:
                    self._conduct.accept(address, info)
                except ConnectionFailedError as refused:
                    link.abort(str(refused))
                    raise
            except (ChasquiError, OSError) as error:  # TimeoutError is an OSError
                pause_ms = self._conduct.pause_after_failure(error, attempt)
            else:
                return link
            await asyncio.sleep(pause_ms / 1_000)

    async def _discover(self) -> Address | None:
        """Drive the topology's questions; None where the target is a socket path."""
        if self._target.kind in (TargetKind.UNIX, TargetKind.EMBEDDED):
            return None
        steps = self._conduct.topology.discover()
        try:
            ask = next(steps)
            while True:
                try:
                    answer = await self._question(ask)
                except (RedisError, OSError) as error:
                    ask = steps.throw(error)
                else:
                    ask = steps.send(answer)
        except StopIteration as found:
            address: Address = found.value
            return address

    async def _question(self, ask: Ask) -> object:
        link = await self._socket(ask.address)
        try:
            opening = login(await self._credentials(ask.address, for_sentinel=True))
            replies = await link.send([*opening, *ask.call.requests]).future
            return ask.call.parse(replies[len(opening) :])
        except LinkLostError as lost:
            raise ConnectionFailedError(str(lost)) from None
        finally:
            link.abort("asked and answered")

    async def _open(self, address: Address | None) -> tuple[Link, ServerInfo]:
        """A new link that is logged in and probed."""
        link = await self._socket(address)
        try:
            greeting = self._conduct.greeting(await self._credentials(address))
            async with asyncio.timeout(self._options.connect_timeout_ms / 1_000):
                return link, greeting.parse(await link.send(greeting.requests).future)
        except LinkLostError as lost:
            raise ConnectionFailedError(str(lost)) from None
        except BaseException:
            link.abort("the handshake failed")
            raise

    async def _credentials(
        self, address: Address | None, *, for_sentinel: bool = False
    ) -> Credentials | None:
        if for_sentinel and self._target.kind is TargetKind.SENTINEL:
            return url_credentials(self._target, for_sentinel=True)
        provider = self._options.credential_provider
        if provider is None:
            return url_credentials(self._target)
        return await provided_credentials(provider, str(address) if address else None)

    async def _socket(self, address: Address | None) -> Link:
        loop = asyncio.get_running_loop()
        timeout_ms = self._options.response_timeout_ms

        def make() -> Link:
            return Link(loop, timeout_ms)

        path = self._target.path
        if self._target.kind is TargetKind.EMBEDDED:
            server = await asyncio.to_thread(embedded.acquire, self._target.directory)
            path = server.socket_path
        async with asyncio.timeout(self._options.connect_timeout_ms / 1_000):
            if address is None:
                _, link = await loop.create_unix_connection(make, path)
                return link
            tls = self._target.tls
            _, link = await loop.create_connection(
                make,
                address.host,
                address.port,
                ssl=ssl_context(tls) if tls else None,
                server_hostname=(tls.server_name or address.host) if tls else None,
            )
            return link
