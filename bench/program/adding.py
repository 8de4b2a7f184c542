"""Scenarios that only add jobs: in bulk, many at a time, one after the other."""

import asyncio

from bench.program.adapter import Adapter
from bench.program.meter import Meter
from bench.program.payloads import nested, payload

_WARM_UP = 1_000


async def in_bulk(adapter: Adapter) -> dict[str, float]:
    """So many a call, one call after the other."""
    order = adapter.order
    await adapter.open()
    many = [payload(order.payload_bytes)] * order.bulk
    calls = max(1, order.jobs // order.bulk)
    for _ in range(min(calls, max(1, _WARM_UP // order.bulk))):
        await adapter.add_bulk(many)
    meter = Meter(adapter.server)
    for _ in range(calls):
        await adapter.add_bulk(many)
    return meter.figures(calls * order.bulk)


async def at_once(adapter: Adapter) -> dict[str, float]:
    """Single adds from many tasks."""
    order = adapter.order
    await adapter.open()
    data = payload(order.payload_bytes)

    async def add(count: int) -> None:
        for _ in range(count):
            await adapter.add(data)

    async def from_all(count: int) -> None:
        await asyncio.gather(*(add(count) for _ in range(order.concurrency)))

    await from_all(5)
    each = max(1, order.jobs // order.concurrency)
    meter = Meter(adapter.server)
    await from_all(each)
    return meter.figures(each * order.concurrency)


async def in_sequence(adapter: Adapter) -> dict[str, float]:
    """Single adds, each after the one before it, with a payload of some size."""
    order = adapter.order
    await adapter.open()
    data = nested()
    for _ in range(min(500, order.jobs)):
        await adapter.add(data)
    meter = Meter(adapter.server)
    for _ in range(order.jobs):
        await adapter.add(data)
    return meter.figures(order.jobs)
