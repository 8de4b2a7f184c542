"""dramatiq on Redis, with eight threads in this process, which is its default."""

import threading
import time

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.worker import Worker

from bench.program.adapter import Adapter, Data, Handle
from bench.program.order import Order

_THREADS = 8


class Rival(Adapter):
    """An actor and a `Worker`. Adding is blocking: there is no other way."""

    def __init__(self, order: Order) -> None:
        """Make the broker and the actor."""
        super().__init__(order)
        self._broker = RedisBroker(host="127.0.0.1", port=order.port)
        self._handle: Handle = lambda _: None
        counting = threading.Lock()

        def run(data: Data) -> None:
            with counting:
                self._handle(data)

        self._actor = dramatiq.actor(
            run,
            actor_name="fn",
            broker=self._broker,
            max_retries=5,
            min_backoff=1,
            max_backoff=5,
        )

    async def add(self, data: Data) -> None:
        """One `send`."""
        self._actor.send(data)

    async def add_at(self, data: Data, due_s: float) -> None:
        """With a delay from now."""
        delay_ms = max(0, int((due_s - time.time()) * 1_000))
        self._actor.send_with_options(args=(data,), delay=delay_ms)

    async def add_failing(self, data: Data) -> None:
        """Like any other: the actor has the rules."""
        self._actor.send(data)

    async def start(self, handle: Handle) -> None:
        """Start the threads."""
        self._handle = handle
        self._worker = Worker(self._broker, worker_threads=min(_THREADS, self.order.concurrency))
        self._worker.start()

    async def stop(self) -> None:
        """Stop them."""
        self._worker.stop()

    def pending(self) -> int:
        """A message is in a hash until it is acknowledged."""
        hashes = ("dramatiq:default.msgs", "dramatiq:default.DQ.msgs")
        return sum(int(self.server.run("HLEN", each)) for each in hashes)
