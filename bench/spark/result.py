"""What the rounds of a comparison came to, as values and as a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.rounds import Sample, Spread, ratios
from bench.spark.ground import Match
from bench.table import spread, table, thousands

_HEAD = (
    "what",
    "rows",
    "rows/s",
    "ratio",
    "target",
    "us/row",
    "cpu us/row",
    "server us/row",
    "Python MB",
    "JVM MB",
)


@dataclass(frozen=True, slots=True)
class Result:
    """One rival at one size."""

    match: str
    rival: str
    rows: int
    rate: Spread
    ratio: Spread | None
    """To the first rival of the match; None for that one."""
    target: float | None
    us_per_row: float
    cpu_us_per_row: float
    server_us_per_row: float
    python_mb: float
    jvm_mb: float
    samples: Sequence[Sample]

    @property
    def is_met(self) -> bool:
        """Whether the median ratio reaches the target, if there is one."""
        return self.target is None or self.ratio is None or self.ratio.median >= self.target


def results(name: str, match: Match, samples: Mapping[str, Sequence[Sample]]) -> list[Result]:
    """What became of each rival, in order."""
    baseline = match.rivals[0].name
    targets = {each.rival: each.least for each in match.targets}
    return [
        Result(
            match=name,
            rival=rival,
            rows=taken[0].rows,
            rate=Spread.of([each.rate for each in taken]),
            ratio=None if rival == baseline else Spread.of(ratios(samples, rival, baseline)),
            target=targets.get(rival),
            us_per_row=Spread.of([each.us_per_row for each in taken]).median,
            cpu_us_per_row=Spread.of([each.cpu_us_per_row for each in taken]).median,
            server_us_per_row=Spread.of([each.server_us_per_row for each in taken]).median,
            python_mb=max(each.usage.python_mb for each in taken),
            jvm_mb=max(each.usage.jvm_mb for each in taken),
            samples=taken,
        )
        for rival, taken in samples.items()
    ]


def shown(found: Sequence[Result]) -> str:
    """The table: medians, the range of each ratio, what a row cost, memory at its peak."""
    return table(_HEAD, [_row(each) for each in found])


def _row(each: Result) -> tuple[str, ...]:
    target = "" if each.target is None else f"{each.target}{'' if each.is_met else ' (missed)'}"
    return (
        f"{each.match}: {each.rival}",
        f"{each.rows:,}",
        thousands(each.rate.median),
        "1" if each.ratio is None else spread(each.ratio),
        target,
        f"{each.us_per_row:.2f}",
        f"{each.cpu_us_per_row:.2f}",
        f"{each.server_us_per_row:.2f}",
        f"{each.python_mb:.0f}",
        f"{each.jvm_mb:.0f}",
    )
