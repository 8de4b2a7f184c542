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
    questions = [
        command("CLIENT", "SETNAME", client_name),
        command("CLIENT", "ID"),
        command("INFO", "server"),
        command("INFO", "memory"),
        command("INFO", "replication"),
        command("XACKDEL", probe_key, "probe", "IDS", 1, "0-1"),
        command("XREADGROUP", "GROUP", "probe", "probe", "COUNT", 1, "CLAIM", 60_000, "STREAMS",
                probe_key, ">"),
        command("XADD", probe_key, "NOMKSTREAM", "IDMP", "probe", "probe", "*", "probe", "1"),
    ]  # fmt: skip
    return Call(
        [*opening, *questions],
        lambda replies: _read_handshake(replies[: len(opening)], replies[len(opening) :]),
    )


def login(credentials: Credentials | None) -> list[bytes]:
    """The `AUTH` request, if there is anything to say."""
    if credentials is None or credentials.password is None:
        return []
    user = [credentials.username] if credentials.username else []
    return [command("AUTH", *user, credentials.password)]


def _read_handshake(opening: Sequence[Reply], answers: Sequence[Reply]) -> ServerInfo:
    for reply in opening:
        if isinstance(reply, ReplyError):
            msg = f"the server refused the login or the database: {reply}"
            raise ConnectionFailedError(msg)
    _, client_id, server, memory, replication, xackdel, claim, idmp = answers
    if isinstance(server, ReplyError) and str(server).startswith("NOAUTH"):
        msg = f"the server wants a password and none was given: {server}"
        raise ConnectionFailedError(msg)
    facts = _facts(server) | _facts(memory) | _facts(replication)
    product = "valkey" if "valkey_version" in facts else "redis"
    info = ServerInfo(
        product=product,
        version=_version(facts.get(f"{product}_version", "")),
        is_primary=facts.get("role", "master") == "master",
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
    return info


def warn_about_eviction(info: ServerInfo, endpoint: str) -> None:
    """Say plainly, in the log, that a server which evicts keys can lose jobs."""
    if info.eviction_policy != _NO_EVICTION:
        log.warning(
            "%s (%s) runs with maxmemory-policy %s: it may evict jobs when memory is full; "
            "set maxmemory-policy noeviction on a server that holds queues",
            endpoint, info, info.eviction_policy,
        )  # fmt: skip


def _knows(reply: Reply) -> bool:
    """Whether a probe was understood: refusing it for want of a group is understanding it."""
    if not isinstance(reply, ReplyError):
        return True
    return str(reply).startswith(("NOGROUP", "MOVED", "ASK", "READONLY", "CLUSTERDOWN"))


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
