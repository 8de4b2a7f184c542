"""One live socket without an event loop: ready bytes out, as many replies back.

Used by one thread at a time; another may end its waiting with `interrupt`.
"""

import contextlib
import select
import socket
import ssl
from collections.abc import Sequence
from typing import Any, TypeAlias

from hiredis import Reader

from chasquimq.broker import access
from chasquimq.broker.access import (
    CLOSED_BY_SERVER,
    CLOSED_BY_US,
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
from chasquimq.broker.target import Address
from chasquimq.clock import monotonic_s

_SocketPlace: TypeAlias = tuple[Any, ...] | str

_CHUNK = 65_536
_NOTHING = object()


class BlockingLink:
    """Made without a socket's far end, so that even the opening of it can be interrupted."""

    def __init__(self) -> None:
        """Nothing is open before `connect` or `connect_to_path`."""
        self._socket: socket.socket | None = None
        self._poll = select.poll()
        self._timeout_s = -1.0
        self._is_interrupted = False
        self._had_too_large = False
        self._reader = Reader(notEnoughData=_NOTHING)
        self.is_greeted = False
        self.lost: str | None = None

    def __repr__(self) -> str:
        """Show whether the socket lives."""
        return f"<BlockingLink {f'lost: {self.lost}' if self.lost else 'open'}>"

    def connect(
        self, address: Address, timeout_s: float, tls: tuple[ssl.SSLContext, str] | None
    ) -> None:
        """Reach a server over TCP, whichever of the host's addresses answers first in their order.

        `tls` is a context and the name to ask for.
        """
        deadline = monotonic_s() + timeout_s
        problem = OSError(f"{address.host} has no address")
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        for family, kind, protocol, _, place in found:
            try:
                self._open(socket.socket(family, kind, protocol), place, _left(deadline))
                break
            except OSError as error:
                problem = error
        else:
            raise problem
        assert self._socket is not None  # noqa: S101 -- `_open` has set it
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            context, name = tls
            # In two steps: `interrupt` must find the socket that the handshake waits on.
            secured = context.wrap_socket(
                self._socket, server_hostname=name, do_handshake_on_connect=False
            )
            self._socket = secured
            secured.settimeout(_left(deadline))
            secured.do_handshake()
        self._watch()

    def connect_to_path(self, path: str, timeout_s: float) -> None:
        """Reach a server by its unix socket."""
        self._open(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), path, timeout_s)
        self._watch()

    def exchange(self, requests: Sequence[bytes], timeout_s: float) -> list[Reply]:
        """Send and wait; each reply may take `timeout_s`.

        Raises `LinkLostError` when the server stays silent or the socket breaks. Whatever else ends
        the waiting, a `KeyboardInterrupt` say, ends the link too: the next call would be given the
        replies of this one.
        """
        self._check_quiet()
        replies: list[Reply] = []
        try:
            self._converse(requests, timeout_s, replies)
        except TimeoutError:
            self.abort(silence_text(timeout_s))
        except UNREADABLE as error:
            self.abort(f"{NOT_RESP}: {error}")
        except OSError as error:
            self.abort(loss_text(str(error) or type(error).__name__, replies))
        except BaseException:
            self.abort("the call was interrupted")
            raise
        if self.lost is not None:
            raise LinkLostError(self.lost, too_large=self._had_too_large)
        return replies

    def abort(self, reason: str) -> None:
        """Drop the socket."""
        if self.lost is None:
            self.lost = CLOSED_BY_US if self._is_interrupted else reason
        if self._socket is not None:
            self._socket.close()

    def interrupt(self) -> None:
        """Make whatever another thread does with this link end at once."""
        self._is_interrupted = True
        sock = self._socket
        if sock is not None:
            with contextlib.suppress(OSError):
                # Not the method of a TLS socket, which is not made for two threads.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def _open(self, sock: socket.socket, place: _SocketPlace, timeout_s: float) -> None:
        self._socket = sock
        if self._is_interrupted:
            # Asked after the socket was put where `interrupt` looks: one of the two sees the other.
            sock.close()
            msg = "interrupted"
            raise ConnectionAbortedError(msg)
        try:
            sock.settimeout(timeout_s)
            sock.connect(place)
        except BaseException:
            sock.close()
            raise

    def _watch(self) -> None:
        assert self._socket is not None  # noqa: S101 -- called once it is open
        self._poll.register(self._socket.fileno(), select.POLLIN)

    def _set_timeout(self, seconds: float) -> None:
        # Setting it costs a system call, and most calls have the same.
        if seconds != self._timeout_s and self._socket is not None:
            self._socket.settimeout(seconds)
            self._timeout_s = seconds

    def _check_quiet(self) -> None:
        """Find out before sending whether the server has hung up or sent what nobody asked for.

        A server that was restarted, or that drops idle clients, is noticed here, while nothing is
        in doubt yet.
        """
        if self.lost is not None or self._socket is None:
            raise LinkLostError(self.lost or "never opened", sent=False)
        if not self._reader.has_data() and not self._poll.poll(0):
            return
        reason = ""
        try:
            self._set_timeout(0)
            data = self._socket.recv(_CHUNK)
        except (BlockingIOError, ssl.SSLWantReadError):
            if not self._reader.has_data():
                return  # what woke us was a matter of TLS
            data = b""
        except OSError as error:
            reason = str(error) or type(error).__name__
            data = b""
        else:
            reason = "" if data else CLOSED_BY_SERVER
        self.abort(reason or self._stray_text(data))
        raise LinkLostError(self.lost or "", sent=False)

    def _stray_text(self, data: bytes) -> str:
        try:
            self._reader.feed(data)
            return stray_text(self._reader.gets())
        except UNREADABLE as error:
            return f"{NOT_RESP}: {error}"

    def _converse(self, requests: Sequence[bytes], timeout_s: float, replies: list[Reply]) -> None:
        sock, reader = self._socket, self._reader
        assert sock is not None  # noqa: S101 -- `_check_quiet` has looked
        self._set_timeout(timeout_s)
        sock.sendall(b"".join(requests))
        heard, deadline, unended = 0, monotonic_s() + timeout_s, 0
        is_first = True
        while len(replies) < len(requests):
            reply = reader.gets()
            if reply is not _NOTHING:
                replies.append(reply)
                continue
            if len(replies) > heard:
                heard, deadline, unended = len(replies), monotonic_s() + timeout_s, 0
            if not is_first:
                self._set_timeout(_left(deadline))
            is_first = False
            data = sock.recv(_CHUNK)
            if not data:
                self.abort(loss_text(CLOSED_BY_SERVER, replies))
                return
            unended += len(data)
            if unended > access.MOST_REPLY_BYTES:
                self._had_too_large = True
                self.abort(size_text())
                return
            if self.is_greeted:
                # Who is amid a long reply is not silent, however slow the way is.
                deadline = monotonic_s() + timeout_s
            elif is_boastful(data):
                self.abort(NOT_RESP)
                return
            reader.feed(data)


def _left(deadline: float) -> float:
    """Seconds until then; never 0, which would mean not to wait at all."""
    left_s = deadline - monotonic_s()
    if left_s <= 0:
        raise TimeoutError
    return left_s
