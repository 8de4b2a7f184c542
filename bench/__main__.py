"""`python -m bench`: ours, its peers and the limits in one run, as a table, JSON or a chart."""

import argparse
import json
import signal
import sys
from collections.abc import Container, Sequence
from dataclasses import asdict

from bench.contest import Contender, hold, program
from bench.machine import machine
from bench.peers import PEERS, MissingError, home, version_of
from bench.program.order import Answer
from bench.results import OURS, Result, results, shown, skipped, summary
from bench.scenarios import SCENARIOS
from bench.server import BenchServer


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; 0 whatever the figures are."""
    asked = _asked(arguments)
    # An exit rather than sudden death, so that the server ends too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    before = machine()
    found: list[Result] = []
    foot: list[str] = []
    with BenchServer(asked.server, tcp=True) as server:
        versions = {server.name: server.version}
        contenders = [Contender(OURS, "chasqui", server.port, program(sys.executable))]
        for name in asked.peers:
            try:
                python = home(PEERS[name])
                versions[name] = version_of(PEERS[name], python)
            except MissingError as error:
                foot.append(f"{name} is missing: {error}")
                continue
            peer = PEERS[name]
            contenders.append(
                Contender(name, peer.adapter, server.port, program(python), peer.share)
            )
        for name in asked.only:
            scenario = SCENARIOS[name]

            def say(rival: str, answer: Answer, name: str = name) -> None:
                _say(f"{name}: {rival} {answer.skipped or _brief(answer)}")

            answers = hold(
                scenario, contenders, rounds=asked.rounds, is_quick=asked.quick, on_answer=say
            )
            found += results(scenario, answers)
            foot += skipped(scenario, answers)
    after = machine("uvloop", "hiredis", **versions)
    if asked.json:
        told = {"machine": asdict(after), "load_before": before.load, "foot": foot}
        print(json.dumps(told | {"results": [asdict(each) for each in found]}, indent=2))
    else:
        print(shown(found), summary(found), *foot, sep="\n\n")
        print(f"\n{after}; load before {before.load[0]:.1f}")
    return 0


def _asked(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", type=_scenarios, default=tuple(SCENARIOS), metavar="NAME,NAME",
                        help=f"of {', '.join(SCENARIOS)}")  # fmt: skip
    parser.add_argument("--peers", type=_peers, default=("reference",), metavar="NAME,NAME",
                        help=f"`all`, `none`, or of {', '.join(PEERS)}")  # fmt: skip
    parser.add_argument("--server", default="redis-8.6", help="of scripts/servers.py, or a path")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each rival")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: to see that it works")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    return parser.parse_args(arguments)


def _scenarios(text: str) -> tuple[str, ...]:
    return _known(text, SCENARIOS)


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
