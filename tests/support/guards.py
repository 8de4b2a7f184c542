"""What must be true after a test: no key that lives for ever by accident, no task still running."""

import asyncio
import fnmatch
from collections.abc import Iterable, Iterator

import redis

from tests.support.servers import Server

# The only kinds of key that may stay without a time to live; everything else must expire.
PERMANENT_KINDS = (
    "stream",
    "dlq",
    "delayed",
    "events",
    "repeat",
    "repeat:spec:*",
    "paused",
)


NO_TIME_TO_LIVE = -1


def sweep_keys(client: redis.Redis, queue_name: str) -> list[str]:
    """Delete every key of the queue, and return those that would have lived for ever by accident.

    Queues whose names begin with `queue_name` are swept too: a test that needs a second queue
    derives its name from the first.
    """
    keys = _keys(client, queue_name)
    leaked = _leaking(client, keys)
    if keys:
        client.delete(*keys)
    return leaked


def leaks_of_all(servers: Iterable[Server]) -> list[str]:
    """The keys that would live for ever by accident on these servers, of whatever queue.

    Looks into every database. A server that was killed has nothing to show; one that is frozen goes
    on. Leaks are deleted, so that of tests that share a server only one is told of each.
    """
    return [leak for server in servers if server.is_alive for leak in _leaks_of(server)]


def _leaks_of(server: Server) -> Iterator[str]:
    server.resume()
    path, known = str(server.socket_path), server.client()
    # Who was let in before a password was asked for stays in; others have to name it.
    password = known.config_get("requirepass").get("requirepass") or None
    for database in known.info("keyspace"):
        number = int(database.removeprefix("db"))
        with redis.Redis(unix_socket_path=path, db=number, password=password) as client:
            for key in _leaking(client, _keys(client)):
                client.delete(key)
                yield f"{key} in {database} of {server.name}"


def _keys(client: redis.Redis, beginning: str = "") -> list[bytes]:
    return sorted(client.scan_iter(match="{chasqui:" + beginning + "*", count=1000))


def _leaking(client: redis.Redis, keys: Iterable[bytes]) -> list[str]:
    return [
        key.decode()
        for key in keys
        if not is_permanent(key.decode()) and client.ttl(key) == NO_TIME_TO_LIVE
    ]


def is_permanent(key: str) -> bool:
    """Say whether a key is of a kind that stays until somebody removes it."""
    _, _, kind = key.partition("}:")
    return any(fnmatch.fnmatchcase(kind, pattern) for pattern in PERMANENT_KINDS)


async def leftover_tasks() -> list[str]:
    """Return the tasks of this loop that are still pending, the caller's own left out.

    A task cancelled in the last turn gets one more turn to end.
    """
    await asyncio.sleep(0)
    own = asyncio.current_task()
    return sorted(repr(task) for task in asyncio.all_tasks() if task is not own)
