"""What a stretch of work cost: time, our processor's and the server's, commands and bytes."""

import time
from collections.abc import Sequence

from bench.raw import RawClient

_US = 1_000_000


class Meter:
    """Runs from when it is made; what the server counts is read before and after."""

    def __init__(self, server: RawClient) -> None:
        """Begin."""
        self._server = server
        self._before = _counts(server)
        self._cpu_s = time.process_time()
        self._began_s = time.perf_counter()

    def figures(
        self, jobs: int, *, began_s: float | None = None, ended_s: float | None = None
    ) -> dict[str, float]:
        """What each of the jobs cost until now, or between two moments of `perf_counter`."""
        ended_s = ended_s or time.perf_counter()
        cpu_s = time.process_time() - self._cpu_s
        took_s = ended_s - (began_s or self._began_s)
        server_s, commands, received = (
            after - before
            for after, before in zip(_counts(self._server), self._before, strict=True)
        )
        return {
            "jobs": jobs,
            "seconds": took_s,
            "rate": jobs / took_s,
            "client_us": cpu_s / jobs * _US,
            "server_us": server_s / jobs * _US,
            "commands": (commands - 1) / jobs,  # without the question itself
            "bytes": received / jobs,
        }


def quantiles_ms(found_s: Sequence[float]) -> dict[str, float]:
    """Where the values lie, in milliseconds."""
    ordered = sorted(found_s)

    def at(share: float) -> float:
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1_000

    return {
        "p50_ms": at(0.5),
        "p99_ms": at(0.99),
        "p999_ms": at(0.999),
        "max_ms": ordered[-1] * 1_000,
        "jobs": len(ordered),
    }


def _counts(server: RawClient) -> tuple[float, float, float]:
    """Processor seconds, commands and bytes of the server so far."""
    told = server.info("default")
    return (
        float(told["used_cpu_user"]) + float(told["used_cpu_sys"]),
        float(told["total_commands_processed"]),
        float(told["total_net_input_bytes"]),
    )
