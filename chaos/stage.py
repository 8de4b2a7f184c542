"""Where it is played: a server, its ways in, and its siblings if there are any."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support.eventually import eventually_sync
from tests.support.proxy import Proxy
from tests.support.servers import Server, ServerBinary, known_servers
from tests.support.topologies import Cluster, Sentinel

# What is acknowledged is on disk: a server that is killed must not be what loses a job.
DURABLE = ("--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction",
           "--repl-diskless-sync-delay", "0")  # fmt: skip
# A primary that comes back and does not know yet that it is none takes no writes: without this,
# whoever asked the sentinel a moment too soon would tell it things that nobody ever hears of.
_ACCOMPANIED = ("--min-replicas-to-write", "1")
# A busy machine must not look like a dead primary: what the nemesis did not do it cannot excuse.
_DOWN_AFTER_MS = 6_000
SERVICE = "chaos"
_SETTLE_SECS = 60


class Stage(ABC):
    """The servers of a run."""

    url: str
    """The way to the server that nobody disturbs."""

    def __init__(self) -> None:
        """No client is needed yet."""
        self._clients: dict[str, redis.Redis] = {}

    @abstractmethod
    def url_of(self, name: str) -> str:
        """The way that an actor takes."""

    @abstractmethod
    def primary(self) -> Server:
        """The server that has the queue at this moment."""

    def close(self) -> None:
        """End it."""
        for client in self._clients.values():
            client.close()

    def client(self) -> redis.Redis:
        """A raw client of the primary; its calls fail soon if nobody answers, and are sent once."""
        path = str(self.primary().socket_path)
        if path not in self._clients:
            once = Retry(NoBackoff(), 0)
            self._clients[path] = redis.Redis(unix_socket_path=path, socket_timeout=5, retry=once)
        return self._clients[path]

    def run(self, *words: str | bytes | int) -> Any:  # noqa: ANN401 -- a reply
        """The primary's answer to a command."""
        return self.client().execute_command(*words)  # type: ignore[no-untyped-call]

    def is_up(self) -> bool:
        """Whether the primary answers, and takes writes."""
        with suppress(redis.RedisError, ValueError, AssertionError):
            return self.run("ROLE")[0] in (b"master", "master")
        return False


class Single(Stage):
    """One server, and a proxy of its own for every actor."""

    def __init__(self, binary: ServerBinary, arguments: Sequence[str] = DURABLE) -> None:
        """Start the server."""
        super().__init__()
        self.server = Server(binary, arguments)
        self.url = self.server.url
        self.proxies: dict[str, Proxy] = {}

    def url_of(self, name: str) -> str:
        """Through the actor's proxy."""
        self.proxies[name] = Proxy(self.server.port, remembers=False)
        return self.proxies[name].url

    def primary(self) -> Server:
        """The server."""
        return self.server

    def is_read_by(self, stream: bytes, workers: int) -> bool:
        """Whether the stream's group has as many consumers."""
        client = self.server.client()
        groups: Any = client.xinfo_groups(stream) if client.exists(stream) else []
        return bool(groups) and groups[0]["consumers"] == workers

    def close(self) -> None:
        """End the proxies and the server."""
        super().close()
        for proxy in self.proxies.values():
            proxy.close()
        self.server.close()


class Watched(Stage):
    """A primary and a replica that change places, under a sentinel."""

    def __init__(self, binary: ServerBinary) -> None:
        """Start all three."""
        super().__init__()
        first = Server(binary, (*DURABLE, *_ACCOMPANIED))
        following = ("--replicaof", f"127.0.0.1 {first.port}")
        second = Server(binary, (*DURABLE, *_ACCOMPANIED, *following))
        self.servers = [first, second]
        self.sentinel = Sentinel(binary, first, SERVICE, down_after_ms=_DOWN_AFTER_MS)
        self.until_in_step()
        self.url = f"redis+sentinel://127.0.0.1:{self.sentinel.port}/{SERVICE}"

    def url_of(self, name: str) -> str:  # noqa: ARG002
        """By asking the sentinel."""
        return self.url

    def primary(self) -> Server:
        """The one that the sentinel names."""
        _, port = self.sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
        [primary] = [server for server in self.servers if server.port == int(port)]
        return primary

    def replica(self) -> Server:
        """The other one."""
        primary = self.primary()
        [replica] = [server for server in self.servers if server is not primary]
        return replica

    def until_in_step(self) -> None:
        """Return when the replica follows the primary, with all it has."""
        eventually_sync(self._is_in_step, _SETTLE_SECS)

    def _is_in_step(self) -> bool:
        """Whether each of the two says that it plays its part, and with whom."""
        with suppress(redis.RedisError, ValueError, KeyError):
            primary, replica = self.primary(), self.replica()
            leads = primary.client().info("replication")
            follows = replica.client().info("replication")
            follower = leads.get("slave0", {})
            return (
                (leads["role"], follows["role"]) == ("master", "slave")
                and (follower.get("port"), follower.get("state")) == (replica.port, "online")
                and follows["master_port"] == primary.port
                and follows["master_link_status"] == "up"
            )
        return False

    def close(self) -> None:
        """End all three."""
        super().close()
        self.sentinel.close()
        for server in self.servers:
            server.close()


class Spread(Stage):
    """A cluster of two nodes; the queue's slot moves between them."""

    def __init__(self, binary: ServerBinary, slot_key: bytes) -> None:
        """Start the nodes."""
        super().__init__()
        self.cluster = Cluster(binary, DURABLE)
        self._slot_key = slot_key
        self.url = self.cluster.url(*self.cluster.nodes)

    def url_of(self, name: str) -> str:  # noqa: ARG002
        """By either node."""
        return self.url

    def primary(self) -> Server:
        """The node that has the queue's slot."""
        return self.cluster.owner(self._slot_key)

    def is_up(self) -> bool:
        """Whether the nodes believe one another to be there: until then they refuse everything."""
        with suppress(redis.RedisError, ValueError, AssertionError):
            return super().is_up() and all(map(_is_sound, self.cluster.nodes))
        return False

    def close(self) -> None:
        """End the nodes."""
        super().close()
        self.cluster.close()


def _is_sound(node: Server) -> bool:
    facts: Any = node.client().execute_command("CLUSTER", "INFO")  # type: ignore[no-untyped-call]
    return "ok" in str(facts).partition("cluster_state")[2][:10]


def build(topology: str, server: str, slot_key: bytes) -> Stage:
    """The servers of a topology; `RuntimeError` if the server is not to be had."""
    binary = known_servers()[server]
    if topology == "sentinel":
        return Watched(binary)
    if topology == "cluster":
        return Spread(binary, slot_key)
    return Single(binary)
