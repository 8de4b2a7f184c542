"""Pure: which jobs a soak adds, and what each tells its handler to do.

A steady mixture of all that leaves something behind for a while: results, retries, delays, dead
letters, unique ids, progress and log lines. What outlives a job for an hour, the markers of unique
ids, comes from a fixed pool of ids, so that it cannot grow with the time.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

_IDS = 200
_BULK = 10
# Numbers of different producers never meet.
_NUMBERS_EACH = 1 << 40


@dataclass(frozen=True, slots=True)
class Wish:
    """One call of a producer, for one job or several."""

    numbers: tuple[int, ...]
    kind: str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def jobs(self) -> list[dict[str, Any]]:
        """The arguments of each job."""
        return [
            {"name": self.kind, "data": {"number": number}, **self.options}
            for number in self.numbers
        ]


_KINDS = {"quick": 80, "flaky": 7, "later": 8, "hopeless": 1, "once": 1, "awaited": 2, "bulk": 1}


def wishes(producer: int, chance: random.Random) -> Iterator[Wish]:
    """What one producer asks for, without end."""
    numbers = count(producer * _NUMBERS_EACH)
    kinds, weights = list(_KINDS), list(_KINDS.values())
    while True:
        [kind] = chance.choices(kinds, weights)
        number = next(numbers)
        if kind == "bulk":
            yield Wish((number, *(next(numbers) for _ in range(_BULK - 1))), "quick")
        elif kind == "later":
            yield Wish((number,), kind, {"delay_ms": chance.randint(50, 3_000)})
        elif kind == "once":
            yield Wish((number,), kind, {"job_id": f"once-{chance.randrange(_IDS)}"})
        else:
            yield Wish((number,), kind)
