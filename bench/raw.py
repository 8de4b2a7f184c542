"""The least a client can do: a socket, hiredis, and commands packed by hand. The physical limit."""

import socket
from types import TracebackType
from typing import Any, Self

import hiredis

_CHUNK = 1 << 18


class RawClient:
    """One blocking connection, in bytes."""

    def __init__(self, place: str | tuple[str, int]) -> None:
        """Connect: to a unix socket, or to a host and port."""
        if isinstance(place, str):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.connect(place)
        else:
            self._socket = socket.create_connection(place)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = hiredis.Reader()
        self._buffer = memoryview(bytearray(_CHUNK))

    def __enter__(self) -> Self:
        """For as long as it is used."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """Close."""
        self._socket.close()

    def run(self, *words: str | bytes | int) -> Any:  # noqa: ANN401 -- any reply
        """Send one command and return its reply; raises one that is an error."""
        (reply,) = self.exchange([packed(*words)])
        return reply

    def info(self, section: str) -> dict[str, str]:
        """What the server says of itself in a section of `INFO`."""
        lines = bytes(self.run("INFO", section)).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def exchange(self, requests: list[bytes]) -> list[Any]:
        """Send packed commands in one go and return their replies."""
        self._socket.sendall(b"".join(requests))
        replies = [self._reply() for _ in requests]
        for reply in replies:
            if isinstance(reply, hiredis.ReplyError):
                raise reply
        return replies

    def _reply(self) -> Any:  # noqa: ANN401 -- any reply
        while True:
            reply = self._reader.gets()
            if reply is not False:
                return reply
            size = self._socket.recv_into(self._buffer)
            if size == 0:
                msg = "the server has closed the connection"
                raise ConnectionError(msg)
            self._reader.feed(self._buffer[:size])  # type: ignore[arg-type]


def packed(*words: str | bytes | int) -> bytes:
    """One command as it is sent."""
    made: bytes = hiredis.pack_command(words)  # type: ignore[arg-type]
    return made
