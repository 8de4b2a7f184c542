"""Scales and their labels: from a value or an instant to a place between 0 and 1. Pure."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from chasquimq.pipeline.instants import DAY_MS, HOUR_MS, MINUTE_MS

Words = Callable[[float], str]
"""How a value is said."""

_MOST_TIMES = 7
_TIME_STEPS = (
    *(minutes * MINUTE_MS for minutes in (1, 2, 5, 10, 15, 30)),
    *(hours * HOUR_MS for hours in (1, 2, 3, 6, 12)),
    *(days * DAY_MS for days in (1, 2, 7, 14, 28, 91, 364)),
)
# Past this, small values would all lie on the foot of a linear scale.
_LOG_FROM = 50
_ROUND_TIMES_MS = (
    *(10.0**power for power in range(-3, 5)),
    *(float(each) for each in (60_000, 600_000, 3_600_000, 36_000_000)),
    *(DAY_MS * 10.0**power for power in range(4)),
)
_LONG = ((DAY_MS, "d"), (HOUR_MS, "h"), (MINUTE_MS, "min"), (1_000, "s"), (1, "ms"))


@dataclass(frozen=True, slots=True)
class Scale:
    """An upright scale: its marks from foot to top, and where a value is on it."""

    marks: tuple[tuple[float, str], ...]
    place: Callable[[float], float]
    is_log: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """A label below a chart, at its place from left to right."""

    place: float
    label: str


def counts(values: Sequence[float]) -> Scale:
    """A scale from 0 for whole numbers."""
    return _linear(max(values, default=0.0), shown)


def durations(values: Sequence[float]) -> Scale:
    """A scale for milliseconds: from 0, or logarithmic where the values are far apart."""
    above = [value for value in values if value > 0]
    if not above or max(above) / min(above) < _LOG_FROM:
        return _linear(max(above, default=0.0), lasting)
    low = max((each for each in _ROUND_TIMES_MS if each <= min(above)), default=_ROUND_TIMES_MS[0])
    high = min(
        (each for each in _ROUND_TIMES_MS if each >= max(above)), default=_ROUND_TIMES_MS[-1]
    )
    span = math.log(high / low)

    def place(value: float) -> float:
        return 0.0 if value <= low else math.log(value / low) / span

    marks = [(place(each), lasting(each)) for each in _ROUND_TIMES_MS if low <= each <= high]
    return Scale(tuple(marks), place, is_log=True)


def times(at: Sequence[datetime], step_ms: int) -> tuple[Mark, ...]:
    """Round times for the foot of a chart whose steps begin `at` these instants."""
    if not at:
        return ()
    first = _ms(at[0])
    span = len(at) * step_ms
    every = next((ms for ms in _TIME_STEPS if span <= ms * _MOST_TIMES), _TIME_STEPS[-1])
    every = max(every, step_ms)
    begin = first - first % min(every, DAY_MS)
    found = [ms for ms in range(begin, first + span, every) if ms >= first]
    return tuple(Mark((ms - first) / span, _time_label(ms, every)) for ms in found)


def shown(value: float, unit: str = "") -> str:
    """A number for people: `1,234`, `0.25`, `2,500 k`."""
    if abs(value) >= 100_000:  # noqa: PLR2004 -- from here on the thousands are what counts
        text = f"{value / 1_000:,.0f} k"
    elif value == int(value) or abs(value) >= 100:  # noqa: PLR2004 -- no fraction is of interest
        text = f"{value:,.0f}"
    else:
        text = f"{value:,.3g}"
    return f"{text} {unit}".strip()


def lasting(ms: float) -> str:
    """A duration for people: `0.4 ms`, `1.25 s`, `3 min`."""
    size, unit = next((each for each in _LONG if ms >= each[0]), _LONG[-1])
    return f"{ms / size:,.3g} {unit}" if ms / size < 1_000 else f"{ms / size:,.0f} {unit}"  # noqa: PLR2004 -- three digits say enough


def _linear(largest: float, label: Words) -> Scale:
    step, top = _round_steps(largest)
    marks = [(at * step / top, label(at * step)) for at in range(round(top / step) + 1)]
    return Scale(tuple(marks), lambda value: value / top)


def _round_steps(largest: float) -> tuple[float, float]:
    """A round distance between marks, and a multiple of it that is no less."""
    if largest <= 0:
        return 1.0, 1.0
    power = 10.0 ** math.floor(math.log10(largest))
    for step in (0.2, 0.25, 0.5, 1.0, 2.0, 2.5):
        number = math.ceil(largest / (step * power) - 1e-9)
        if number <= 5:  # noqa: PLR2004 -- as many lines as help the eye
            return step * power, step * power * number
    return 2.5 * power, 10.0 * power


def _time_label(ms: int, every: int) -> str:
    at = datetime.fromtimestamp(ms // 1_000, UTC)
    if every >= DAY_MS or ms % DAY_MS == 0:
        return f"{at:%d %b}".lstrip("0")
    return f"{at:%H:%M}"


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1_000)
