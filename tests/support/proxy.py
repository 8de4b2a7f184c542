"""A TCP proxy before a real server, that does to their talk what networks do.

It runs on a loop and thread of its own, so that tests with and without an event loop can use it,
and so that a blocked client cannot block it.
"""

import asyncio
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeVar, cast

T = TypeVar("T")

CHUNK = 65_536
ORDER_SECS = 10.0
# Closing a socket with this option sends a reset instead of a farewell.
_RESET = struct.pack("ii", 1, 0)


@dataclass(slots=True, eq=False)
class Trap:
    """What is to happen when a request that holds one of `markers` comes by; `sprung` when it did.

    One that cuts an answer is sprung when it has, not when the request came by.
    """

    markers: tuple[bytes, ...]
    times: int
    reaches_server: bool
    answer_bytes: int
    part: float = 0.0
    then: Callable[[], None] = lambda: None
    sprung: threading.Event = field(default_factory=threading.Event)
    at_work: "asyncio.Task[None] | None" = None

    def holds(self, data: bytes) -> bool:
        """Whether this is what it waits for."""
        return self.times > 0 and any(marker in data for marker in self.markers)


class _Pair:
    """A client's connection and the one to the server that belongs to it."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client = client
        self.server = server
        self.trap: Trap | None = None

    @property
    def requests(self) -> asyncio.ReadTransport:
        return cast("asyncio.ReadTransport", self.client.transport)

    def cut(self) -> None:
        for writer in (self.client, self.server):
            sock = writer.get_extra_info("socket")
            if sock is not None:
                with suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()


class Proxy:
    """One port that leads to another; what it is told holds for connections old and new."""

    def __init__(self, target_port: int, *, remembers: bool = True) -> None:
        """Listen before `target_port` on loopback; `remembers` is for those who `count`."""
        self._target_port = target_port
        self._remembers = remembers
        self._pairs: set[_Pair] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._traps: list[Trap] = []
        self._requests = bytearray()
        self._released: asyncio.Event | None = None
        self._greeting = b""
        self._listener: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        # Bound and never listening: it keeps the port ours while nothing is accepted.
        self._placeholder = _bound(0)
        self.port: int = self._placeholder.getsockname()[1]
        self.connections = 0
        self._order(self._listen)

    @property
    def url(self) -> str:
        """Where clients connect to."""
        return f"redis://127.0.0.1:{self.port}"

    def count(self, marker: bytes) -> int:
        """How often `marker` was in what clients sent, whether or not it was passed on."""
        return self._requests.count(marker)

    def cut(self) -> int:
        """Reset every connection; how many there were."""
        return self._order(self._cut)

    def refuse(self) -> None:
        """Stop listening, and reset every connection: as if the machine were gone."""
        self._order(self._refuse)

    def accept(self) -> None:
        """Listen again, on the same port."""
        self._order(self._listen)

    def hold_answers(self) -> None:
        """Swallow the server's voice: connections stay open, new ones are accepted, all is mute."""
        self._order(self._hold)

    def pass_answers(self) -> None:
        """Let held answers through, and those to come."""
        self._order(self._release)

    def hold_requests(self) -> None:
        """Stop reading what clients send, until their sockets are full."""
        self._order(self._stop_reading)

    def pass_requests(self) -> None:
        """Read on."""
        self._order(self._read_on)

    def cut_before(self, *markers: bytes, times: int = 1) -> Trap:
        """Reset a connection instead of passing on a request that holds one of `markers`."""
        return self._set(Trap(markers, times, reaches_server=False, answer_bytes=0))

    def cut_after(self, *markers: bytes, times: int = 1, answer_bytes: int = 0) -> Trap:
        """Reset a connection when the answer to a request that holds one of `markers` is there.

        The server has carried it out, and the client gets the first `answer_bytes` at most.
        """
        return self._set(Trap(markers, times, reaches_server=True, answer_bytes=answer_bytes))

    def trip(self, *markers: bytes, then: Callable[[], None], part: float) -> Trap:
        """When such a request comes by, pass on that part of it, call `then`, and reset.

        `part` is from 0, nothing, to 1, the whole request with all that was sent beside it.
        """
        return self._set(Trap(markers, 1, reaches_server=False, answer_bytes=0,
                              part=part, then=then))  # fmt: skip

    def disarm(self, trap: Trap) -> bool:
        """Whether it was sprung; if not, it never will be."""
        self._order(lambda: self._disarm(trap))
        return trap.sprung.is_set()

    def say(self, data: bytes) -> None:
        """Send bytes to every client that the server never sent."""
        self._order(lambda: self._say(data))

    def greet(self, data: bytes) -> None:
        """Send bytes to every new client before anything else, and hang up."""
        self._greeting = data

    def close(self) -> None:
        """End all of it."""
        self._order(self._refuse)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(ORDER_SECS)
        self._loop.close()
        self._placeholder.close()

    def _set(self, trap: Trap) -> Trap:
        self._traps.append(trap)
        return trap

    def _order(self, work: Callable[[], Awaitable[T]]) -> T:
        async def carry_out() -> T:
            return await work()

        return asyncio.run_coroutine_threadsafe(carry_out(), self._loop).result(ORDER_SECS)

    async def _listen(self) -> None:
        if self._released is None:
            self._released = asyncio.Event()
            self._released.set()
        listening = _bound(self.port)
        self._listener = await asyncio.start_server(self._serve, sock=listening)

    async def _refuse(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        await self._cut()

    async def _cut(self) -> int:
        pairs = list(self._pairs)
        for pair in pairs:
            pair.cut()
        if self._serving:
            await asyncio.wait(self._serving)
        return len(pairs)

    async def _disarm(self, trap: Trap) -> None:
        trap.times = 0
        for pair in self._pairs:
            if pair.trap is trap:
                pair.trap = None
        if trap.at_work is not None:
            await asyncio.wait([trap.at_work])

    async def _hold(self) -> None:
        assert self._released is not None
        self._released.clear()

    async def _release(self) -> None:
        assert self._released is not None
        self._released.set()

    async def _stop_reading(self) -> None:
        for pair in self._pairs:
            pair.requests.pause_reading()

    async def _read_on(self) -> None:
        for pair in self._pairs:
            pair.requests.resume_reading()

    async def _say(self, data: bytes) -> None:
        for pair in self._pairs:
            pair.client.write(data)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            if self._greeting:
                writer.write(self._greeting)
                await writer.drain()
                return
            with suppress(OSError):
                await self._join(reader, writer)
        finally:
            writer.close()
            self._serving.discard(task)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, server = await asyncio.open_connection("127.0.0.1", self._target_port)
        pair = _Pair(writer, server)
        self._pairs.add(pair)
        ways = [
            asyncio.create_task(self._pass_requests(pair, reader)),
            asyncio.create_task(self._pass_answers(pair, answers)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            server.close()
            self._pairs.discard(pair)

    async def _pass_requests(self, pair: _Pair, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(CHUNK):
            if self._remembers:
                self._requests += data
            trap = next((each for each in self._traps if each.holds(data)), None)
            if trap is not None:
                trap.times -= 1
                if not trap.reaches_server:
                    await self._spring(pair, data, trap)
                    return
                pair.trap = trap
            pair.server.write(data)
            await pair.server.drain()

    async def _spring(self, pair: _Pair, data: bytes, trap: Trap) -> None:
        trap.at_work = asyncio.current_task()
        if trap.part:
            pair.server.write(data[: round(len(data) * trap.part)])
            await pair.server.drain()
        # In a thread: what it does may wait for a process, and others want their answers.
        await asyncio.to_thread(trap.then)
        pair.cut()
        trap.sprung.set()

    async def _pass_answers(self, pair: _Pair, answers: asyncio.StreamReader) -> None:
        assert self._released is not None
        while data := await answers.read(CHUNK):
            await self._released.wait()
            if pair.trap is not None:
                trap = pair.trap
                if trap.answer_bytes:
                    pair.client.write(data[: trap.answer_bytes])
                    await pair.client.drain()
                pair.cut()
                trap.sprung.set()
                return
            pair.client.write(data)
            await pair.client.drain()


def _bound(port: int) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind(("127.0.0.1", port))
    return made


@contextmanager
def proxy_before(port: int) -> Iterator[Proxy]:
    """A proxy to the server at `port`, for as long as it is needed."""
    proxy = Proxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
