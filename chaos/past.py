"""Pure: a history, turned from lines in time into jobs with their runs, and what excuses them."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from chaos.history import (
    EVERYBODY,
    Added,
    Asked,
    Blocked,
    Born,
    Broke,
    Burst,
    Ceased,
    Cut,
    Died,
    Ended,
    Fired,
    Forgotten,
    Found,
    Led,
    Paused,
    Poisoned,
    Quiet,
    Record,
    Recurs,
    Refused,
    Revived,
    Reviving,
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
    has_value: bool = False

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
    reviving: list[Reviving] = field(default_factory=list)
    revived: list[Revived] = field(default_factory=list)
    fires: list[Fired] = field(default_factory=list)
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

    def revivals(self) -> int:
        """How often, at most, it was sent round again before its last run."""
        if not self.runs:
            return 0
        until_us = self.runs[-1].began.us
        refused = [each.since_us for each in self.revived if each.is_done is False]
        asked = [each.us for each in self.reviving]
        return sum(us <= until_us for us in asked) - sum(us <= until_us for us in refused)

    def fire(self) -> Fired | None:
        """That of its window; None if nobody told of it, or only of a retry."""
        first = min(self.fires, key=lambda each: each.at_ms, default=None)
        if first is None or (self.runs and self.runs[0].began.ms < first.at_ms):
            return None
        return first

    def places(self) -> list[str]:
        """Where it was found."""
        return [each.place for each in self.found]


@dataclass(slots=True)
class Past:
    """A whole run."""

    lease_us: int = 30_000_000
    jobs: dict[str, JobPast] = field(default_factory=dict)
    beginnings: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """When runs began, by worker, in their order."""
    asked: dict[str, Asked] = field(default_factory=dict)
    bursts: list[Burst] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    recurring: dict[str, Recurs] = field(default_factory=dict)
    ceased_us: int | None = None
    cuts: dict[str, list[Cut]] = field(default_factory=lambda: defaultdict(list))
    blocked: list[Blocked] = field(default_factory=list)
    died_us: dict[str, int] = field(default_factory=dict)
    forgotten: list[Forgotten] = field(default_factory=list)
    starved: list[Starved] = field(default_factory=list)
    paused: list[Paused] = field(default_factory=list)
    broke: list[Broke] = field(default_factory=list)
    born: list[Born] = field(default_factory=list)
    silent: set[str] = field(default_factory=set)
    """Workers that keep no results."""
    led: list[Led] = field(default_factory=list)
    poisoned: list[Poisoned] = field(default_factory=list)
    set_aside: list[SetAside] = field(default_factory=list)
    quiet: Quiet | None = None

    def job(self, job_id: str) -> JobPast:
        """What is known of an id, which may be nothing yet."""
        if job_id not in self.jobs:
            self.jobs[job_id] = JobPast(job_id)
        return self.jobs[job_id]

    def may_be_untold(self, job: JobPast) -> bool:
        """Whether it succeeded in a worker that keeps no results: nothing need be left of it."""
        return any(run.is_ok and run.began.who in self.silent for run in job.runs)

    def asked_for(self, job: JobPast) -> Asked | None:
        """The call that made a job; None if it is a recurring one, or nobody knows.

        The run says so best, then the dead letter: of calls for one id any may have made the job.
        """
        calls = [run.began.call for run in job.runs]
        calls += [each.call for each in job.found]
        calls += [each.call for each in job.added if not each.is_taken]
        return next((self.asked[call] for call in calls if call in self.asked), None)

    def budget_of(self, job: JobPast) -> int | None:
        """How often a job may run, as it was asked for; what it says itself if nobody knows."""
        if asked := self.asked_for(job):
            return asked.budget
        spec = self.recurring.get(job.job_id.rpartition("@")[0])
        if spec is not None and spec.budget:
            return spec.budget
        return job.runs[0].began.budget if job.runs else None

    @property
    def wall_offset_ms(self) -> int:
        """What has to be added to the machine's monotonic clock to get its wall clock."""
        ask = next(iter(self.asked.values()), None)
        return ask.ms - ask.us // 1_000 if ask else 0

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
    for name, began in starts.items():
        end = ends.get(name)
        died_us = past.died_us.get(began.who, FOREVER_US)
        until_us = end.us if end else max(died_us, began.us)
        how, has_value = (end.how, end.has_value) if end else ("", False)
        past.job(began.job_id).runs.append(Run(began, until_us, how, has_value))
    for job in past.jobs.values():
        job.runs.sort(key=lambda run: run.began.us)
    for began in sorted(starts.values(), key=lambda began: began.us):
        past.beginnings[began.who].append(began.us)
    past.silent = {each.who for each in past.born if not each.keeps_results}
    return past


def _note(past: Past, record: Record) -> None:
    match record:
        case Stage():
            past.lease_us = record.lease_ms * 1_000
        case Asked():
            past.asked[record.call] = record
        case Burst():
            past.bursts.append(record)
        case Added():
            past.job(record.job_id).added.append(record)
        case Refused():
            past.refused.append(record)
        case Withdrawing() | Withdrawn() | Reviving() | Revived() | Fired():
            _note_of(past.job(record.job_id), record)
        case Paused():
            past.paused.append(record)
        case Found() | Poisoned() | SetAside() | Quiet() | Ceased():
            _note_rest(past, record)
        case _:
            _note_weather(past, record)


def _note_of(job: JobPast, record: Withdrawing | Withdrawn | Reviving | Revived | Fired) -> None:
    match record:
        case Withdrawing():
            job.withdrawing.append(record)
        case Withdrawn():
            job.withdrawn.append(record)
        case Reviving():
            job.reviving.append(record)
        case Revived():
            job.revived.append(record)
        case Fired():
            job.fires.append(record)


def _note_weather(past: Past, record: Record) -> None:
    match record:
        case Recurs():
            past.recurring[record.key] = record
        case Born():
            past.born.append(record)
        case Led():
            past.led.append(record)
        case Died():
            past.died_us[record.who] = min(record.us, past.died_us.get(record.who, FOREVER_US))
        case Cut():
            past.cuts[record.who].append(record)
        case Blocked():
            past.blocked.append(record)
        case Forgotten():
            past.forgotten.append(record)
        case Starved():
            past.starved.append(record)
        case Broke():
            past.broke.append(record)


def _note_rest(past: Past, record: Found | Poisoned | SetAside | Quiet | Ceased) -> None:
    match record:
        case Found():
            past.job(record.job_id).found.append(record)
        case Poisoned():
            past.poisoned.append(record)
        case SetAside():
            past.set_aside.append(record)
        case Quiet():
            past.quiet = record
        case Ceased():
            past.ceased_us = record.us
