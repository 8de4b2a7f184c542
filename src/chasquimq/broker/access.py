"""How a connection gets to its server: find it, log in, probe it, try again, say what is wrong.

Free of I/O: `Access.link` yields what should be done next (`Dial`, `Talk`, ...) and is told how it
went. The asyncio connection and its blocking twin only do it.
"""

import logging
import re
import secrets
import ssl
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from hiredis import HiredisError, ReplyError

from chasquimq.broker.call import Call, Reply, understood
from chasquimq.broker.options import ConnectionOptions, reconnect_pause_ms, url_credentials
from chasquimq.broker.refusal import redirection
from chasquimq.broker.server import (
    Credentials,
    ServerInfo,
    ServerNotReadyError,
    SlotElsewhereError,
    check_login,
    handshake,
    login,
    warn_about_eviction,
)
from chasquimq.broker.topology import Topology
from chasquimq.broker.url import Address, Target, TargetKind
from chasquimq.errors import (
    ANOTHER_SERVER,
    ChasquiError,
    ConfigError,
    ConnectionFailedError,
    ServerTooOldError,
    ShutdownError,
)

log = logging.getLogger("chasquimq.broker")


class LinkLostError(Exception):
    """The socket is gone. What was `sent` over it may or may not have been carried out."""

    def __init__(self, reason: str, *, sent: bool = True, too_large: bool = False) -> None:
        """Say why; `sent` is False if no byte of the request can have left.

        `too_large` says that it was the reply to this very request which broke the link.
        """
        self.sent = sent
        self.too_large = too_large
        super().__init__(reason)


class OutOfPatienceError(ConnectionFailedError):
    """A call waited for the connection for as long as it may."""


class Line(Protocol):
    """What this module knows of a link."""

    is_greeted: bool
    """Whether a server of ours answered there: what it promises is believed from then on."""

    def abort(self, reason: str) -> None:
        """Drop it at once; harmless when it is gone already."""


L = TypeVar("L", bound=Line)


@dataclass(frozen=True, slots=True)
class Dial:
    """Open a socket, with TLS if the target says so; answer with the link."""

    address: Address | None
    """None where the target is a path or an embedded server."""


@dataclass(frozen=True, slots=True)
class FetchCredentials:
    """Ask the credential provider."""

    endpoint: str | None


@dataclass(frozen=True, slots=True)
class Talk(Generic[L]):
    """Send requests over a link that is being opened; answer with the replies."""

    line: L
    requests: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Pause:
    """Let some time pass; `is_apart` says that the link stands, and others may use it meanwhile."""

    ms: float
    is_apart: bool = False


Step: TypeAlias = Dial | FetchCredentials | Talk[L] | Pause

CLOSED_BY_SERVER = "the server closed the connection"
NOT_RESP = "the server does not speak RESP"
UNREADABLE = (HiredisError, TypeError, MemoryError)
"""What the parser raises for bytes that are no reply, or for one that promises too much."""
_BOAST = re.compile(rb"(?:^|\r\n)[*%~>|]\d{6,}")
MOST_REPLY_BYTES = 1 << 30
"""More than a reply may have: a server that sends as much without ending one is cut off."""
CLOSED_BY_US = "closed by this process"

_NOT_YET = "the server has not answered yet"
# Errors that waiting does not cure, or that are not about the server.
_FINAL = (ServerTooOldError, ConfigError, ShutdownError, OutOfPatienceError)


class Access(Generic[L]):
    """The way of one connection to its server, and what is known about both; knows no socket."""

    def __init__(self, target: Target, options: ConnectionOptions, *, slot_key: bytes) -> None:
        """Lead to the server that holds the slot of `slot_key`."""
        self.target = target
        self.options = options
        self.topology = Topology(target, slot_key)
        self.address: Address | None = None
        self.server: ServerInfo | None = None
        self.reconnects = 0
        self.last_problem = _NOT_YET
        self._probe_key = slot_key + b":probe"
        # Not `Random`: forked children would inherit its state and come back in step.
        self._chance = secrets.SystemRandom()

    def link(self) -> Generator[Step[L], Any, L]:
        """A link to the primary, greeted; tries again until there is one or no point in trying.

        A connection that never worked is not insisted on: a wrong address should not look like a
        slow server. One that says it will be ready soon is waited for.
        """
        attempt = 0
        while True:
            attempt += 1
            try:
                address = yield from self._discover()
                line, info = yield from self._greeted(address)
                self._accept(address, info, line)
            except (ChasquiError, OSError, UnicodeError) as error:
                pause_ms = self._pause_after(error, attempt)
            else:
                return line
            yield Pause(pause_ms)

    def visit(
        self, address: Address, requests: Sequence[bytes], *, for_sentinel: bool = False
    ) -> Generator[Step[L], Any, list[Reply]]:
        """The replies of some server, over a link of its own that is dropped afterwards."""
        line: L = yield Dial(address)
        try:
            credentials = yield from self._credentials(address, for_sentinel=for_sentinel)
            opening = login(credentials)
            replies: list[Reply] = yield Talk(line, [*opening, *requests])
        finally:
            line.abort("asked and answered")
        if opening and credentials is not None:
            check_login(replies[0], credentials)
        return replies[len(opening) :]

    def pause_ms(self, attempt: int) -> float:
        """How long to wait after the failed `attempt`, counted from 1."""
        return reconnect_pause_ms(attempt, self._chance)

    def out_of_patience(self) -> OutOfPatienceError:
        """The error for a call that waited long enough."""
        return OutOfPatienceError(
            f"no connection to {self.target.safe_text} within "
            f"{self.options.patience_ms / 1_000:g} s; last problem: {self.last_problem}"
        )

    def shut(self) -> ShutdownError:
        """The error for a call on a connection that was closed."""
        return ShutdownError(f"the connection to {self.target.safe_text} was closed")

    def _discover(self) -> Generator[Step[L], Any, Address | None]:
        if self.target.kind in (TargetKind.UNIX, TargetKind.EMBEDDED):
            return None
        return (yield from self.topology.discover(self._ask))

    def _ask(self, address: Address, call: Call[Any]) -> Generator[Step[L], Any, Any]:
        """Put a question of the topology to a sentinel or cluster node."""
        try:
            replies = yield from self.visit(address, call.requests, for_sentinel=True)
        except LinkLostError as lost:
            raise ConnectionFailedError(str(lost)) from None
        return understood(call, replies)

    def _greeted(self, address: Address | None) -> Generator[Step[L], Any, tuple[L, ServerInfo]]:
        """A new link that is logged in and probed."""
        line: L = yield Dial(address)
        try:
            greeting = handshake(
                (yield from self._credentials(address)),
                database=self.target.database,
                client_name=self.options.client_name,
                probe_key=self._probe_key,
            )
            info = understood(greeting, (yield Talk(line, greeting.requests)))
        except LinkLostError as lost:
            line.abort(str(lost))
            msg = f"{lost}{self._hint(lost, address)}"
            raise ConnectionFailedError(msg) from None
        except BaseException as error:
            line.abort("the handshake failed")
            if isinstance(error, SlotElsewhereError):
                self._follow(error, address)
            raise
        line.is_greeted = True
        return line, info

    def _hint(self, lost: LinkLostError, address: Address | None) -> str:
        """What to try when a server that was never seen to work hangs up without a word."""
        if self.server is not None or address is None or not _is_mute(str(lost)):
            return ""
        if self.target.tls is None:
            return "; if it wants TLS, use rediss://"
        if self.target.tls.cert_file is None:
            return "; if it asks for a certificate, name ours with ssl_certfile"
        return ""

    def _follow(self, error: SlotElsewhereError, asked: Address | None) -> None:
        """Note where the slot is, if this target is a cluster at all."""
        if self.target.kind is not TargetKind.CLUSTER:
            msg = f"{error.message}; use redis-cluster:// to follow"
            raise ConnectionFailedError(msg) from None
        owner = redirection(error.redirection, asked.host if asked else "")
        if owner is not None:
            self.topology.moved_to(owner)

    def _credentials(
        self, address: Address | None, *, for_sentinel: bool = False
    ) -> Generator[Step[L], Any, Credentials | None]:
        if for_sentinel and self.target.kind is TargetKind.SENTINEL:
            return url_credentials(self.target, for_sentinel=True)
        if self.options.credential_provider is None:
            return url_credentials(self.target)
        credentials: Credentials = yield FetchCredentials(str(address) if address else None)
        return credentials

    def _accept(self, address: Address | None, info: ServerInfo, line: L) -> None:
        """Take a greeted link into use, or refuse it."""
        where = address or self.target.safe_text
        if not info.is_primary and self.target.kind is not TargetKind.CLUSTER:
            line.abort("it leads to a replica")
            if self.target.kind is TargetKind.SENTINEL:
                msg = f"{where}, which a sentinel names, is a replica: a failover is under way"
                raise ServerNotReadyError(msg)
            msg = f"{where} is a replica: name its primary or its sentinels"
            raise ConnectionFailedError(msg)
        warn_about_eviction(info, self.target.safe_text)
        if self.server is not None:
            self.reconnects += 1
            log.info("connected again to %s", where)
        self.address = address
        self.server = info
        self.last_problem = _NOT_YET

    def _pause_after(self, error: Exception, attempt: int) -> float:
        """How many ms to wait before the next attempt; raises when there should be none."""
        if isinstance(error, _FINAL):
            raise error
        if not isinstance(error, SlotElsewhereError):
            self.topology.forget_owner()
        problem, remedy = _explained(error, has_tls=self.target.tls is not None)
        self.last_problem = problem
        limit = self.options.reconnect_max_attempts
        is_worth_it = self.server is not None or isinstance(
            error, ServerNotReadyError | SlotElsewhereError
        )
        if not is_worth_it or (limit is not None and attempt >= limit):
            msg = f"cannot connect to {self.target.safe_text}: {problem}{remedy}"
            raise ConnectionFailedError(msg) from error
        level = logging.WARNING if attempt == 1 else logging.DEBUG
        log.log(level, "no connection to %s (attempt %d): %s; trying again", self.target.safe_text,
                attempt, problem)  # fmt: skip
        return self.pause_ms(attempt)


_REFUSED = "the server refused the connection"
_LAST_WORD = " after saying: "
_SILENT = "no reply within"


def stray_text(reply: Reply) -> str:
    """Why a link ends on a reply that nobody asked for; a server that is full says so this way."""
    if isinstance(reply, ReplyError):
        return f"{_REFUSED}: {reply}"
    return "a reply arrived that nobody asked for"


def loss_text(reason: str, replies: Sequence[Reply]) -> str:
    """Why a link ended, with the server's last word if that was a refusal."""
    if replies and isinstance(replies[-1], ReplyError):
        return f"{reason}{_LAST_WORD}{replies[-1]}"
    return reason


def is_boastful(data: bytes) -> bool:
    """Whether something that was not greeted yet promises millions of replies in one.

    The parser would set memory aside for them at once. Greetings are short and hold no data of
    users, which could look like this by chance.
    """
    return _BOAST.search(data) is not None


def size_text() -> str:
    """Why a link ends on which a reply did not."""
    return f"a reply has more than {MOST_REPLY_BYTES} bytes, or {NOT_RESP}: ask for less at once"


def silence_text(seconds: float) -> str:
    """Why a link ends on which no reply came."""
    return f"{_SILENT} {seconds:g} s"


def _is_mute(reason: str) -> bool:
    return _LAST_WORD not in reason and not reason.startswith((_REFUSED, _SILENT))


def overdue(step: Dial | FetchCredentials, seconds: float) -> TimeoutError:
    """The error for a step that took too long."""
    doing = "opening the socket" if isinstance(step, Dial) else "the credential_provider"
    return TimeoutError(f"{doing} took more than {seconds:g} s")


def _explained(error: Exception, *, has_tls: bool) -> tuple[str, str]:
    """What went wrong in plain words, and a remedy where the words do not hold one."""
    if isinstance(error, ChasquiError):
        return error.message, ""
    if isinstance(error, ssl.SSLCertVerificationError):
        remedy = (
            "; name its CA with ssl_ca_certs, the name it carries with ssl_server_name, or turn "
            "the check off with ssl_cert_reqs=none"
        )
        return f"its certificate is not trusted: {error.verify_message}", remedy
    if isinstance(error, ssl.SSLError):
        text = error.reason or str(error)
        return f"no TLS connection: {text}", "; if it is a plain server, use redis://"
    remedy = f"; start a server there, {ANOTHER_SERVER}"
    if has_tls and isinstance(error, TimeoutError):
        remedy = f"; if it is a plain server, use redis://{remedy}"
    if isinstance(error, ConnectionRefusedError):
        return "the connection was refused", remedy
    return str(error) or type(error).__name__, remedy
