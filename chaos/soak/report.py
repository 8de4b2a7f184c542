"""What a soak has come to, as a table or as JSON."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from bench.machine import machine
from bench.table import table
from chaos.soak.options import Options
from chaos.soak.run import Outcome
from chaos.soak.verdict import RULES, Verdict

_HEAD = ("of", "what", "first third", "last third", "most", "growth", "allowed", "")


def is_good(outcome: Outcome, verdicts: Sequence[Verdict]) -> bool:
    """Whether nothing grew, nothing was lost, and nothing else was wrong."""
    return (
        all(each.is_flat for each in verdicts) and not outcome.balance.lost and not outcome.wrongs
    )


def to_text(options: Options, outcome: Outcome, verdicts: Sequence[Verdict]) -> str:
    """Everything, for a person at a terminal."""
    return "\n".join(_lines(options, outcome, verdicts))


def to_json(options: Options, outcome: Outcome, verdicts: Sequence[Verdict]) -> str:
    """Everything, for programs, with every reading."""
    told = [{**asdict(each), "growth": each.growth, "is_flat": each.is_flat} for each in verdicts]
    answer = {
        "options": asdict(options),
        "machine": asdict(machine()),
        "is_good": is_good(outcome, verdicts),
        "verdicts": told,
        **asdict(outcome),
    }
    return json.dumps(answer)


def _lines(options: Options, outcome: Outcome, verdicts: Sequence[Verdict]) -> Iterator[str]:
    counted = outcome.balance
    yield f"soak on {options.server}: {outcome.seconds / 60:.1f} minutes, {outcome.cuts} cuts"
    yield (
        f"{counted.acknowledged:,} jobs acknowledged, {counted.ended:,} ended, "
        f"{counted.again:,} more than once, {counted.lost:,} lost"
    )
    yield f"{machine()}"
    yield ""
    yield table(_HEAD, [_row(each) for each in verdicts])
    yield ""
    wrongs = [f"{each.who} {each.what} grows" for each in verdicts if not each.is_flat]
    if counted.lost:
        wrongs.append(f"{counted.lost} jobs are lost")
    yield from (f"WRONG: {text}" for text in [*wrongs, *outcome.wrongs])
    if is_good(outcome, verdicts):
        yield "everything is flat after the warm-up, nothing is lost, nothing is left"


def _row(verdict: Verdict) -> list[str]:
    unit = RULES[verdict.what].unit
    values = (verdict.first, verdict.last, verdict.most, verdict.growth, verdict.allowed)
    shown = [f"{value:,.1f}" if unit else f"{value:,.0f}" for value in values]
    what = f"{verdict.what} ({unit})" if unit else verdict.what
    return [verdict.who, what, *shown, "flat" if verdict.is_flat else "GROWS"]
