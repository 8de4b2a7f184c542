"""Rivals take turns at a scenario, each time in a process of its own on a server wiped before."""

import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.program.order import Answer, Order
from bench.raw import RawClient
from bench.rounds import turns
from bench.scenarios import Scenario

ROOT = Path(__file__).parents[1]
_LONGEST_S = 900


@dataclass(frozen=True, slots=True)
class Contender:
    """A rival and how to start its program."""

    name: str
    adapter: str
    port: int
    command: Callable[[Order], Sequence[str] | None]
    """What to run for an order; None where it does not take part."""
    share: float = 1.0


def by_order(command: Sequence[str]) -> Callable[[Order], Sequence[str]]:
    """Start a program that takes orders."""
    return lambda order: [*command, order.to_json()]


def hold(
    scenario: Scenario,
    contenders: Sequence[Contender],
    *,
    rounds: int,
    is_quick: bool,
    wipe: Callable[[int], None],
    on_answer: Callable[[str, Answer], None] = lambda _name, _answer: None,
) -> Mapping[str, Sequence[Answer]]:
    """Let every contender run once a round; what each answered, in the order of the rounds.

    `wipe` is called with a server's port before each run on it.

    One that failed in a round has an answer without figures there. One that cannot do the scenario
    at all is asked once.
    """
    answers: dict[str, list[Answer]] = {each.name: [] for each in contenders}
    for each in turns(contenders, rounds):
        order = scenario.ordered(each.adapter, each.port, share=each.share, is_quick=is_quick)
        told = answers[each.name]
        command = each.command(order)
        if command is None:
            continue
        if told and told[-1].skipped is not None and not any(one.figures for one in told):
            told.append(told[-1])
            continue
        wipe(each.port)
        answer = asked(command)
        told.append(answer)
        on_answer(each.name, answer)
    return {name: told for name, told in answers.items() if told}


def wiped(port: int) -> None:
    """Leave nothing on a server."""
    with RawClient(("127.0.0.1", port)) as client:
        client.run("FLUSHALL")


def asked(command: Sequence[str]) -> Answer:
    """What a program answers; one that fails answers with the end of what it said."""
    try:
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, cwd=ROOT, timeout=_LONGEST_S
        )
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip().splitlines()
        return Answer(skipped=f"failed: {said[-1] if said else error.returncode}")
    except subprocess.TimeoutExpired:
        return Answer(skipped=f"failed: took more than {_LONGEST_S} s")
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return Answer.from_json(lines[-1]) if lines else Answer(skipped="failed: it said nothing")
