"""What became of a flood, tenth by tenth, as a table or as JSON."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import median

from bench.machine import machine
from bench.table import table
from chaos.flood.run import Look, Options, Outcome

_TENTHS = 10
_HEAD = ("tenth", "took s", "jobs/s", "most in stream", "new jobs", "p50 s", "max s")


@dataclass(frozen=True, slots=True)
class Tenth:
    """A tenth of the time that the flood took."""

    took_s: float
    rate: float
    most_in_stream: int
    new: int
    p50_s: float
    max_s: float


def tenths(outcome: Outcome) -> list[Tenth]:
    """How it went, from when it was due until nothing was left; fewer if it was over too soon."""
    last = len(outcome.looks) - 1
    bounds = sorted({last * part // _TENTHS for part in range(_TENTHS + 1)})
    return [_tenth(outcome, outcome.looks[first : end + 1]) for first, end in pairwise(bounds)]


def _tenth(outcome: Outcome, looks: list[Look]) -> Tenth:
    began, ended = looks[0], looks[-1]
    took_s = ended.at_s - began.at_s
    gone = began.delayed + began.in_stream - ended.delayed - ended.in_stream
    late = [late_s for at_s, late_s in outcome.new if began.at_s <= at_s < ended.at_s]
    return Tenth(
        took_s,
        (gone + len(late)) / took_s,
        max(look.in_stream for look in looks),
        len(late),
        median(late) if late else 0.0,
        max(late, default=0.0),
    )


def to_json(options: Options, outcome: Outcome) -> str:
    """Everything, for programs."""
    told = {"options": asdict(options), "machine": asdict(machine()), **asdict(outcome)}
    return json.dumps(told | {"tenths": [asdict(each) for each in tenths(outcome)]})


def to_text(options: Options, outcome: Outcome) -> str:
    """Everything, for a person at a terminal."""
    return "\n".join(_lines(options, outcome))


def _lines(options: Options, outcome: Outcome) -> Iterator[str]:
    took_s = outcome.looks[-1].at_s
    late = [late_s for _, late_s in outcome.new]
    yield (
        f"{options.jobs:,} jobs due in one second on {options.server}: {took_s:,.0f} s, "
        f"{options.jobs / took_s:,.0f} jobs/s, {options.workers} workers"
    )
    yield (
        f"{len(late):,} new jobs meanwhile: p50 {median(late):.2f} s, max {max(late):.2f} s; "
        f"{outcome.unheard} never ran"
    )
    yield f"{machine()}"
    yield ""
    rows = [
        [str(number), f"{each.took_s:,.1f}", f"{each.rate:,.0f}", f"{each.most_in_stream:,}",
         f"{each.new:,}", f"{each.p50_s:.2f}", f"{each.max_s:.2f}"]
        for number, each in enumerate(tenths(outcome), 1)
    ]  # fmt: skip
    yield table(_HEAD, rows)
