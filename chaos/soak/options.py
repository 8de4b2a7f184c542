"""What a soak is told by its command line."""

import argparse
from dataclasses import dataclass

from chaos.options import SERVERS

# Memory settles late: pools fill, and streams reach their caps. Of an hour, a quarter is let go.
_WARM_UP_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Options:
    """One soak."""

    minutes: float = 60.0
    rate: float = 200.0
    """Jobs a second, of all producers together."""
    workers: int = 3
    producers: int = 2
    every_s: float = 5.0
    """Between two cuts, and between two readings; a reading is taken half way after a cut."""
    seed: int = 1
    server: str = "valkey"
    is_json: bool = False

    @property
    def warm_up_s(self) -> float:
        """What is read before is shown and not judged."""
        return self.minutes * 60 * _WARM_UP_SHARE


def parse(arguments: list[str]) -> Options:
    """The options of a command line; says what is wrong with it, and exits, if it is."""
    usual = Options()
    parser = argparse.ArgumentParser(
        prog="python -m chaos.soak",
        description="Run at a steady rate with reconnects. Exit status 1 says that something grew, "
        "was lost, or ended by itself.",
    )
    add = parser.add_argument
    add("--minutes", type=float, default=usual.minutes)
    add("--rate", type=float, default=usual.rate, help="jobs a second, in all")
    add("--workers", type=int, default=usual.workers, help="worker processes")
    add("--producers", type=int, default=usual.producers, help="producer processes")
    add("--every", type=float, default=usual.every_s, metavar="SECONDS",
        help="between two cuts, and between two readings")  # fmt: skip
    add("--seed", type=int, default=usual.seed, help="of what is added")
    add("--server", choices=SERVERS, default=usual.server)
    add("--json", action="store_true", help="print everything that was read as JSON")
    given = parser.parse_args(arguments)
    return Options(
        minutes=given.minutes,
        rate=given.rate,
        workers=given.workers,
        producers=given.producers,
        every_s=given.every,
        seed=given.seed,
        server=given.server,
        is_json=given.json,
    )
