"""Rivals take turns, so that what else the machine does hits all of them; what is told is ratios.

Nothing here knows what is measured. A rival is a name and a function; a round lets each run once,
every other round in the opposite order. A ratio is taken within a round, so a machine that is slow
for a while slows both of its sides.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

from bench.usage import Usage, Watch

_Rival = TypeVar("_Rival")


@dataclass(frozen=True, slots=True)
class Rival:
    """Something that can be timed.

    `run` returns how long it took, where that is less than the whole call: what it had to prepare
    is not the rival's. None stands for the whole call. `prepare` comes before, and does not count.
    """

    name: str
    run: Callable[[], float | None]
    prepare: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of one rival."""

    rows: int
    wall_s: float
    usage: Usage

    @property
    def rate(self) -> float:
        """Rows a second."""
        return self.rows / self.wall_s

    @property
    def us_per_row(self) -> float:
        """What a row cost, in microseconds."""
        return self.wall_s / self.rows * 1_000_000

    @property
    def cpu_us_per_row(self) -> float:
        """Processor time of our processes for a row, user and system; the server's is apart."""
        return self.usage.cpu_s / self.rows * 1_000_000

    @property
    def server_us_per_row(self) -> float:
        """Processor time of the server for a row."""
        return self.usage.server_cpu_s / self.rows * 1_000_000


@dataclass(frozen=True, slots=True)
class Spread:
    """What several rounds came to."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Of one value or more."""
        return cls(median(values), min(values), max(values))


def turns(rivals: Sequence[_Rival], rounds: int) -> Iterator[_Rival]:
    """Each rival once a round; every other round goes backwards."""
    for number in range(rounds):
        yield from rivals if number % 2 == 0 else reversed(rivals)


def play(
    rivals: Sequence[Rival],
    *,
    rows: int,
    rounds: int,
    watch: Callable[[], Watch],
    on_sample: Callable[[str, Sample], None] = lambda _name, _sample: None,
) -> dict[str, list[Sample]]:
    """Let every rival run once a round; samples by name, in the order of the rounds."""
    samples: dict[str, list[Sample]] = {rival.name: [] for rival in rivals}
    for rival in turns(rivals, rounds):
        rival.prepare()
        began_s = time.perf_counter()
        with watch() as watching:
            took_s = rival.run()
        wall_s = time.perf_counter() - began_s if took_s is None else took_s
        sample = Sample(rows, wall_s, watching.usage)
        samples[rival.name].append(sample)
        on_sample(rival.name, sample)
    return samples


def ratios(samples: Mapping[str, Sequence[Sample]], name: str, baseline: str) -> list[float]:
    """How fast a rival was beside the baseline, round by round."""
    return [
        ours.rate / theirs.rate
        for ours, theirs in zip(samples[name], samples[baseline], strict=True)
    ]
