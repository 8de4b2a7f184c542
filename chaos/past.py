"""Pure: a history, turned from lines in time into jobs with their runs, and what excuses them."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from chaos.history import (
    EVERYBODY,
    Added,
    Asked,
    Broke,
    Cut,
    Died,
    Ended,
    Forgotten,
    Found,
    Poisoned,
    Quiet,
    Record,
    Recurs,
    Refused,
    SetAside,
    Stage,
    Started,
    Starved,
    Withdrawing,
    Withdrawn,
)

FOREVER_US = 1 << 62


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a handler. One that was killed ended with its process, and `how` is empty."""

    began: Started
    until_us: int
    how: str

    @property
    def is_ok(self) -> bool:
        """Whether the handler returned."""
        return self.how == "ok"


@dataclass(slots=True)
class JobPast:
    """All that is known of one id."""

    job_id: str
    added: list[Added] = field(default_factory=list)
    withdrawing: list[Withdrawing] = field(default_factory=list)
    withdrawn: list[Withdrawn] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    found: list[Found] = field(default_factory=list)

    @property
    def is_acknowledged(self) -> bool:
        """Whether somebody was told that it is on the server."""
        return any(not each.is_taken for each in self.added)

    @property
    def is_withdrawn(self) -> bool:
        """Whether somebody was told that it is gone."""
        return any(each.is_gone for each in self.withdrawn)

    @property
    def may_be_withdrawn(self) -> bool:
        """Whether somebody was told so, or asked for it and was told nothing, or did not live."""
        is_open = len(self.withdrawing) > len(self.withdrawn)
        return is_open or any(each.is_gone is not False for each in self.withdrawn)

    def places(self) -> list[str]:
        """Where it was found."""
        return [each.place for each in self.found]


@dataclass(slots=True)
class Past:
    """A whole run."""

    lease_us: int = 30_000_000
    jobs: dict[str, JobPast] = field(default_factory=dict)
    asked: dict[str, Asked] = field(default_factory=dict)
    refused: list[Refused] = field(default_factory=list)
    recurring: dict[str, Recurs] = field(default_factory=dict)
    cuts: dict[str, list[Cut]] = field(default_factory=lambda: defaultdict(list))
    died_us: dict[str, int] = field(default_factory=dict)
    forgotten: list[Forgotten] = field(default_factory=list)
    starved: list[Starved] = field(default_factory=list)
    broke: list[Broke] = field(default_factory=list)
    poisoned: int = 0
    set_aside: int = 0
    quiet: Quiet | None = None

    def job(self, job_id: str) -> JobPast:
        """What is known of an id, which may be nothing yet."""
        if job_id not in self.jobs:
            self.jobs[job_id] = JobPast(job_id)
        return self.jobs[job_id]

    def losses(self) -> list[Forgotten]:
        """When a server died with acknowledged writes that its replica did not have."""
        return [each for each in self.forgotten if each.since_us]

    def cuts_of(self, who: str) -> list[Cut]:
        """When somebody could not work, for reasons of their own or of everybody."""
        return [*self.cuts.get(who, ()), *self.cuts.get(EVERYBODY, ())]


def told(records: Iterable[Record]) -> Past:
    """The past that these records tell of, in whatever order they come."""
    past = Past()
    starts: dict[str, Started] = {}
    ends: dict[str, Ended] = {}
    for record in records:
        match record:
            case Started(run=run):
                starts[run] = record
            case Ended(run=run):
                ends[run] = record
            case _:
                _note(past, record)
    for run, began in starts.items():
        end = ends.get(run)
        died_us = past.died_us.get(began.who, FOREVER_US)
        past.job(began.job_id).runs.append(
            Run(began, end.us if end else max(died_us, began.us), end.how if end else "")
        )
    for job in past.jobs.values():
        job.runs.sort(key=lambda run: run.began.us)
    return past


def _note(past: Past, record: Record) -> None:
    match record:
        case Stage():
            past.lease_us = record.lease_ms * 1_000
        case Asked():
            past.asked[record.call] = record
        case Added():
            past.job(record.job_id).added.append(record)
        case Refused():
            past.refused.append(record)
        case Withdrawing():
            past.job(record.job_id).withdrawing.append(record)
        case Withdrawn():
            past.job(record.job_id).withdrawn.append(record)
        case Found():
            past.job(record.job_id).found.append(record)
        case Recurs():
            past.recurring[record.key] = record
        case Died():
            past.died_us[record.who] = min(record.us, past.died_us.get(record.who, FOREVER_US))
        case _:
            _note_weather(past, record)


def _note_weather(past: Past, record: Record) -> None:
    match record:
        case Cut():
            past.cuts[record.who].append(record)
        case Forgotten():
            past.forgotten.append(record)
        case Starved():
            past.starved.append(record)
        case Broke(is_done=True):
            past.broke.append(record)
        case Poisoned():
            past.poisoned += record.count
        case SetAside():
            past.set_aside += record.count
        case Quiet():
            past.quiet = record
