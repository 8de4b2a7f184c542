"""Celery on Redis, with ten threads in this process; no results, gossip, mingling or heartbeat."""

import threading
import time

from celery import Celery

from bench.program.adapter import QUEUE, Adapter, Data, Handle
from bench.program.order import Order

_THREADS = 10


class Rival(Adapter):
    """An app. Adding is blocking: there is no other way."""

    def __init__(self, order: Order) -> None:
        """Make the app and its task."""
        super().__init__(order)
        self._handle: Handle = lambda _: None
        counting = threading.Lock()
        self._app = Celery("bench", broker=f"{order.url}/0", set_as_current=True)
        self._app.conf.update(
            task_ignore_result=True,
            task_default_queue=QUEUE,
            worker_prefetch_multiplier=10,
            worker_hijack_root_logger=False,
            worker_send_task_events=False,
            broker_connection_retry_on_startup=True,
        )

        def run(data: Data) -> None:
            with counting:
                self._handle(data)

        self._task = self._app.task(run, name="fn")
        self._app.finalize()
        self._producer = self._app.amqp.producer_pool.acquire(block=True)

    async def add(self, data: Data) -> None:
        """One `apply_async`."""
        self._task.apply_async(args=(data,), producer=self._producer)

    async def add_at(self, data: Data, due_s: float) -> None:
        """With a countdown."""
        countdown = max(0, due_s - time.time())
        self._task.apply_async(args=(data,), producer=self._producer, countdown=countdown)

    async def start(self, handle: Handle) -> None:
        """Run a worker in a thread that ends with this process."""
        self._handle = handle
        worker = self._app.WorkController(
            app=self._app,
            pool="threads",
            concurrency=min(_THREADS, self.order.concurrency),
            hostname="bench@localhost",
            without_heartbeat=True,
            without_mingle=True,
            without_gossip=True,
        )
        threading.Thread(target=worker.start, name="celery", daemon=True).start()

    def pending(self) -> int:
        """Waiting, and taken but not acknowledged."""
        return int(self.server.run("LLEN", QUEUE)) + int(self.server.run("HLEN", "unacked"))
