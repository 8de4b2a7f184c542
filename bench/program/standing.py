"""Scenarios about what it takes to be there: a worker at rest, jobs that wait, memory."""

import asyncio
import resource
import sys

from bench.program.adapter import Adapter
from bench.program.meter import Meter
from bench.program.side import beside
from bench.program.working import Tally, drained

_SETTLE_S = 2.0
_US = 1_000_000


async def idle(adapter: Adapter) -> dict[str, float]:
    """A worker without jobs: processor time, commands a second, memory at its peak."""
    await adapter.start(lambda _: None)
    await asyncio.sleep(min(_SETTLE_S, adapter.order.seconds))
    meter = Meter(adapter.server)
    await asyncio.sleep(adapter.order.seconds)
    seen = meter.figures(1)
    await adapter.stop()
    return {
        "cpu_percent": seen["client_us"] / _US / seen["seconds"] * 100,
        "server_cpu_percent": seen["server_us"] / _US / seen["seconds"] * 100,
        "commands_s": seen["commands"] / seen["seconds"],
        "rss_mb": _peak_mb(),
    }


async def memory(adapter: Adapter) -> dict[str, float]:
    """What waiting jobs take of the server's memory, and working them off of the worker's."""
    order = adapter.order
    empty = _used(adapter)
    await beside(order, "fill")
    full = _used(adapter)
    tally = Tally(order.jobs)
    await adapter.start(tally.handle)
    await tally.wait()
    await drained(adapter)
    after = _used(adapter)
    await adapter.stop()
    return {
        "waiting_bytes": (full - empty) / order.jobs,
        "after_bytes": (after - empty) / order.jobs,
        "rss_mb": _peak_mb(),
    }


def _used(adapter: Adapter) -> int:
    return int(adapter.server.info("memory")["used_memory"])


def _peak_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)
