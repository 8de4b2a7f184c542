"""What the rounds of a scenario came to, as values and as a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.program.order import Answer
from bench.rounds import Spread
from bench.scenarios import FIGURES, Scenario
from bench.table import spread, table
from bench.targets import ITSELF, LIMIT, REFERENCE, Target, fallback, targets_of

OURS = "ours"
_HEAD = (
    "scenario", "who", "unit", "median (range)", "x reference", "x limit",
    "client us", "server us", "commands", "target",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Verdict:
    """A target and what was found; None where there was nothing to compare with."""

    target: Target
    found: float | None

    @property
    def is_met(self) -> bool | None:
        """None if it cannot be said."""
        return None if self.found is None else self.target.is_met(self.found)

    def __str__(self) -> str:
        """The target, and a word where it is not met."""
        word = {True: "", False: " MISSED", None: " (not compared)"}[self.is_met]
        return f"{self.target}{word}"


@dataclass(frozen=True, slots=True)
class Result:
    """One figure of one rival in one scenario."""

    scenario: str
    rival: str
    figure: str
    values: Spread
    to_reference: Spread | None
    to_limit: Spread | None
    client_us: float | None
    server_us: float | None
    commands: float | None
    verdicts: Sequence[Verdict]


def results(scenario: Scenario, answers: Mapping[str, Sequence[Answer]]) -> list[Result]:
    """Figure by figure, what became of each rival."""
    found = []
    for figure in scenario.figures:
        for rival, told in answers.items():
            values = _values(told, figure)
            if not values:
                continue
            found.append(
                Result(
                    scenario=scenario.name,
                    rival=rival,
                    figure=figure,
                    values=Spread.of(values),
                    to_reference=ratio(answers, figure, rival, REFERENCE),
                    to_limit=ratio(answers, figure, rival, LIMIT),
                    client_us=_median(told, "client_us"),
                    server_us=_median(told, "server_us"),
                    commands=_median(told, "commands"),
                    verdicts=_verdicts(scenario.name, figure, answers) if rival == OURS else (),
                )
            )
    return found


def ratio(
    answers: Mapping[str, Sequence[Answer]], figure: str, rival: str, baseline: str
) -> Spread | None:
    """A rival's figure divided by another's, round by round; None if they never met."""
    if rival == baseline:
        return None
    met = [
        ours.figures[figure] / theirs.figures[figure]
        for ours, theirs in zip(answers.get(rival, ()), answers.get(baseline, ()), strict=False)
        if figure in ours.figures and theirs.figures.get(figure)
    ]
    return Spread.of(met) if met else None


def skipped(scenario: Scenario, answers: Mapping[str, Sequence[Answer]]) -> list[str]:
    """A line for each rival that did not answer in some round, with its first reason."""
    lines = []
    for rival, told in answers.items():
        reasons = [each.skipped for each in told if each.skipped is not None]
        if reasons:
            lines.append(f"{scenario.name}: {rival} {len(reasons)} of {len(told)}: {reasons[0]}")
    return lines


def shown(found: Sequence[Result]) -> str:
    """The table: medians and ranges, ratios, what a job cost, and the targets."""
    return table(_HEAD, [_row(each) for each in found])


def summary(found: Sequence[Result]) -> str:
    """How many targets are met, and which are not."""
    verdicts = [(each, verdict) for each in found for verdict in each.verdicts]
    met = sum(verdict.is_met is True for _, verdict in verdicts)
    lines = [f"{met} of {len(verdicts)} targets met"]
    lines += [
        f"  {each.scenario} {FIGURES[each.figure].unit}: {verdict}, found {_number(verdict.found)}"
        for each, verdict in verdicts
        if not verdict.is_met
    ]
    return "\n".join(lines)


def _verdicts(scenario: str, figure: str, answers: Mapping[str, Sequence[Answer]]) -> list[Verdict]:
    made = []
    targets = targets_of(scenario, figure)
    if figure == "rate":
        targets += [fallback(scenario, each) for each in answers if each.startswith(f"{OURS}, ")]
    for target in targets:
        if target.against == ITSELF:
            made.append(Verdict(target, Spread.of(_values(answers[OURS], figure)).median))
        else:
            to = ratio(answers, figure, OURS, target.against)
            made.append(Verdict(target, None if to is None else to.median))
    return made


def _values(told: Sequence[Answer], figure: str) -> list[float]:
    return [each.figures[figure] for each in told if figure in each.figures]


def _median(told: Sequence[Answer], figure: str) -> float | None:
    values = _values(told, figure)
    return Spread.of(values).median if values else None


def _row(each: Result) -> tuple[str, ...]:
    figure = FIGURES[each.figure]
    return (
        each.scenario,
        each.rival,
        figure.unit,
        spread(each.values, figure.digits),
        "" if each.to_reference is None else spread(each.to_reference),
        "" if each.to_limit is None else spread(each.to_limit),
        _number(each.client_us),
        _number(each.server_us),
        _number(each.commands),
        ", ".join(map(str, each.verdicts)),
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
