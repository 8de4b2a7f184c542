"""What a run is told: by its command line, and how that command is said again."""

import argparse
from dataclasses import dataclass
from pathlib import Path

from chasquimq.config import LEAST_LEASE_MS

SERVERS = ("valkey", "redis-6.2", "redis-7.0", "redis-8.6")
TOPOLOGIES = ("single", "sentinel", "cluster")

# So that a run of minutes sees many leases run out.
LEASE_MS = LEAST_LEASE_MS


@dataclass(frozen=True, slots=True)
class Options:
    """One run."""

    minutes: float = 5.0
    seed: int = 1
    server: str = "valkey"
    topology: str = "single"
    workers: int = 4
    producers: int = 3
    rate: float = 15.0
    faults: tuple[str, ...] = ()
    keep: Path | None = None
    is_json: bool = False

    @property
    def command(self) -> str:
        """The command that repeats this run."""
        words = [f"python -m chaos --minutes {self.minutes:g} --seed {self.seed}"]
        words += [f"--server {self.server}", f"--topology {self.topology}"]
        usual = Options()
        for name in ("workers", "producers", "rate"):
            if getattr(self, name) != getattr(usual, name):
                words.append(f"--{name} {getattr(self, name):g}")
        words += [f"--fault {name}" for name in self.faults]
        return " ".join(words)


def parse(arguments: list[str], known_faults: list[str]) -> Options:
    """The options of a command line; says what is wrong with it, and exits, if it is."""
    usual = Options()
    parser = argparse.ArgumentParser(
        prog="python -m chaos",
        description="Try to break the promises of the queue. Exit status 1 says that it worked.",
    )
    add = parser.add_argument
    add("--minutes", type=float, default=usual.minutes, help="how long the nemesis is at work")
    add("--seed", type=int, default=usual.seed, help="of all chance: what is added, what breaks")
    add("--server", choices=SERVERS, default=usual.server)
    add("--topology", choices=TOPOLOGIES, default=usual.topology)
    add("--workers", type=int, default=usual.workers, help="worker processes")
    add("--producers", type=int, default=usual.producers, help="producer processes")
    add("--rate", type=float, default=usual.rate, help="jobs a second that each producer adds")
    add(
        "--fault",
        action="append",
        default=[],
        choices=known_faults,
        metavar="NAME",
        help=f"only these faults, of: {', '.join(known_faults)}",
    )
    add("--keep", type=Path, metavar="FOLDER", help="write the history here, and leave it there")
    add("--json", action="store_true", help="print the report as JSON")
    given = parser.parse_args(arguments)
    return Options(
        minutes=given.minutes,
        seed=given.seed,
        server=given.server,
        topology=given.topology,
        workers=given.workers,
        producers=given.producers,
        rate=given.rate,
        faults=tuple(given.fault),
        keep=given.keep,
        is_json=given.json,
    )
