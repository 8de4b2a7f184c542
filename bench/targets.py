"""What we have promised ourselves, as data: how far ahead of the reference, how near the limit.

Ratios within one run, so that they mean the same on every machine; figures of time and of commands
a second stand by themselves where the issue is how late something is, not how fast.
"""

from collections.abc import Sequence
from dataclasses import dataclass

REFERENCE = "reference"
LIMIT = "limit"
TOLD_LIMIT = "limit, told"
"""The limit of adds with the event that ours tell of each job."""
ITSELF = ""
"""Compared with nothing: the figure itself."""


@dataclass(frozen=True, slots=True)
class Target:
    """A bound for one figure of ours in one scenario."""

    scenario: str
    figure: str
    against: str
    """The rival that ours is divided by, or `ITSELF`."""
    least: float | None = None
    most: float | None = None

    def is_met(self, found: float) -> bool:
        """Whether a ratio, or the figure itself, is within the bound."""
        return (self.least is None or found >= self.least) and (
            self.most is None or found <= self.most
        )

    def __str__(self) -> str:
        """As a table has it: `>= 2x reference`."""
        bound = f">= {self.least:g}" if self.least is not None else f"<= {self.most:g}"
        return f"{bound}x {self.against}" if self.against else bound


TARGETS: Sequence[Target] = (
    Target("bulk50", "rate", REFERENCE, least=2),
    Target("bulk1000", "rate", REFERENCE, least=2),
    Target("concurrent", "rate", REFERENCE, least=5),
    Target("sequential", "rate", REFERENCE, least=1.3),
    Target("worker1", "rate", REFERENCE, least=8),
    Target("worker100", "rate", REFERENCE, least=8),
    Target("worker100-off", "rate", REFERENCE, least=9),
    Target("worker100-results", "rate", REFERENCE, least=8),
    Target("latency", "p50_ms", REFERENCE, most=0.7),
    Target("latency", "p99_ms", REFERENCE, most=0.7),
    Target("lateness", "p50_ms", ITSELF, most=5),
    Target("lateness", "p99_ms", ITSELF, most=20),
    Target("delayed", "drain_s", REFERENCE, most=0.3),
    Target("retry", "rate", REFERENCE, least=5),
    Target("idle", "cpu_percent", REFERENCE, most=1),
    Target("idle", "commands_s", ITSELF, most=20),
    Target("idle", "rss_mb", REFERENCE, most=1),
    # Flat; what is above 1 is what a noisy machine may add.
    Target("growth", "add_growth", ITSELF, most=1.3),
    Target("growth", "work_growth", ITSELF, most=1.3),
    Target("bulk50", "rate", LIMIT, least=0.65),
    Target("bulk1000", "rate", LIMIT, least=0.8),
    Target("worker100-off", "rate", LIMIT, least=0.9),
    Target("worker100", "rate", LIMIT, least=1),
)


def fallback(scenario: str, modern: str) -> Target:
    """For a server without the newest commands, beside ours on one that has them."""
    return Target(scenario, "rate", modern, least=0.7)


def targets_of(scenario: str, figure: str) -> list[Target]:
    """Those of one figure."""
    return [each for each in TARGETS if (each.scenario, each.figure) == (scenario, figure)]
