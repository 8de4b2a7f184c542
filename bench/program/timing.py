"""Scenarios that ask when, not how many: how long a job takes to its handler, how late it is."""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import replace

from bench.program.adapter import Adapter, CannotError, Data
from bench.program.meter import Meter, quantiles_ms
from bench.program.payloads import payload
from bench.program.side import beside
from bench.program.working import LONGEST_S, Tally, drained, fill

_SETTLE_S = 1.5
_GAP_S = 0.01
_LEAD_S = 1.0
_TASKS = 100
_INTERVAL_MS = 1_000
_WARM_UP_SHARE = 0.1


async def latency(adapter: Adapter) -> dict[str, float]:
    """From add to handler, with a producer in another process; the first tenth does not count."""
    rate = adapter.order.rate or await _half_of_what_it_can(adapter)
    order = replace(adapter.order, rate=rate)
    found_s: list[float] = []
    await adapter.start(lambda data: found_s.append(time.monotonic() - data["sent_s"]))
    await asyncio.sleep(_SETTLE_S)
    await beside(order, "produce")
    await _until(lambda: len(found_s) >= int(order.rate * order.seconds))
    await adapter.stop()
    return quantiles_ms(found_s[int(len(found_s) * _WARM_UP_SHARE) :]) | {"offered": rate}


async def due_at_once(adapter: Adapter) -> dict[str, float]:
    """From when all are due until all are done. They are added before, or it does not count."""
    order = adapter.order
    await adapter.open()
    tally = Tally(order.jobs)
    await adapter.start(tally.handle)
    await asyncio.sleep(_SETTLE_S)
    due_s = time.time() + order.seconds
    due_at_s = time.perf_counter() + (due_s - time.time())
    numbers, data = iter(range(order.jobs)), payload()

    async def add() -> None:
        for _ in numbers:
            await adapter.add_at(data, due_s)

    meter = Meter(adapter.server)
    await asyncio.gather(*(add() for _ in range(_TASKS)))
    if time.perf_counter() > due_at_s:
        msg = f"{order.jobs} jobs could not be added within {order.seconds} s"
        raise CannotError(msg)
    await tally.wait()
    ended_s = await drained(adapter)
    figures = meter.figures(order.jobs, began_s=due_at_s, ended_s=ended_s)
    await adapter.stop()
    first_ms = (tally.first_s - due_at_s) * 1_000
    return figures | {"drain_s": figures["seconds"], "first_ms": first_ms}


async def lateness(adapter: Adapter) -> dict[str, float]:
    """How long after its time a delayed job meets its handler; one is due every 10 ms or so."""
    order, found_s = adapter.order, list[float]()
    await adapter.open()
    await adapter.start(lambda data: found_s.append(time.time() - data["due_s"]))
    await asyncio.sleep(_SETTLE_S)
    first_s = time.time() + _LEAD_S
    for number in range(order.jobs):
        due_s = first_s + (number + random.random()) * _GAP_S  # noqa: S311 -- any time will do
        await adapter.add_at({"due_s": due_s}, due_s)
    await _until(lambda: len(found_s) >= order.jobs)
    await adapter.stop()
    return quantiles_ms(found_s)


async def recurring(adapter: Adapter) -> dict[str, float]:
    """How far the time between two fires of a spec is from what was asked for."""
    order = adapter.order
    before_s: dict[int, float] = {}
    off_s: list[float] = []

    def handle(data: Data) -> None:
        spec, now_s = data["spec"], time.monotonic()
        if now_s > counted_s and spec in before_s:
            off_s.append(abs(now_s - before_s[spec] - _INTERVAL_MS / 1_000))
        before_s[spec] = now_s

    await adapter.open()
    for spec in range(order.jobs):
        await adapter.add_every({"spec": spec}, f"every-{spec}", _INTERVAL_MS)
    # A scheduler that has just started has windows to catch up with.
    began_s = time.monotonic()
    counted_s = began_s + _SETTLE_S + _INTERVAL_MS / 1_000
    await adapter.start(handle)
    await asyncio.sleep(counted_s + order.seconds - began_s)
    await adapter.stop()
    if not off_s:
        msg = "no spec fired twice"
        raise CannotError(msg)
    return quantiles_ms(off_s)


async def _half_of_what_it_can(adapter: Adapter) -> float:
    jobs = adapter.order.jobs
    await fill(adapter, jobs)
    tally = Tally(jobs)
    await adapter.start(tally.handle)
    await tally.wait()
    ended_s = await drained(adapter)
    await adapter.stop()
    return jobs / (ended_s - tally.first_s) / 2


async def _until(is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + LONGEST_S
    while not is_so():
        if time.monotonic() > deadline_s:
            msg = f"not all jobs came within {LONGEST_S} s"
            raise TimeoutError(msg)
        await asyncio.sleep(0.02)
