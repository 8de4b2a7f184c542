"""RQ with its `SimpleWorker`, which does not fork for each job; in a thread, one job at a time."""

import threading
from collections.abc import Sequence

from redis import Redis
from rq import Queue, SimpleWorker
from rq.timeouts import TimerDeathPenalty

from bench.program.adapter import QUEUE, Adapter, Data, Handle
from bench.program.order import Order

_JOB = f"{__name__}.run"
_handles: list[Handle] = []


def run(data: Data) -> None:
    """The job: RQ finds it by its name."""
    _handles[-1](data)


class Rival(Adapter):
    """A `Queue` and a `SimpleWorker`. Adding is blocking: there is no other way."""

    def __init__(self, order: Order) -> None:
        """Make the queue."""
        super().__init__(order)
        self._redis = Redis(host="127.0.0.1", port=order.port)
        self._queue = Queue(QUEUE, connection=self._redis)

    async def add(self, data: Data) -> None:
        """One `enqueue`; no result is kept."""
        self._queue.enqueue(_JOB, data, result_ttl=0)

    async def add_bulk(self, many: Sequence[Data]) -> None:
        """One `enqueue_many`."""
        prepared = [Queue.prepare_data(_JOB, args=(data,), result_ttl=0) for data in many]
        self._queue.enqueue_many(prepared)

    async def start(self, handle: Handle) -> None:
        """Run a worker in a thread that ends with this process: it has no other way to be told."""
        _handles.append(handle)
        worker = SimpleWorker([self._queue], connection=self._redis)
        # Signals belong to the main thread.
        worker.death_penalty_class = TimerDeathPenalty
        worker._install_signal_handlers = lambda: None  # noqa: SLF001 -- the known way
        threading.Thread(target=worker.work, name="rq", daemon=True).start()

    def pending(self) -> int:
        """Waiting, between two lists, and running."""
        waiting = self.server.run("LLEN", f"rq:queue:{QUEUE}")
        between = self.server.run("LLEN", f"rq:queue:{QUEUE}:intermediate")
        return int(waiting) + int(between) + int(self.server.run("ZCARD", f"rq:wip:{QUEUE}"))
