"""Scenarios of a worker that finds its jobs waiting: from the first handler to the last ack."""

import asyncio
import time

from bench.program.adapter import Adapter, Data
from bench.program.meter import Meter
from bench.program.payloads import payload

_BULK = 1_000
_LOOK_S = 0.001
LONGEST_S = 300


class Tally:
    """Counts handled jobs, and knows when the first and the last of them were."""

    def __init__(self, jobs: int) -> None:
        """Expect so many."""
        self._jobs = jobs
        self._count = 0
        self._loop = asyncio.get_running_loop()
        self._all = asyncio.Event()
        self.first_s = 0.0
        self.last_s = 0.0

    def handle(self, _: Data | None = None) -> None:
        """Count one. From any thread, one at a time."""
        self._count += 1
        if self._count == 1:
            self.first_s = time.perf_counter()
        if self._count == self._jobs:
            self.last_s = time.perf_counter()
            self._loop.call_soon_threadsafe(self._all.set)

    async def wait(self) -> None:
        """Return when all were handled."""
        await asyncio.wait_for(self._all.wait(), LONGEST_S)


async def work(adapter: Adapter) -> dict[str, float]:
    """Work off what waits."""
    order = adapter.order
    await fill(adapter, order.jobs)
    tally = Tally(order.jobs)
    meter = Meter(adapter.server)
    await adapter.start(tally.handle)
    await tally.wait()
    ended_s = await drained(adapter)
    figures = meter.figures(order.jobs, began_s=tally.first_s, ended_s=ended_s)
    await adapter.stop()
    return figures


async def fail_once(adapter: Adapter) -> dict[str, float]:
    """Every job fails in its first run and succeeds in its second."""
    order = adapter.order
    await adapter.open()
    numbers = iter(range(order.jobs))

    async def add() -> None:
        for number in numbers:
            await adapter.add_failing({"number": number})

    await asyncio.gather(*(add() for _ in range(min(100, order.jobs))))
    tally, failed, began_s = Tally(order.jobs), bytearray(order.jobs), 0.0

    def handle(data: Data) -> None:
        nonlocal began_s
        began_s = began_s or time.perf_counter()
        number = data["number"]
        if not failed[number]:
            failed[number] = 1
            msg = "the first run fails"
            raise RuntimeError(msg)
        tally.handle()

    meter = Meter(adapter.server)
    await adapter.start(handle)
    await tally.wait()
    ended_s = await drained(adapter)
    figures = meter.figures(order.jobs, began_s=began_s, ended_s=ended_s)
    await adapter.stop()
    return figures


async def fill(adapter: Adapter, jobs: int) -> None:
    """Have so many jobs wait."""
    await adapter.open()
    data = payload(adapter.order.payload_bytes)
    # Large payloads in smaller calls: a request should not be hundreds of megabytes.
    bulk = _BULK if adapter.order.payload_bytes < 10_000 else 50  # noqa: PLR2004 -- 10 MB a call
    for added in range(0, jobs, bulk):
        await adapter.add_bulk([data] * min(bulk, jobs - added))


async def drained(adapter: Adapter) -> float:
    """Return when nothing is left, and the moment of `perf_counter` at which that was seen."""
    deadline_s = time.perf_counter() + LONGEST_S
    while adapter.pending():
        if time.perf_counter() > deadline_s:
            msg = f"{adapter.pending()} jobs are left after {LONGEST_S} s"
            raise TimeoutError(msg)
        await asyncio.sleep(_LOOK_S)
    return time.perf_counter()
