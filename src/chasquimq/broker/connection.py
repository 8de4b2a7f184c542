"""`Connection`: carries calls to one queue's server over asyncio, through breaks and redirections.

Every call ends: with its answer, with the server's refusal, or with an error that says whether it
may have been carried out. A call is sent again after a break only if that is harmless
(`Call.repeatable`) or if it cannot have reached the server. The decisions are in `insist.py` and
`access.py`; here they are carried out.
"""

import asyncio
import math
from collections.abc import Generator
from contextlib import closing, suppress
from typing import Any, TypeVar

from chasquimq.broker.access import (
    CLOSED_BY_US,
    Access,
    Dial,
    FetchCredentials,
    LinkLostError,
    Pause,
    Talk,
    overdue,
    silence_text,
)
from chasquimq.broker.call import Call, Reply, understood
from chasquimq.broker.embedded_use import EmbeddedUse
from chasquimq.broker.insist import Action, Conduct, Exchange, Leave
from chasquimq.broker.link import Link
from chasquimq.broker.options import ConnectionOptions, provided_credentials, ssl_context
from chasquimq.broker.server import ServerInfo
from chasquimq.broker.url import Address, Target, TargetKind
from chasquimq.errors import ChasquiError

T = TypeVar("T")

# Of the opening of a link, which goes on for as long as some call waits for it.
_NO_DEADLINE = math.inf


class Connection:
    """One pipelined connection, shared by any number of tasks of one event loop."""

    def __init__(self, target: Target, options: ConnectionOptions, *, slot_key: bytes) -> None:
        """Nothing is opened before the first call. Calls must concern the slot of `slot_key`."""
        self._target = target
        self._options = options
        self._slot_key = slot_key
        self._access: Access[Link] = Access(target, options, slot_key=slot_key)
        self._conduct = Conduct(self._access)
        self._embedded = EmbeddedUse(target.directory)
        self._link: Link | None = None
        self._retired: list[Link] = []
        self._opening: asyncio.Task[Link] | None = None
        self._waiting = 0
        self._closed = asyncio.Event()

    def __repr__(self) -> str:
        """Show where it leads and whether it is up; never a secret."""
        return f"<Connection {self._target.safe_text} {self._link or 'not open'}>"

    @property
    def server(self) -> ServerInfo | None:
        """What the server can do; None before the first call."""
        return self._access.server

    @property
    def is_open(self) -> bool:
        """Whether there is a link that is not known to be broken."""
        return self._link is not None and self._link.lost is None

    @property
    def reconnects(self) -> int:
        """How often the connection came back after a break."""
        return self._access.reconnects

    def sibling(self) -> "Connection":
        """Another connection to the same place, not opened yet: for calls that block."""
        return Connection(self._target, self._options, slot_key=self._slot_key)

    async def ready(self) -> ServerInfo:
        """Open the connection if need be and say what the server can do."""
        await self._live_link(self._deadline())
        assert self._access.server is not None  # noqa: S101 -- set by every successful opening
        return self._access.server

    async def run(self, call: Call[T]) -> T:
        """Carry out `call` and return what its replies mean."""
        link = self._link
        first: list[Reply] | LinkLostError | None = None
        if link is not None and link.lost is None:
            pending = link.send(call.requests, call.block_ms)
            try:
                first = await pending.future
            except LinkLostError as lost:
                first = lost
            else:
                if not pending.has_refusal:
                    return understood(call, first)
        steps = self._conduct.insist(call, first)
        return understood(call, await self._carry_out(steps, self._deadline(), link))

    async def wait_writable(self) -> None:
        """Return once the socket takes more; large senders call this between batches."""
        if self._link is not None:
            await self._link.wait_writable()

    async def close(self) -> None:
        """Drop the socket. Idempotent; calls still pending end with an error."""
        self._closed.set()
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        for link in [*self._retired, self._link]:
            if link is not None:
                link.abort(CLOSED_BY_US)
        self._retired, self._link = [], None
        if self._target.kind is TargetKind.EMBEDDED:
            await asyncio.to_thread(self._embedded.end)
        else:
            await asyncio.sleep(0)  # the turn in which asyncio closes the sockets

    async def _carry_out(
        self, steps: Generator[Action[Link], Any, T], deadline: float, used: Link | None = None
    ) -> T:
        """Do what `steps` asks for until it has its result; `used` is the link of a first try."""
        answer: object = None
        with closing(steps):
            try:
                action = next(steps)
                while True:
                    try:
                        match action:
                            case Exchange(requests, block_ms):
                                used = await self._live_link(deadline)
                                answer = await used.send(requests, block_ms).future
                            case Leave(reason):
                                self._leave(used, reason)
                            case Pause(ms, _):
                                await self._pause(ms, deadline)
                            case Dial() | Talk() | FetchCredentials():
                                answer = await self._in_time(action)
                    except (LinkLostError, ChasquiError, OSError, UnicodeError) as error:
                        action = steps.throw(error)
                    else:
                        action = steps.send(answer)
            except StopIteration as done:
                result: T = done.value
                return result

    def _leave(self, link: Link | None, reason: str) -> None:
        """Stop using `link`. Others may have left it already, and be on the next one."""
        if link is None or link.lost is not None:
            return
        if self._link is link:
            self._link = None
        self._retired = [each for each in self._retired if each.lost is None]
        self._retired.append(link)
        link.retire(reason)

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._options.patience_ms / 1_000

    async def _pause(self, ms: float, deadline: float) -> None:
        left_s = deadline - asyncio.get_running_loop().time()
        if left_s <= 0:
            raise self._access.out_of_patience()
        with suppress(TimeoutError):
            async with asyncio.timeout(min(ms / 1_000, left_s)):
                await self._closed.wait()
        if deadline == _NO_DEADLINE and not self._waiting:
            raise self._access.out_of_patience()

    async def _live_link(self, deadline: float) -> Link:
        """The link, opened or re-opened if need be; all waiting calls share one attempt."""
        if self._link is not None and self._link.lost is None:
            return self._link
        if self._closed.is_set():
            raise self._access.shut()
        loop = asyncio.get_running_loop()
        opening = self._opening
        if opening is None or _has_failed(opening):
            opening = loop.create_task(self._open(), name="chasquimq-opening")
            opening.add_done_callback(self._opened)
            self._opening = opening
        self._waiting += 1
        try:
            done, _ = await asyncio.wait([opening], timeout=max(0.0, deadline - loop.time()))
        finally:
            self._waiting -= 1
        if not done:
            raise self._access.out_of_patience()
        if opening.cancelled():
            raise self._access.shut()
        return opening.result()

    async def _open(self) -> Link:
        return await self._carry_out(self._access.link(), _NO_DEADLINE)

    def _opened(self, task: "asyncio.Task[Link]") -> None:
        if self._opening is task:
            self._opening = None
        if _has_failed(task):
            return
        self._link = task.result()
        if self._closed.is_set():
            self._link.abort(CLOSED_BY_US)

    async def _in_time(self, step: Dial | Talk[Link] | FetchCredentials) -> object:
        """Do one step of opening a link, within the time that each of them has."""
        path = self._target.path
        if self._target.kind is TargetKind.EMBEDDED and isinstance(step, Dial):
            # It may have to load its data first, and has time limits of its own.
            path = await asyncio.to_thread(self._embedded.renew)
        seconds = self._options.connect_timeout_ms / 1_000
        try:
            async with asyncio.timeout(seconds):
                match step:
                    case Dial(address):
                        return await self._dial(address, path)
                    case Talk(link, requests):
                        return await link.send(requests).future
                    case FetchCredentials(endpoint):
                        provider = self._options.credential_provider
                        assert provider is not None  # noqa: S101 -- or nobody would ask
                        return await provided_credentials(provider, endpoint)
        except TimeoutError:
            if isinstance(step, Talk):
                raise LinkLostError(silence_text(seconds)) from None
            raise overdue(step, seconds) from None

    async def _dial(self, address: Address | None, path: str | None) -> Link:
        loop = asyncio.get_running_loop()
        timeout_ms = self._options.response_timeout_ms

        def make() -> Link:
            return Link(loop, timeout_ms)

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


def _has_failed(opening: "asyncio.Task[Link]") -> bool:
    """Whether it has ended without a link. Its end is noted a turn later than it happens."""
    return opening.done() and (opening.cancelled() or opening.exception() is not None)
