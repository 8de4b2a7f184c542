"""Programs beside the measured one: they add jobs or work them off, and tell no figures."""

import asyncio
import subprocess
import sys
import time
from dataclasses import replace

from bench.program import working
from bench.program.adapter import Adapter, CannotError
from bench.program.order import Order

_LEAD_S = 0.2
_MOST_CALLS_S = 1_000


async def beside(order: Order, body: str) -> None:
    """Run such a program, in this one's environment, until it ends."""
    command = command_for(replace(order, body=body))
    running = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL)
    if await running.wait():
        msg = f"{body!r} failed beside us"
        raise RuntimeError(msg)


def command_for(order: Order) -> list[str]:
    """The program in this environment."""
    return [sys.executable, "-m", "bench.program", order.to_json()]


async def fill(adapter: Adapter) -> dict[str, float]:
    """Have jobs wait."""
    await working.fill(adapter, adapter.order.jobs)
    return {}


async def produce(adapter: Adapter) -> dict[str, float]:
    """Add jobs at a rate, each with the moment it was added; many a second in small bulks."""
    order = adapter.order
    await adapter.open()
    bulk = max(1, round(order.rate / _MOST_CALLS_S))
    began_s = time.monotonic() + _LEAD_S
    for number in range(0, int(order.rate * order.seconds), bulk):
        early_s = began_s + number / order.rate - time.monotonic()
        if early_s > 0:
            await asyncio.sleep(early_s)
        data = {"sent_s": time.monotonic()}
        if bulk == 1:
            await adapter.add(data)
        else:
            await adapter.add_bulk([data] * bulk)
    return {}


async def serve(adapter: Adapter) -> dict[str, float]:
    """Say `ready`, work when told to, and end with our input."""
    if type(adapter).start is Adapter.start:
        raise CannotError
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await adapter.start(lambda _: None)
    await asyncio.to_thread(sys.stdin.readline)
    await adapter.stop()
    return {}
