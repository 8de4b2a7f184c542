"""Several servers that belong together: a cluster of two, a primary with replica and sentinel."""

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import redis

from chasquimq.broker.topology import key_slot
from tests.support.eventually import eventually_sync
from tests.support.servers import Server, ServerBinary, free_port

SLOTS = 16_384
HALF = SLOTS // 2
STOP_SECS = 10
SETTLE_SECS = 30.0
MIGRATE_MS = 5_000


class Cluster:
    """Two nodes, each the owner of half of the slots."""

    def __init__(self, binary: ServerBinary, arguments: Sequence[str] = ()) -> None:
        """Start the nodes, introduce them, and return when both serve."""
        self.nodes = [ClusterNode(binary, free_port(), arguments) for _ in range(2)]
        for number, node in enumerate(self.nodes):
            client = node.client()
            _run(client, "CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            _run(client, "CLUSTER", "ADDSLOTSRANGE", number * HALF, number * HALF + HALF - 1)
        first, second = self.nodes
        _run(first.client(), "CLUSTER", "MEET", "127.0.0.1", second.port, second.bus_port)
        self.wait_until_it_serves()

    def url(self, *nodes: Server) -> str:
        """The cluster, entered at these nodes."""
        return "redis-cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes)

    def wait_until_it_serves(self) -> None:
        """Return when every node says that all is well and knows who has which slots."""
        eventually_sync(lambda: all(map(_serves, self.nodes)), SETTLE_SECS)

    def owner(self, key: bytes) -> Server:
        """The node that has the slot of `key`, by its own word.

        For a moment of a move both say so, or neither: it is asked again then.
        """
        slot = key_slot(key)

        def owner() -> Server | None:
            owners = [node for node in self.nodes if _has_slot(node, slot)]
            return owners[0] if len(owners) == 1 else None

        found = eventually_sync(owner, SETTLE_SECS)
        assert found is not None
        return found

    def other(self, node: Server) -> Server:
        """The node that is not this one."""
        [other] = [each for each in self.nodes if each is not node]
        return other

    def begin_move(self, key: bytes) -> "Move":
        """Declare that the slot of `key` moves to the node that does not have it.

        Waits until each node knows the other's latest epoch. A move made before that may be undone
        by the gossip about the one before it, and leave a slot that each node ascribes to the
        other.
        """
        eventually_sync(lambda: _epochs(self.nodes[0]) == _epochs(self.nodes[1]), SETTLE_SECS)
        return Move(self.owner(key), self.other(self.owner(key)), key_slot(key))

    def close(self) -> None:
        """End the nodes."""
        for node in self.nodes:
            node.close()


class ClusterNode(Server):
    """A server that talks to the other nodes on a port of its own choosing."""

    def __init__(self, binary: ServerBinary, bus_port: int, arguments: Sequence[str] = ()) -> None:
        """Start it; the usual bus port, 10,000 above, may not exist."""
        self.bus_port = bus_port
        settings = {
            "cluster-enabled": "yes",
            "cluster-port": str(bus_port),
            "cluster-node-timeout": "2000",
            "cluster-require-full-coverage": "no",
        }
        words = [word for k, v in settings.items() for word in (f"--{k}", v)]
        super().__init__(binary, [*words, *arguments])


class Move:
    """One slot on its way from one node to another, step by step."""

    def __init__(self, source: Server, destination: Server, slot: int) -> None:
        """From here on the source answers `ASK` for keys that it does not have."""
        self.source, self.destination, self._slot = source, destination, slot
        ids = [_run(node.client(), "CLUSTER", "MYID") for node in (source, destination)]
        self._source_id, self._destination_id = ids
        self._set(destination, "IMPORTING", self._source_id)
        self._set(source, "MIGRATING", self._destination_id)

    def move_key(self, key: bytes) -> None:
        """Take one key over."""
        self._migrate([key])

    def arrive(self) -> None:
        """Take all keys over, and let the destination have the slot; the source still asks."""
        while keys := self._keys():
            self._migrate(keys)
        self._set(self.destination, "NODE", self._destination_id)

    def finish(self) -> None:
        """Take all keys over, and then the slot itself."""
        self.arrive()
        self._set(self.source, "NODE", self._destination_id)

    def _keys(self) -> list[bytes]:
        client = self.source.client()
        keys: list[bytes] = _run(client, "CLUSTER", "GETKEYSINSLOT", self._slot, 100)
        return keys

    def _migrate(self, keys: list[bytes]) -> None:
        _run(
            self.source.client(),
            "MIGRATE",
            "127.0.0.1",
            self.destination.port,
            "",
            0,
            MIGRATE_MS,
            "KEYS",
            *keys,
        )

    def _set(self, node: Server, state: str, of: bytes) -> None:
        _run(node.client(), "CLUSTER", "SETSLOT", self._slot, state, of)


def _run(client: redis.Redis, *words: str | bytes | int) -> Any:
    return client.execute_command(*words)  # type: ignore[no-untyped-call]


def _serves(node: Server) -> bool:
    client = node.client()
    facts = _run(client, "CLUSTER", "INFO")
    text = facts.decode() if isinstance(facts, bytes) else str(facts)
    is_ok = "ok" in text.partition("cluster_state")[2][:8]
    ranges = _run(client, "CLUSTER", "SLOTS")
    return is_ok and sum(each[1] - each[0] + 1 for each in ranges) == SLOTS


def _epochs(node: Server) -> dict[str, str]:
    """The configuration epoch of every node, as this one knows it."""
    listed = _text(_run(node.client(), "CLUSTER", "NODES"))
    return {words[0]: words[6] for words in map(str.split, listed.splitlines())}


def _has_slot(node: Server, slot: int) -> bool:
    mine = node.port
    for first, last, primary, *_ in _run(node.client(), "CLUSTER", "SLOTS"):
        if first <= slot <= last:
            return int(primary[1]) == mine
    return False


class Sentinel:
    """A sentinel process that watches one primary."""

    def __init__(
        self, binary: ServerBinary, primary: Server, service: str, *, down_after_ms: int = 2_000
    ) -> None:
        """Start it and return when it knows the primary's replica."""
        self.port = free_port()
        self._directory = Path(tempfile.mkdtemp(prefix="chasqui-"))
        config = self._directory / "sentinel.conf"
        config.write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {self._directory}\n"
            f"logfile {self._directory}/log\n"
            f"sentinel monitor {service} 127.0.0.1 {primary.port} 1\n"
            f"sentinel down-after-milliseconds {service} {down_after_ms}\n"
            f"sentinel failover-timeout {service} 10000\n",
            encoding="utf-8",
        )
        if binary.path is None:
            message = f"{binary.name} is not there: {binary.reason}"
            raise RuntimeError(message)
        command = [binary.path, str(config), "--sentinel"]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        self._client = redis.Redis(port=self.port)
        self._service = service
        eventually_sync(lambda: self._try(lambda: self._facts()["num-slaves"] == "1"), SETTLE_SECS)

    def ask(self, *words: str | int) -> Any:
        """The answer to a command."""
        return _run(self._client, *words)

    def fail_over(self) -> None:
        """Promote the replica, and return when the sentinel names it as the primary."""
        before = self._facts()["port"]
        # A replica counts as fit only once its state has been seen.
        eventually_sync(lambda: self._try(lambda: self.ask("SENTINEL", "FAILOVER", self._service)))
        eventually_sync(lambda: self._facts()["port"] != before, SETTLE_SECS)

    def close(self) -> None:
        """End it."""
        self._client.close()
        self._process.terminate()
        self._process.wait(STOP_SECS)
        shutil.rmtree(self._directory, ignore_errors=True)

    def _facts(self) -> dict[str, str]:
        flat = _run(self._client, "SENTINEL", "MASTER", self._service)
        if isinstance(flat, dict):
            return {_text(name): _text(value) for name, value in flat.items()}
        words = [_text(word) for word in flat]
        return dict(zip(words[::2], words[1::2], strict=True))

    @staticmethod
    def _try(question: Callable[[], Any]) -> bool:
        try:
            return bool(question())
        except redis.RedisError:
            return False


def _text(word: object) -> str:
    return word.decode() if isinstance(word, bytes) else str(word)
