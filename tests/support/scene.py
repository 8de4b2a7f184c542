"""A queue, workers on it, and what both leave behind on the server."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import redis

from chasquimq import Job, Queue, RetryConfig, Worker
from chasquimq.wire.event import QueueEvent, parse_event
from chasquimq.wire.keys import QueueKeys
from tests.support.leases import with_lease
from tests.support.servers import Server
from tests.support.sink import PATIENCE_SECS, RecordingSink

GROUP = "default"
QUICK_RETRIES = RetryConfig(initial_backoff_ms=1, max_backoff_ms=5, jitter_ms=0)


class Scene:
    """One queue of a test: add to it, work on it, look at what is stored."""

    def __init__(self, server: Server, queue_name: str) -> None:
        """Nothing is connected yet."""
        self.server = server
        self.name = queue_name
        self.keys = QueueKeys(queue_name)
        self.queue = Queue(queue_name, redis_url=server.socket_url)

    @property
    def client(self) -> redis.Redis:
        """A raw client, bytes in and out."""
        return self.server.client()

    def worker(
        self,
        handler: Callable[[Job], Any],
        *,
        sink: RecordingSink | None = None,
        lease_ms: int | None = None,
        **options: Any,
    ) -> Worker:
        """A worker that retries soon, stops soon, and leaves signals alone.

        `lease_ms` is for a lease shorter than users may choose.
        """
        usual: dict[str, Any] = {
            "redis_url": self.server.socket_url,
            "retry": QUICK_RETRIES,
            "max_attempts": 3,
            "shutdown_deadline_secs": 5,
            "handle_signals": False,
            "metrics": sink,
        }
        worker = Worker(self.name, handler, **usual | options)
        with_lease(worker._config, lease_ms)  # noqa: SLF001 -- users have no such door
        return worker

    @asynccontextmanager
    async def working(
        self, handler: Callable[[Job], Any], **options: Any
    ) -> AsyncIterator[RecordingSink]:
        """A worker at work; it has drained and stopped when the block is left."""
        sink = RecordingSink()
        async with running(self.worker(handler, sink=sink, **options)):
            yield sink

    # What is stored

    def events(self, *names: str, job_id: str | None = None) -> list[QueueEvent]:
        """The events told so far, of these names, of this job; all without."""
        rows: Any = self.client.xrange(self.keys.events)
        events = [parse_event(entry_id, _flat(fields)) for entry_id, fields in rows]
        return [
            event
            for event in events
            if (not names or event.name in names) and (job_id is None or event.job_id == job_id)
        ]

    def story(self, job_id: str) -> list[str]:
        """The names of the events of one job, in order."""
        return [event.name for event in self.events(job_id=job_id)]

    def depth(self) -> int:
        """How many entries the stream holds."""
        return int(self.client.xlen(self.keys.stream))

    def pending(self) -> list[dict[str, Any]]:
        """What the group's book says is in flight: entry, consumer, idle time, deliveries."""
        try:
            rows: Any = self.client.xpending_range(self.keys.stream, GROUP, "-", "+", 1_000)
        except redis.ResponseError as error:
            if "NOGROUP" in str(error):
                return []
            raise
        return [{_text(key): value for key, value in row.items()} for row in rows]

    def consumers(self) -> list[str]:
        """The names in the group."""
        rows: Any = self.client.xinfo_consumers(self.keys.stream, GROUP)
        return [row["name"].decode() for row in rows]

    def delayed(self) -> int:
        """How many jobs are delayed."""
        return int(self.client.zcard(self.keys.delayed))

    def is_reading(self) -> bool:
        """Whether a worker's read is open on the server."""
        clients: Any = self.client.client_list()
        return any(each["cmd"] == "xreadgroup" and "b" in each["flags"] for each in clients)

    async def dead(self) -> list[dict[str, Any]]:
        """The dead letters."""
        return await self.queue.peek_dlq(1_000)

    def is_empty(self) -> bool:
        """Whether no job is left anywhere but in the DLQ."""
        return self.depth() == 0 and self.delayed() == 0 and not self.pending()

    def add_raw(self, fields: dict[str | bytes, str | bytes]) -> str:
        """Put an entry on the stream as it is; its id."""
        entry: Any = fields
        entry_id: Any = self.client.xadd(self.keys.stream, entry)
        return str(entry_id.decode())


@asynccontextmanager
async def running(worker: Worker) -> AsyncIterator[Worker]:
    """The worker at work; it has drained and stopped when the block is left."""
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        await worker.close()
        await soon(task)


async def soon(awaitable: Awaitable[Any]) -> Any:
    """What `awaitable` gives, or a failure if it takes longer than a sound system could."""
    async with asyncio.timeout(PATIENCE_SECS):
        return await awaitable


def _flat(fields: dict[bytes, bytes]) -> list[bytes]:
    return [part for pair in fields.items() for part in pair]


def _text(key: str | bytes) -> str:
    return key.decode() if isinstance(key, bytes) else key
