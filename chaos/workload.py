"""Pure: which jobs the producers add, and what the data of a job tells its handler to do."""

import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

from chaos.options import LEASE_MS

# How many jobs of a producer are added while the same id is contended for: all producers are about
# as fast, so each such id is wanted some ten times.
CONTENTION = 30
RECURRING = (("skip", 700), ("fire-once", 900), ("fire-all", 1_100))
# When the faults are over: of these no window may be left out, since nothing is wrong any more. Not
# shorter: a busy machine keeps a leader waiting for nearly half a second, which nobody writes down.
RECURRING_IN_THE_QUIET = (("skip", 600), ("fire-once", 650), ("fire-all", 700))
RECURRING_BUDGET = 4
DOOMED = ("failing", "hopeless")
"""Kinds of jobs that become dead letters, whatever befalls them."""
# How seldom a producer asks for many at once, each by a call of its own, and for how many. The many
# are more calls than a ring has places; the few are more than one `XADD IDMP` after the other may
# be under way.
_BURST_OF = 2_000
_FEW, _MANY = (150, 400), (1_100, 1_400)
_MANY_OF = 4


@dataclass(frozen=True, slots=True)
class Wanted:
    """One call of a producer: a job, and what becomes of it."""

    kind: str
    data: dict[str, Any]
    budget: int
    delay_ms: int = 0
    job_id: str = ""
    withdraw_after_ms: int | None = None
    is_bulk: bool = False
    burst: int = 0
    """So many others are asked for at the same time."""


@dataclass(frozen=True, slots=True)
class _Kind:
    name: str
    weight: int
    budget: int = 5
    takes_ms: tuple[int, int] = (0, 20)
    fails: int = 0
    ends: str = "ok"


# Most budgets leave room for the kills that a job meets through no fault of its own; those that
# cannot succeed have small ones, so that they come to their end within the run.
_KINDS = (
    _Kind("quick", 600, budget=8),
    _Kind("slow", 80, budget=8, takes_ms=(100, 900)),
    _Kind("longer-than-a-lease", 12, budget=8, takes_ms=(LEASE_MS + 500, LEASE_MS * 2)),
    _Kind("flaky", 100, budget=9, fails=1),
    _Kind("very-flaky", 30, budget=10, fails=3),
    _Kind("of-few-runs", 40, budget=2, takes_ms=(0, 200)),
    _Kind("failing", 30, budget=3, fails=99),
    _Kind("hopeless", 20, budget=5, ends="hopeless"),
    _Kind("deadly", 2, budget=2, ends="die"),
)


def wanted(chance: random.Random, kinds: Collection[str] = ()) -> Iterator[Wanted]:
    """What one producer asks for, without end; of these kinds only, if any are named."""
    chosen = [kind for kind in _KINDS if not kinds or kind.name in kinds]
    weights = [kind.weight for kind in chosen]
    for number in count():
        [kind] = chance.choices(chosen, weights)
        low, high = kind.takes_ms
        data = {"takes_ms": chance.randint(low, high), "fails": kind.fails, "ends": kind.ends}
        delay_ms = chance.choice((0, 0, 0, chance.randint(1, 200), chance.randint(200, 5_000)))
        withdraw = chance.randint(0, delay_ms) if delay_ms and chance.random() < 0.1 else None
        yield Wanted(
            kind.name,
            {**data, "budget": kind.budget, "returns": chance.random() < 0.7},
            kind.budget,
            delay_ms,
            _contended(chance, number) if withdraw is None else "",
            withdraw,
            is_bulk=chance.random() < 0.1,
            burst=burst_size(chance) if chance.randrange(_BURST_OF) == 0 else 0,
        )


def burst_size(chance: random.Random) -> int:
    """How many are asked for at once, if many are."""
    return chance.randint(*(_MANY if chance.randrange(_MANY_OF) == 0 else _FEW))


def _contended(chance: random.Random, number: int) -> str:
    return f"only-{number // CONTENTION}" if chance.random() < 0.1 else ""
