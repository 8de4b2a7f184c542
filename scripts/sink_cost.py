#!/usr/bin/env python3
"""What a report of a finished job costs in each kind of sink, and what a scrape costs."""

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry

from chasquimq.metrics import (
    CompositeSink,
    JobOutcome,
    JobOutcomeKind,
    MetricsSink,
    NoopSink,
    report,
)
from chasquimq.prometheus import PrometheusSink, exposition

JOBS = 100_000
ROUNDS = 5
NAMES = 20


def main() -> None:
    """Print the best of some rounds: noise only ever adds."""
    registry = CollectorRegistry()
    prometheus = PrometheusSink("emails", registry=registry)
    sinks: dict[str, MetricsSink] = {
        "none": NoopSink(),
        "Prometheus": prometheus,
        "Prometheus and one of yours": CompositeSink(NoopSink(), prometheus),
    }
    for name, sink in sinks.items():
        print(f"{name:<28} {per_job_us(sink):6.2f} us a job")
    scrape_ms = best(lambda: exposition(registry, "")) * 1_000
    print(f"{'a scrape of 20 names':<28} {scrape_ms:6.2f} ms")


def per_job_us(sink: MetricsSink) -> float:
    """The cost of making and handing over one report, in microseconds."""

    def told() -> None:
        for number in range(JOBS):
            outcome = JobOutcome(JobOutcomeKind.OK, 1, number % 1_000, f"name-{number % NAMES}")
            report(sink.job_outcome, outcome)

    return best(told) / JOBS * 1_000_000


def best(work: Callable[[], object]) -> float:
    """The least CPU time of some rounds, in seconds: what others do on the machine counts less."""
    times = []
    for _ in range(ROUNDS):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times)


if __name__ == "__main__":
    main()
