"""Pure: whether a series of readings is flat.

What was read during the warm-up is left out, and the rest is cut into thirds. The growth is the
median of the last third less the median of the first: a peak, or a reading in the middle of a
reconnect, does not move it, and a slow leak does. A series is flat if it grew by no more than its
rule allows, which is a fixed slack or a share of where it began, whichever is more.

A leak has to outgrow that slack to be seen: 2 MB within half an hour, at 70 jobs a second for each
worker, are some 17 bytes a job.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

_THIRDS = 3


@dataclass(frozen=True, slots=True)
class Rule:
    """How much a series may grow after the warm-up."""

    slack: float = 0.0
    share: float = 0.0
    unit: str = ""

    def allows(self, beginning: float) -> float:
        """The growth that is still flat."""
        return max(self.slack, self.share * beginning)


RULES: Mapping[str, Rule] = {
    # Of a process.
    "memory": Rule(slack=2.0, share=0.03, unit="MB"),
    # A worker whose promoter has come to lead has one connection more from then on.
    "sockets": Rule(slack=1),
    "files": Rule(slack=1),
    "threads": Rule(),
    # Of the server. What is in flight or kept for a while varies with the machine's other work.
    "memory used": Rule(slack=1.0, share=0.05, unit="MB"),
    "clients": Rule(slack=3),
    "consumers": Rule(),
    "waiting": Rule(slack=25),
    "pending": Rule(slack=25),
    "delayed": Rule(slack=100),
    "keys": Rule(slack=500, share=0.1),
    "keys without ttl": Rule(),
}


@dataclass(frozen=True, slots=True)
class Series:
    """What was read of one thing, as pairs of seconds since the beginning and a value."""

    who: str
    what: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one series."""

    who: str
    what: str
    first: float
    """The median of the first third that is judged."""
    last: float
    """The median of the last."""
    most: float
    """The largest of all readings, the warm-up included."""
    allowed: float

    @property
    def growth(self) -> float:
        """How much more at the end; below zero if less."""
        return self.last - self.first

    @property
    def is_flat(self) -> bool:
        """Whether that is allowed."""
        return self.growth <= self.allowed


def judge(series: Series, warm_up_s: float) -> Verdict:
    """Judge one series by the rule of its kind; `ValueError` if it is too short to tell."""
    judged = [point for point in series.points if point[0] >= warm_up_s]
    size = len(judged) // _THIRDS
    if not size:
        message = f"{series.who} {series.what}: {len(judged)} readings after the warm-up, of 3"
        raise ValueError(message)
    beginning = _middle(judged[:size])
    return Verdict(
        series.who,
        series.what,
        beginning,
        _middle(judged[-size:]),
        max(value for _, value in series.points),
        RULES[series.what].allows(beginning),
    )


def judge_all(all_of_them: Iterable[Series], warm_up_s: float) -> list[Verdict]:
    """Judge each."""
    return [judge(series, warm_up_s) for series in all_of_them]


def _middle(points: Sequence[tuple[float, float]]) -> float:
    return median(value for _, value in points)
