"""Which refusals of a server are ours to cure, and how.

All of them mean that the request was *not* carried out, so sending it again is always safe,
whatever the request was. That holds for scripts too: none of these states can begin while a script
runs, so a script that meets one meets it at its first write.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from hiredis import ReplyError

from chasquimq.broker.call import Reply
from chasquimq.broker.url import LAST_PORT, Address


class Cure(Enum):
    """What to do before the request is sent again."""

    LOAD_SCRIPTS = "load scripts"
    WAIT = "wait"
    RECONNECT = "reconnect"
    MOVE = "move"
    ASK = "ask"


@dataclass(frozen=True, slots=True)
class Refusal:
    """One refused request of a call: its position, its cure, and where to send it instead."""

    index: int
    cure: Cure
    text: str
    address: Address | None = None


_CURES = {
    "NOSCRIPT": Cure.LOAD_SCRIPTS,
    "LOADING": Cure.WAIT,
    "TRYAGAIN": Cure.WAIT,
    "CLUSTERDOWN": Cure.WAIT,
    "BUSY": Cure.WAIT,
    "MASTERDOWN": Cure.RECONNECT,
    "READONLY": Cure.RECONNECT,
    # A primary cut off from its replicas: another one may have been elected.
    "NOREPLICAS": Cure.RECONNECT,
    "MOVED": Cure.MOVE,
    "ASK": Cure.ASK,
}

_REDIRECTION = re.compile(r"\w+ \d+ (?P<host>\S*):(?P<port>\d{1,5})", re.ASCII)

# Before 7.0 a refusal that a script runs into arrives inside an error of the script's own.
_IN_OLD_SCRIPT = re.compile(r"ERR Error running script .*: -(READONLY|NOREPLICAS) ")

# What a blocked read gets when its server becomes a replica; `CLIENT UNBLOCK ... ERROR` has the
# same first word and is somebody's wish.
_DEMOTED = "UNBLOCKED force unblock"


def refusals(replies: Sequence[Reply], among: Iterable[int], known_host: str) -> list[Refusal]:
    """The refusals at the positions `among` that have a cure; other errors are the caller's."""
    found = []
    for index in among:
        reply = replies[index]
        if isinstance(reply, ReplyError):
            text = str(reply)
            refusal = _refusal(index, text, known_host)
            if refusal is not None:
                found.append(refusal)
    return found


def redirection(text: str, known_host: str) -> Address | None:
    """The address in a `MOVED` or `ASK`, if it is one; no host means the host that was asked."""
    found = _REDIRECTION.fullmatch(text)
    if found is None:
        return None
    host, port = found["host"].strip("[]") or known_host, int(found["port"])
    return Address(host, port) if host and 0 < port <= LAST_PORT else None


def _refusal(index: int, text: str, known_host: str) -> Refusal | None:
    kind = text.partition(" ")[0]
    if inner := _IN_OLD_SCRIPT.match(text):
        kind = inner[1]
    cure = Cure.RECONNECT if text.startswith(_DEMOTED) else _CURES.get(kind)
    if cure is None:
        return None
    if cure not in (Cure.MOVE, Cure.ASK):
        return Refusal(index, cure, text)
    address = redirection(text, known_host)
    return Refusal(index, cure, text, address) if address else None
