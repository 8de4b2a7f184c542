"""What can be asked of a program, by name."""

from collections.abc import Awaitable, Callable, Mapping

from bench.program import adding, deep, side, standing, timing, working
from bench.program.adapter import Adapter

BODIES: Mapping[str, Callable[[Adapter], Awaitable[dict[str, float]]]] = {
    "bulk": adding.in_bulk,
    "concurrent": adding.at_once,
    "sequential": adding.in_sequence,
    "work": working.work,
    "retry": working.fail_once,
    "latency": timing.latency,
    "delayed": timing.due_at_once,
    "lateness": timing.lateness,
    "recurring": timing.recurring,
    "idle": standing.idle,
    "memory": standing.memory,
    "processes": deep.many_processes,
    "growth": deep.growth,
    "fill": side.fill,
    "produce": side.produce,
    "serve": side.serve,
}
