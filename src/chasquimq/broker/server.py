"""What this server can do, asked once per connection, and which variant of a command we may use.

Nothing else in the project asks for versions. The three modern commands are probed by their effect
on a key that does not exist, because forks and managed services change version numbers, not
behaviour.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from hiredis import ReplyError

from chasquimq.broker.call import Call, Reply, command
from chasquimq.errors import ConnectionFailedError, ServerTooOldError

log = logging.getLogger("chasquimq.broker")

_OLDEST = {"redis": (6, 2), "valkey": (7, 2)}
_NO_EVICTION = "noeviction"

# Refusals that end by themselves.
_NOT_YET = ("LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN")
_CREDENTIALS = "put user:password@ or :password@ before the host, or give a credential_provider"


class ServerNotReadyError(ConnectionFailedError):
    """The server is there and cannot work yet: worth waiting for, even at the start."""


class SlotElsewhereError(ConnectionFailedError):
    """This cluster node does not hold our slot; `redirection` is its own word for who does."""

    def __init__(self, redirection: str) -> None:
        """Keep the server's text."""
        self.redirection = redirection
        super().__init__(f"the slot of this queue is on another node of the cluster: {redirection}")


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user name and a password for one authentication; neither is ever printed."""

    username: str | None
    password: str | None

    def __repr__(self) -> str:
        """Say that there are credentials, not what they are."""
        return "<Credentials>"


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What one server told about itself when the connection was made."""

    product: str
    version: tuple[int, ...]
    is_primary: bool
    eviction_policy: str
    has_xackdel: bool
    has_claim: bool
    has_idmp: bool
    client_id: int = 0
    """The server's number for this connection; 0 if it does not tell."""

    def __str__(self) -> str:
        """Product and version as people write them."""
        return f"{self.product} {'.'.join(map(str, self.version)) or '(version hidden)'}"


def handshake(
    credentials: Credentials | None, *, database: int, client_name: str, probe_key: bytes
) -> Call[ServerInfo]:
    """Authenticate, choose the database and ask what the server can do, in one round trip."""
    opening = login(credentials)
    if database:
        opening.append(command("SELECT", database))
    # At most ten words each: on longer ones a server hangs up before a login, instead of saying
    # that it wants one.
    questions = [
        command("CLIENT", "SETNAME", client_name),
        command("CLIENT", "ID"),
        command("INFO", "server"),
        command("INFO", "memory"),
        command("INFO", "replication"),
        command("XACKDEL", probe_key, "probe", "IDS", 1, "0-1"),
        command("XREADGROUP", "GROUP", "probe", "probe", "CLAIM", 60_000, "STREAMS", probe_key,
                ">"),
        command("XADD", probe_key, "NOMKSTREAM", "IDMP", "probe", "probe", "*", "probe", "1"),
    ]  # fmt: skip

    def read(replies: list[Reply]) -> ServerInfo:
        _check_opening(replies[: len(opening)], credentials)
        return _read_answers(replies[len(opening) :])

    return Call([*opening, *questions], read)


def login(credentials: Credentials | None) -> list[bytes]:
    """The `AUTH` request, if there is anything to say."""
    if credentials is None or credentials.password is None:
        return []
    user = [credentials.username] if credentials.username else []
    return [command("AUTH", *user, credentials.password)]


def check_login(reply: Reply, credentials: Credentials) -> None:
    """Raise if the server refused the login; a password that it repeats is not passed on."""
    _check_readiness([reply])
    if isinstance(reply, ReplyError):
        text = str(reply).replace(credentials.password or "\0", "***").rstrip(".")
        msg = f"the server refused the login: {text}: check user and password"
        raise ConnectionFailedError(msg)


def _check_opening(opening: Sequence[Reply], credentials: Credentials | None) -> None:
    """Raise the first refusal of `AUTH` and `SELECT`, whichever of them were sent."""
    replies = list(opening)
    if credentials is not None and login(credentials):
        check_login(replies.pop(0), credentials)
    _check_readiness(replies)
    for reply in replies:
        if isinstance(reply, ReplyError):
            msg = f"the server refused the database: {reply}: choose one that it has"
            raise ConnectionFailedError(msg)


def _read_answers(answers: Sequence[Reply]) -> ServerInfo:
    _, client_id, server, memory, replication, *probes = answers
    _check_readiness([server, *probes])
    facts = _facts(server) | _facts(memory) | _facts(replication)
    product = "valkey" if "valkey_version" in facts else "redis"
    xackdel, claim, idmp = probes
    info = ServerInfo(
        product=product,
        version=_version(facts.get(f"{product}_version", "")),
        is_primary=facts.get("role", "master") == "master" and not _is(idmp, "READONLY"),
        eviction_policy=facts.get("maxmemory_policy", _NO_EVICTION),
        has_xackdel=_knows(xackdel),
        has_claim=_knows(claim),
        has_idmp=_knows(idmp),
        client_id=client_id if isinstance(client_id, int) else 0,
    )
    if info.version and info.version[:2] < _OLDEST[product]:
        oldest = ".".join(map(str, _OLDEST[product]))
        msg = f"the server is {info}; ChasquiMQ needs {product} {oldest} or newer: upgrade it"
        raise ServerTooOldError(msg)
    moved = next((reply for reply in probes if _is(reply, "MOVED")), None)
    if moved is not None:
        raise SlotElsewhereError(str(moved))
    return info


def _check_readiness(replies: Sequence[Reply]) -> None:
    """Raise if the server is there and cannot answer yet: what it says then says nothing."""
    for reply in replies:
        if _is(reply, *_NOT_YET):
            raise ServerNotReadyError(str(reply))
        if _is(reply, "NOAUTH"):
            msg = f"the server wants a password and none was given ({reply}): {_CREDENTIALS}"
            raise ConnectionFailedError(msg)


# What was said already: a worker has several connections to one server.
_warned: set[tuple[str, str]] = set()


def warn_about_eviction(info: ServerInfo, endpoint: str) -> None:
    """Say plainly, in the log, once per process, that a server which evicts keys can lose jobs."""
    case = endpoint, info.eviction_policy
    if info.eviction_policy != _NO_EVICTION and case not in _warned:
        _warned.add(case)
        log.warning(
            "%s (%s) runs with maxmemory-policy %s: it may evict jobs when memory is full; "
            "set maxmemory-policy noeviction on a server that holds queues",
            endpoint, info, info.eviction_policy,
        )  # fmt: skip


def _knows(reply: Reply) -> bool:
    """Whether a probe was understood: refusing it for want of a group is understanding it.

    A cluster node redirects, and a replica refuses, before they look at the options of a command:
    then nothing was learnt, and what every server has is used until the next connection.
    """
    return not isinstance(reply, ReplyError) or _is(reply, "NOGROUP")


def _is(reply: Reply, *kinds: str) -> bool:
    return isinstance(reply, ReplyError) and str(reply).partition(" ")[0] in kinds


def _facts(reply: Reply) -> dict[str, str]:
    if not isinstance(reply, bytes):
        return {}
    pairs = (line.partition(":") for line in reply.decode("utf-8", "replace").splitlines())
    return {name: value for name, colon, value in pairs if colon}


def _version(text: str) -> tuple[int, ...]:
    numbers = []
    for part in text.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)
