"""`python -m bench.spark`: measures, and prints a table or JSON."""

import argparse
import json
import logging
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from bench.machine import Machine, machine
from bench.rounds import Sample, play
from bench.server import BenchServer
from bench.spark import flowing, reading, working, writing
from bench.spark.ground import SETTINGS, Ground, Match
from bench.spark.result import Result, results, shown
from bench.usage import Watch
from chasquimq.spark import session

MATCHES: Mapping[str, Callable[[Ground], Match]] = {
    "read": reading.match,
    "write": writing.match,
    "work": working.match,
    "pipeline": flowing.match,
}
SIZES = (100_000, 1_000_000)
LARGE = 5_000_000
_WARM_UP = 20_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; 0 whatever the figures are."""
    asked = _asked(arguments)
    # An exit rather than sudden death, so that the server ends too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    before = machine()
    with (
        BenchServer(asked.server) as server,
        server.client() as client,
        tempfile.TemporaryDirectory(prefix="chasqui-bench-") as folder,
    ):
        logging.getLogger("chasquimq").setLevel(logging.ERROR)
        spark = session("bench", SETTINGS)
        ground = Ground(spark, server.url, client, Path(folder), _WARM_UP)
        try:
            found = measure(ground, asked.only, asked.sizes, asked.rounds, without=[server.pid])
        finally:
            spark.stop()
        after = machine("pyspark", "pyarrow", "hiredis", **{server.name: server.version})
    if asked.json:
        print(json.dumps(_as_json(found, before, after), indent=2))
    else:
        print(shown(found))
        print(f"\n{after}; load before {before.load[0]:.1f}")
    return 0


def measure(
    ground: Ground,
    names: Sequence[str],
    sizes: Sequence[int],
    rounds: int,
    *,
    without: Sequence[int] = (),
) -> list[Result]:
    """Every comparison at every size, after a short one that nobody is told of."""
    found: list[Result] = []
    for name in names:
        for is_told, rows in ((False, _WARM_UP), *((True, size) for size in sizes)):
            ground.forget()
            match = MATCHES[name](ground.at(rows))

            def say(rival: str, sample: Sample, name: str = name, rows: int = rows) -> None:
                _say(f"{name} {rows}: {rival} {sample.wall_s:.2f} s, {sample.rate:,.0f} rows/s")

            samples = play(
                match.rivals,
                rows=rows,
                rounds=rounds if is_told else 1,
                watch=lambda: Watch(without),
                on_sample=say,
            )
            if is_told:
                found += results(name, match, samples)
    ground.forget()
    return found


def _asked(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=__doc__)
    parser.add_argument("--sizes", type=_numbers, default=SIZES, metavar="N,N", help="rows")
    parser.add_argument("--large", action="store_true", help=f"with {LARGE:,} rows too")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each rival at each size")
    parser.add_argument("--only", type=_names, default=tuple(MATCHES), metavar="NAME,NAME",
                        help=f"of {', '.join(MATCHES)}")  # fmt: skip
    parser.add_argument("--server", default="valkey", help="of scripts/servers.py, or a path")
    parser.add_argument("--json", action="store_true", help="print every sample as JSON")
    asked = parser.parse_args(arguments)
    if asked.large:
        asked.sizes = (*asked.sizes, LARGE)
    return asked


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(each.replace("_", "")) for each in text.split(","))


def _names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    unknown = set(names) - set(MATCHES)
    if unknown:
        msg = f"unknown: {', '.join(sorted(unknown))}"
        raise argparse.ArgumentTypeError(msg)
    return names


def _as_json(found: Sequence[Result], before: Machine, after: Machine) -> dict[str, object]:
    return {
        "machine": asdict(after),
        "load_before": before.load,
        "results": [asdict(each) for each in found],
    }


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
