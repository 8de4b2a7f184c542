"""What a run comes to: figures, and breaches with the whole story of their job."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from chaos.checker import RULES, Breach
from chaos.faults import playable
from chaos.history import (
    Added,
    Asked,
    Born,
    Ended,
    Fired,
    Found,
    Led,
    Record,
    Recurs,
    Revived,
    Reviving,
    Started,
    Withdrawing,
    Withdrawn,
    to_line,
)
from chaos.options import Options
from chaos.past import Past
from chaos.windows import had_to_fire

_MOST_SHOWN = 5
_LONGEST_REASON = 80
_WRONG_MS = 30_000


@dataclass(frozen=True, slots=True)
class Figures:
    """How much there was of everything."""

    asked: int
    acknowledged: int
    deduplicated: int
    refused: int
    unanswered: int
    most_under_way: int
    """Adds of one producer that were unanswered at the same time, right after a burst."""
    runs: int
    retried: int
    """Runs after one that failed."""
    redelivered: int
    """Runs after one that was killed, cut off, or not acknowledged."""
    completed: int
    untold: int
    """Succeeded in a worker that keeps no results, and nothing is left of them."""
    dead_letters: int
    withdrawn: int
    revived: int
    """Dead letters that were sent round again, for certain."""
    set_aside: int
    fired: int
    fires_told: int
    """Of these, the windows of which is known when they were fired."""
    had_to_fire: int
    """Windows that came under a leader to whom nothing was done."""
    deaths: int
    wrong_clocks: int
    """Processes that went by a wall clock that was wrong by half a minute or more."""
    at_risk: int
    """Acknowledged by a primary that died before its replica had them, and gone."""
    lost: int
    doubled: int
    """Succeeded twice, with an excuse or without."""
    unexcused: int
    """Runs beside another, or after a success, that nothing excuses."""


def figures(past: Past, breaches: list[Breach]) -> Figures:
    """Count."""
    jobs = past.jobs.values()
    rules = Counter(breach.rule for breach in breaches)
    places = Counter(place for job in jobs for place in job.places())
    before = Counter(run.how for job in jobs for run in job.runs[:-1])
    added = [each for job in jobs for each in job.added]
    nowhere = [job for job in jobs if job.is_acknowledged and not job.found]
    return Figures(
        asked=len(past.asked),
        acknowledged=sum(not each.is_taken for each in added),
        deduplicated=sum(each.is_taken for each in added),
        refused=sum(each.is_certain for each in past.refused),
        unanswered=len(past.asked) - len(added) - sum(each.is_certain for each in past.refused),
        most_under_way=max((each.under_way for each in past.bursts), default=0),
        runs=sum(len(job.runs) for job in jobs),
        retried=before["failed"],
        redelivered=before.total() - before["failed"],
        completed=places["completed"],
        untold=sum(past.may_be_untold(job) and not job.found for job in jobs),
        dead_letters=places["dlq"],
        withdrawn=sum(job.is_withdrawn for job in jobs),
        revived=sum(each.is_done is True for job in jobs for each in job.revived),
        set_aside=len(past.set_aside),
        fired=sum("@" in job.job_id for job in jobs),
        fires_told=sum(job.fire() is not None for job in jobs),
        had_to_fire=sum(len(had_to_fire(past, spec)) for spec in past.recurring.values()),
        deaths=len(past.died_us),
        wrong_clocks=len({each.who for each in past.born if abs(each.skew_ms) >= _WRONG_MS}),
        at_risk=sum(
            not job.may_be_withdrawn and not any(r.is_ok for r in job.runs) for job in nowhere
        )
        - rules["lost"],
        lost=rules["lost"],
        doubled=sum(sum(run.is_ok for run in job.runs) > 1 for job in jobs),
        unexcused=rules["doubled"] + rules["beside itself"],
    )


def to_json(options: Options, past: Past, breaches: list[Breach], records: list[Record]) -> str:
    """Everything, for programs."""
    answer: dict[str, Any] = {
        "command": options.command,
        "seed": options.seed,
        "figures": asdict(figures(past, breaches)),
        "faults": dict(_played(past).most_common()),
        "futile": _futile(past),
        "never_done": _never_done(options, past),
        "breaches": [
            {**asdict(breach), "history": [json.loads(line) for line in story(breach, records)]}
            for breach in breaches
        ],
    }
    return json.dumps(answer, indent=2)


def to_text(options: Options, past: Past, breaches: list[Breach], records: list[Record]) -> str:
    """Everything, for a person at a terminal."""
    return "\n".join(_lines(options, past, breaches, records))


def _lines(
    options: Options, past: Past, breaches: list[Breach], records: list[Record]
) -> Iterator[str]:
    counted = figures(past, breaches)
    yield f"chaos on {options.server}, {options.topology}, seed {options.seed}"
    yield ""
    for name, value in asdict(counted).items():
        yield f"  {name.replace('_', ' '):<20}{value:>9,}"
    yield ""
    played = _played(past)
    yield f"  {'faults':<20}{played.total():>9,}"
    for name, times in played.most_common():
        yield f"    {name:<18}{times:>9,}"
    for name, reasons in sorted(_futile(past).items()):
        yield f"    {name} could not be done {sum(reasons.values()):,} times:"
        yield from (f"      {times:>6,}  {why}" for why, times in reasons.items())
    for name in _never_done(options, past):
        yield f"    {name} was NEVER DONE: this run proves nothing of it"
    yield ""
    if not breaches:
        yield f"  every promise was kept: {', '.join(RULES)}"
        return
    yield f"  {len(breaches)} BREACHES"
    for breach in breaches[:_MOST_SHOWN]:
        yield ""
        yield f"  {breach.rule}: {breach.job_id or 'the queue'}: {breach.text}"
        yield from (f"    {line}" for line in story(breach, records))
    if len(breaches) > _MOST_SHOWN:
        counts = Counter(breach.rule for breach in breaches)
        yield ""
        yield f"  in all: {', '.join(f'{rule} {n}' for rule, n in counts.items())}"
    yield ""
    yield f"  to repeat it: {options.command}"


def _played(past: Past) -> Counter[str]:
    return Counter(each.fault for each in past.broke if each.is_done)


def _never_done(options: Options, past: Past) -> list[str]:
    done = _played(past)
    wanted = playable(options.topology, options.faults)
    return [fault.name for fault in wanted if fault.name not in done]


def _futile(past: Past) -> dict[str, dict[str, int]]:
    """How often a fault came to nothing, by the reason."""
    reasons: dict[str, Counter[str]] = defaultdict(Counter)
    for each in past.broke:
        if not each.is_done:
            reasons[each.fault][each.detail.splitlines()[0][:_LONGEST_REASON]] += 1
    return {fault: dict(counted.most_common()) for fault, counted in reasons.items()}


def story(breach: Breach, records: Iterable[Record]) -> list[str]:
    """Every line of the history that tells of the job of a breach, in order.

    Of windows that are missing: who led, by what clock, and what was to recur.
    """
    records = list(records)
    job_id = breach.job_id
    if breach.rule == "windows" and not job_id:
        told = [each for each in records if isinstance(each, Recurs | Born | Led)]
        return [to_line(each) for each in told if not isinstance(each, Born) or each.holder]
    kinds = Added | Fired | Started | Found | Withdrawing | Withdrawn | Reviving | Revived
    of_job = [r for r in records if isinstance(r, kinds) and r.job_id == job_id]
    calls = {record.call for record in of_job if isinstance(record, Added | Started)}
    runs = {record.run for record in of_job if isinstance(record, Started)}
    mine = {id(record) for record in of_job}
    return [
        to_line(record)
        for record in records
        if id(record) in mine
        or (isinstance(record, Asked) and record.call in calls)
        or (isinstance(record, Ended) and record.run in runs)
    ]
