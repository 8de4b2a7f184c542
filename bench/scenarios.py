"""What is measured: every scenario by name, as an order that waits for a rival and a server."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from bench.program.order import Order


@dataclass(frozen=True, slots=True)
class Figure:
    """A kind of number that a program tells."""

    unit: str
    is_better_high: bool
    digits: int = 1


FIGURES: Mapping[str, Figure] = {
    "rate": Figure("jobs/s", is_better_high=True, digits=0),
    "p50_ms": Figure("p50 ms", is_better_high=False, digits=2),
    "p99_ms": Figure("p99 ms", is_better_high=False, digits=2),
    "p999_ms": Figure("p99.9 ms", is_better_high=False, digits=2),
    "drain_s": Figure("s to drain", is_better_high=False, digits=2),
    "cpu_percent": Figure("% of a core", is_better_high=False, digits=2),
    "commands_s": Figure("commands/s", is_better_high=False),
    "rss_mb": Figure("MB of a worker", is_better_high=False),
    "waiting_bytes": Figure("bytes/waiting job", is_better_high=False, digits=0),
    "add_growth": Figure("x dearer add", is_better_high=False, digits=2),
    "work_growth": Figure("x dearer run", is_better_high=False, digits=2),
}


@dataclass(frozen=True, slots=True)
class Scenario:
    """One thing that rivals are asked to do."""

    name: str
    what: str
    order: Order
    """Its adapter and port are filled in for each rival."""
    figures: tuple[str, ...] = ("rate",)
    """Those that are told of, the main one first."""

    def ordered(self, adapter: str, port: int, *, share: float = 1.0, is_quick: bool) -> Order:
        """The order for one rival, with a share of the jobs where the rival is slow."""
        order = replace(self.order, adapter=adapter, port=port)
        if is_quick:
            share = min(share, _QUICK_SHARE)
            order = replace(
                order,
                seconds=min(order.seconds, _QUICK_S),
                depths=tuple(depth // _QUICK_DEPTH for depth in order.depths),
            )
        return replace(order, jobs=max(min(order.jobs, _FEWEST), int(order.jobs * share)))


_QUICK_SHARE = 0.02
_QUICK_S = 1.0
_QUICK_DEPTH = 100
_FEWEST = 200


def _order(body: str, **more: object) -> Order:
    return replace(Order(adapter="", body=body, port=0), **more)  # type: ignore[arg-type]


def _named(*all_of_them: Scenario) -> dict[str, Scenario]:
    return {each.name: each for each in all_of_them}


_QUANTILES = ("p50_ms", "p99_ms", "p999_ms")

SCENARIOS: Mapping[str, Scenario] = _named(
    Scenario("bulk50", "bulk add, 50 a call", _order("bulk", jobs=50_000, bulk=50)),
    Scenario("bulk1000", "bulk add, 1,000 a call", _order("bulk", jobs=100_000, bulk=1_000)),
    Scenario("concurrent", "100 concurrent adds", _order("concurrent", jobs=20_000)),
    Scenario("sequential", "one add after the other, 4 KB", _order("sequential", jobs=3_000)),
    Scenario("worker1", "worker, concurrency 1", _order("work", jobs=10_000, concurrency=1)),
    Scenario("worker100", "worker, concurrency 100", _order("work", jobs=50_000)),
    Scenario("worker100-off", "worker, concurrency 100, events off",
             _order("work", jobs=50_000, events=False)),
    Scenario("worker100-results", "worker, concurrency 100, results kept",
             _order("work", jobs=50_000, results=True)),
    Scenario("worker100-1k", "worker, 1 KiB of data",
             _order("work", jobs=30_000, payload_bytes=1_024)),
    Scenario("worker100-64k", "worker, 64 KiB of data",
             _order("work", jobs=3_000, payload_bytes=65_536)),
    Scenario("worker100-await", "worker, handlers await 1 ms",
             _order("work", jobs=30_000, pause_ms=1)),
    Scenario("latency", "add to handler, 200 a second", _order("latency"), _QUANTILES),
    Scenario("latency-half", "add to handler, half of what it can work off",
             _order("latency", jobs=50_000, rate=0, seconds=5), _QUANTILES),
    Scenario("delayed", "20,000 delayed jobs due at once", _order("delayed", jobs=20_000),
             ("drain_s",)),
    Scenario("lateness", "how late a delayed job is", _order("lateness", jobs=300), _QUANTILES),
    Scenario("recurring", "how uneven the fires of 100 specs are", _order("recurring", jobs=100),
             _QUANTILES),
    Scenario("retry", "every job fails once", _order("retry", jobs=10_000)),
    Scenario("idle", "a worker with nothing to do", _order("idle"),
             ("cpu_percent", "commands_s", "rss_mb")),
    Scenario("memory", "100,000 jobs, waiting and worked off", _order("memory", jobs=100_000),
             ("waiting_bytes", "rss_mb")),
    Scenario("processes2", "two worker processes",
             _order("processes", jobs=100_000, processes=2)),
    Scenario("processes4", "four worker processes",
             _order("processes", jobs=100_000, processes=4)),
    Scenario("growth", "from 10 thousand to 5 million waiting jobs",
             _order("growth", jobs=10_000, depths=(10_000, 100_000, 1_000_000, 5_000_000)),
             ("add_growth", "work_growth")),
)  # fmt: skip
