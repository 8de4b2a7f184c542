"""Scenarios of size: more processes than one, more waiting jobs than fit a test."""

import asyncio
import subprocess
from contextlib import ExitStack
from dataclasses import replace
from typing import Self

from bench.draining import drained_s
from bench.program.adapter import Adapter, CannotError
from bench.program.meter import Meter
from bench.program.payloads import payload
from bench.program.side import command_for
from bench.program.working import Tally, fill

_WARM_UP = 1_000


async def many_processes(adapter: Adapter) -> dict[str, float]:
    """Several workers share what waits; timed from the first job that leaves to the last."""
    order = adapter.order
    await fill(adapter, order.jobs)
    command = command_for(replace(order, body="serve"))
    with ExitStack() as stack:
        workers = [stack.enter_context(_Serving(command)) for _ in range(order.processes)]

        def go() -> None:
            for each in workers:
                each.tell()

        took_s = await asyncio.to_thread(drained_s, adapter.pending, go)
    return {"rate": order.jobs / took_s, "jobs": order.jobs}


async def growth(adapter: Adapter) -> dict[str, float]:
    """What an add and a run cost with ever more jobs waiting: the last depth beside the first."""
    order = adapter.order
    await fill(adapter, _WARM_UP)
    await _worked_us(adapter, _WARM_UP)
    figures: dict[str, float] = {}
    for depth in order.depths:
        await fill(adapter, max(0, depth - adapter.pending()))
        figures[f"add_us_{depth}"] = await _added_us(adapter, order.jobs)
        figures[f"work_us_{depth}"] = await _worked_us(adapter, order.jobs)
    first, last = order.depths[0], order.depths[-1]
    return figures | {
        f"{what}_growth": figures[f"{what}_us_{last}"] / figures[f"{what}_us_{first}"]
        for what in ("add", "work")
    }


async def _added_us(adapter: Adapter, jobs: int) -> float:
    many = [payload()] * adapter.order.bulk
    calls = max(1, jobs // len(many))
    meter = Meter(adapter.server)
    for _ in range(calls):
        await adapter.add_bulk(many)
    return 1_000_000 / meter.figures(calls * len(many))["rate"]


async def _worked_us(adapter: Adapter, jobs: int) -> float:
    """Of the first so many; the worker may have taken a few more before it stopped."""
    tally = Tally(jobs)
    await adapter.start(tally.handle)
    await tally.wait()
    await adapter.stop()
    return (tally.last_s - tally.first_s) / (jobs - 1) * 1_000_000


class _Serving:
    """A worker in a process of its own, from `ready` until it is left."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Self:
        assert self._process.stdout is not None  # noqa: S101 -- a pipe, as asked for
        if self._process.stdout.readline().strip() != "ready":
            self._process.kill()
            self._process.communicate()
            raise CannotError
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def tell(self) -> None:
        """Let it begin."""
        assert self._process.stdin is not None  # noqa: S101 -- the same
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
