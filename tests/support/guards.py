"""What must be true after a test: no key that lives for ever by accident, no task still running."""

import asyncio
import fnmatch

import redis

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


def sweep_keys(client: redis.Redis, queue_name: str) -> list[str]:
    """Delete every key of the queue, and return those that would have lived for ever by accident.

    Queues whose names begin with `queue_name` are swept too: a test that needs a second queue
    derives its name from the first.
    """
    keys = sorted(client.scan_iter(match="{chasqui:" + queue_name + "*", count=1000))
    leaked = [
        key.decode()
        for key in keys
        if not is_permanent(key.decode()) and client.ttl(key) == NO_TIME_TO_LIVE
    ]
    if keys:
        client.delete(*keys)
    return leaked


NO_TIME_TO_LIVE = -1


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
