"""`python -m bench`: ours, its peers and the limits in one run, as a table, JSON or a chart."""

import argparse
import json
import signal
import sys
from collections.abc import Container, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from bench.chart import chart
from bench.contest import hold, wiped
from bench.field import Field, field
from bench.limits import benchmark_line
from bench.machine import machine
from bench.peers import PEERS
from bench.program.order import Answer
from bench.results import Result, results, shown, skipped, summary
from bench.scenarios import SCENARIOS
from bench.server import BenchServer

_JOBS, _QUICK_JOBS = 500_000, 10_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; 0 whatever the figures are."""
    asked = _asked(arguments)
    # An exit rather than sudden death, so that the servers end too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    before = machine()
    with ExitStack() as stack:
        server = stack.enter_context(BenchServer(asked.server, tcp=True))
        beside = asked.beside and stack.enter_context(BenchServer(asked.beside, tcp=True))
        there = field(server, asked.peers, beside or None)
        found, foot = measure(there, asked.only, asked.rounds, is_quick=asked.quick)
        foot.append(benchmark_line(server.port, _QUICK_JOBS if asked.quick else _JOBS))
    after = machine("uvloop", "hiredis", **there.versions)
    note = f"{after}; load before {before.load[0]:.1f}"
    if asked.json:
        told = {"machine": asdict(after), "load_before": before.load, "foot": foot}
        print(json.dumps(told | {"results": [asdict(each) for each in found]}, indent=2))
    else:
        print(shown(found), summary(found), "\n".join(foot), note, sep="\n\n")
    if asked.chart:
        asked.chart.write_text(chart(found, note), encoding="utf-8")
    return 0


def measure(
    there: Field, names: Sequence[str], rounds: int, *, is_quick: bool
) -> tuple[list[Result], list[str]]:
    """Every scenario; what was found, and what has to be said below it."""
    found: list[Result] = []
    foot = list(there.missing)
    for name in names:
        scenario = SCENARIOS[name]

        def say(rival: str, answer: Answer, name: str = name) -> None:
            _say(f"{name}: {rival} {answer.skipped or _brief(answer)}")

        contenders = there.contenders(scenario)
        answers = hold(
            scenario, contenders, rounds=rounds, is_quick=is_quick, wipe=wiped, on_answer=say
        )
        found += results(scenario, answers)
        foot += skipped(scenario, answers)
    return found, foot


def _asked(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", type=scenarios_named, default=tuple(SCENARIOS),
                        metavar="NAME,NAME", help=f"of {', '.join(SCENARIOS)}")  # fmt: skip
    parser.add_argument("--peers", type=_peers, default=("reference",), metavar="NAME,NAME",
                        help=f"`all`, `none`, or of {', '.join(PEERS)}")  # fmt: skip
    parser.add_argument("--server", default="redis-8.6", help="of scripts/servers.py, or a path")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each rival")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: to see that it works")
    parser.add_argument("--beside", metavar="SERVER", help="ours runs on this one too")
    parser.add_argument("--chart", type=Path, metavar="FILE", help="write a picture (SVG)")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    return parser.parse_args(arguments)


def scenarios_named(text: str) -> tuple[str, ...]:
    """As named; `processes` stands for all that begin so, as there is none of that very name."""
    names: list[str] = []
    for word in text.split(","):
        alike = [name for name in SCENARIOS if name.rstrip("0123456789") == word]
        names += alike if alike and word not in SCENARIOS else [word]
    return _known(",".join(names), SCENARIOS)


def _peers(text: str) -> tuple[str, ...]:
    if text == "none":
        return ()
    return tuple(PEERS) if text == "all" else _known(text, PEERS)


def _known(text: str, among: Container[str]) -> tuple[str, ...]:
    names = tuple(text.split(","))
    unknown = [name for name in names if name not in among]
    if unknown:
        msg = f"unknown: {', '.join(unknown)}"
        raise argparse.ArgumentTypeError(msg)
    return names


def _brief(answer: Answer) -> str:
    return ", ".join(f"{name} {value:,.2f}" for name, value in answer.figures.items())


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
