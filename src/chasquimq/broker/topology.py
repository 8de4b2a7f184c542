"""Finds the address of the server that holds a queue: given, told by a sentinel, or by a cluster.

Discovery is written as steps without I/O: it is handed `ask`, which puts a call to a server of
somebody else's choosing, so the asyncio connection and its blocking twin share it. A queue lives in
one cluster slot, hence on one server.
"""

from collections.abc import Callable, Generator
from typing import Any, TypeAlias

from chasquimq.broker.call import Call, Reply, call
from chasquimq.broker.url import LAST_PORT, Address, Target, TargetKind
from chasquimq.errors import ChasquiError, ConnectionFailedError, RedisError

SLOTS = 16_384

Discovery: TypeAlias = Generator[Any, Any, Address]
# Puts a call to the server at an address, over a connection of its own, and gives the answer.
Asking: TypeAlias = Callable[[Address, Call[Any]], Generator[Any, Any, Any]]


SlotRange: TypeAlias = tuple[int, int, list[tuple[str, int]]]
"""The first slot, the last, and host and port of those who have them, the primary first."""


class Topology:
    """Knows where to look; remembers what redirections and earlier answers taught."""

    def __init__(self, target: Target, slot_key: bytes) -> None:
        """Look for the server of `slot_key`, starting from the addresses in `target`."""
        self._target = target
        self._slot = key_slot(slot_key)
        self._nodes: list[Address] = list(target.addresses)
        self._owner: Address | None = None

    def moved_to(self, address: Address) -> None:
        """Remember that the cluster named `address` as the owner of our slot."""
        self._owner = address

    def forget_owner(self) -> None:
        """The owner did not answer: ask again next time."""
        self._owner = None

    def discover(self, ask: Asking) -> Discovery:
        """Ask around; return the address. Raises `ConnectionFailedError` if nobody knows."""
        match self._target.kind:
            case TargetKind.SENTINEL:
                return (yield from self._ask_sentinels(ask))
            case TargetKind.CLUSTER if self._owner is None:
                return (yield from self._ask_cluster(ask))
            case TargetKind.CLUSTER:
                assert self._owner is not None  # noqa: S101 -- the case above
                return self._owner
            case _:
                return self._nodes[0]

    def _ask_sentinels(self, ask: Asking) -> Discovery:
        service = self._target.service or ""
        question = primary_of(service)
        problems = []
        for sentinel in list(self._nodes):
            try:
                primary = yield from ask(sentinel, question)
            except (RedisError, OSError) as error:
                problems.append(f"{sentinel}: {_text(error)}")
                continue
            if primary is not None:
                self._prefer(sentinel)
                return Address(*primary)
            problems.append(f"{sentinel}: knows no service {service!r}")
        msg = f"no sentinel named a primary for {service!r} ({'; '.join(problems)})"
        raise ConnectionFailedError(msg)

    def _ask_cluster(self, ask: Asking) -> Discovery:
        problems = []
        for node in list(self._nodes):
            try:
                slots = yield from ask(node, slot_ranges())
            except (RedisError, OSError) as error:
                problems.append(f"{node}: {_text(error)}")
                continue
            owner = self._learn(slots, node)
            if owner is not None:
                self._owner = owner
                return owner
            problems.append(f"{node}: slot {self._slot} has no owner")
        msg = f"no cluster node names an owner for slot {self._slot} ({'; '.join(problems)})"
        raise ConnectionFailedError(msg)

    def _learn(self, slots: list[SlotRange], asked: Address) -> Address | None:
        """Take in who has which slots: the nodes there are now, and the primary of our slot.

        Nodes that have left are forgotten, those of the URL never: of a cluster whose addresses all
        changed the URL's names may be the only ones that still lead anywhere.
        """
        owner = None
        nodes = [asked]
        for first, last, servers in slots:
            for rank, (host, port) in enumerate(servers):
                address = Address(asked.host if host in _UNKNOWN_HOSTS else host, port)
                nodes.append(address)
                if rank == 0 and first <= self._slot <= last:
                    owner = address
        self._nodes = list(dict.fromkeys([*nodes, *self._target.addresses]))
        return owner

    def _prefer(self, sentinel: Address) -> None:
        self._nodes.remove(sentinel)
        self._nodes.insert(0, sentinel)


# How a node says that it does not know its own name: use the one by which it was reached.
_UNKNOWN_HOSTS = ("", "?")


def _text(error: Exception) -> str:
    if isinstance(error, ChasquiError):
        return error.message
    return str(error) or type(error).__name__


def primary_of(service: str) -> Call[tuple[str, int] | None]:
    """Ask a sentinel for the primary of a service; None if it knows no such service."""
    return call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", service, read=_read_primary)


def slot_ranges() -> Call[list[SlotRange]]:
    """Ask a cluster node who has which slots."""
    return call("CLUSTER", "SLOTS", read=_read_ranges)


def _read_ranges(reply: Reply) -> list[SlotRange]:
    return [
        (
            int(first),
            int(last),
            [(_host(host), _port(port)) for host, port, *_ in servers],
        )
        for first, last, *servers in reply
    ]


def _host(raw: Reply) -> str:
    return raw.decode() if raw else ""


def _port(raw: Reply) -> int:
    port = int(raw)
    if not 0 < port <= LAST_PORT:
        msg = f"{port} is no port"
        raise ValueError(msg)
    return port


def _read_primary(reply: Reply) -> tuple[str, int] | None:
    return None if reply is None else (reply[0].decode(), _port(reply[1]))


def key_slot(key: bytes) -> int:
    """The cluster slot of a key: CRC16 (XMODEM) of its hash tag, or of all of it."""
    opening = key.find(b"{")
    if opening >= 0:
        closing = key.find(b"}", opening + 1)
        if closing > opening + 1:
            key = key[opening + 1 : closing]
    crc = 0
    for byte in key:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1) ^ 0x1021 if crc & 0x8000 else crc << 1
        crc &= 0xFFFF
    return crc % SLOTS
