"""Pure: the promises, each as a rule over the past that yields every breach of it.

What excuses a breach is as narrow as it can be said. A job may run beside itself, or again after it
succeeded, if the worker that had it was killed, or could not work for a good part of a lease:
frozen, cut off, or starved by the machine. A connection that was merely reset excuses nothing; nor
does an event loop that was blocked; nor do scripts that were flushed, or memory that ran out.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from chaos.past import JobPast, Past, Run

# Shorter interruptions excuse nothing. Leases are renewed when a third of their time has passed, so
# half a lease of silence loses one; to what was measured comes the time to connect again.
_EXCUSED_PART = 6
# The server counts whole milliseconds, and so do we.
_ROUNDING_MS = 2


@dataclass(frozen=True, slots=True)
class Breach:
    """One broken promise: of one job, unless the id is empty."""

    rule: str
    job_id: str
    text: str


Rule = Callable[[Past], Iterator[Breach]]


def check(past: Past) -> list[Breach]:
    """Every breach of every rule."""
    return [breach for rule in RULES.values() for breach in rule(past)]


def nothing_is_lost(past: Past) -> Iterator[Breach]:
    """Every acknowledged job completed, is a dead letter, was withdrawn, or is still there."""
    for job in past.jobs.values():
        if not job.is_acknowledged or job.found or job.may_be_withdrawn:
            continue
        # A server without memory keeps the acknowledgement, and may lose the outcome.
        if any(run.is_ok for run in job.runs) and _was_starved(past, job):
            continue
        if not _was_forgotten(past, job):
            yield Breach("lost", job.job_id, "it was acknowledged, and is nowhere")


def one_place(past: Past) -> Iterator[Breach]:
    """No job is found in two places, or twice in one; one that was withdrawn is in none."""
    for job in past.jobs.values():
        if len(job.found) > 1 and not _was_forgotten(past, job):
            yield Breach("one place", job.job_id, f"it is in {' and '.join(job.places())}")
        if job.is_withdrawn and job.found and not _was_forgotten(past, job):
            yield Breach("one place", job.job_id, f"withdrawn, and it is in {job.places()[0]}")


def no_run_beside_itself(past: Past) -> Iterator[Breach]:
    """No two runs of a job overlap, unless the worker of the first was not able to work."""
    for job in past.jobs.values():
        for at, later in enumerate(job.runs):
            for earlier in job.runs[:at]:
                if earlier.until_us > later.began.us and not _is_excused(past, earlier, later):
                    overlap_ms = (earlier.until_us - later.began.us) // 1_000
                    text = f"{earlier.began.run} and {later.began.run} overlap by {overlap_ms} ms"
                    yield Breach("beside itself", job.job_id, text)


def no_run_after_success(past: Past) -> Iterator[Breach]:
    """A job whose handler returned does not run again, unless its worker could not say so."""
    for job in past.jobs.values():
        for at, earlier in enumerate(job.runs):
            if not earlier.is_ok:
                continue
            for later in job.runs[at + 1 :]:
                is_after = later.began.us >= earlier.until_us
                if is_after and not _is_excused(past, earlier, later):
                    text = f"{later.began.run} began after {earlier.began.run} had succeeded"
                    yield Breach("doubled", job.job_id, text)


def budgets_are_kept(past: Past) -> Iterator[Breach]:
    """No job has more runs than its budget, nor one with a higher number."""
    for job in past.jobs.values():
        if not job.runs:
            continue
        budget = job.runs[0].began.budget
        over = [run for run in job.runs if run.began.attempt > budget]
        if over:
            text = f"{over[0].began.run} was run {over[0].began.attempt} of {budget}"
            yield Breach("budget", job.job_id, text)
        if len(job.runs) > budget + _forgotten_runs(past, job):
            yield Breach("budget", job.job_id, f"{len(job.runs)} runs, {budget} allowed")


def nothing_is_early(past: Past) -> Iterator[Breach]:
    """No delayed job begins before it is due by the server's clock."""
    for job in past.jobs.values():
        for run in job.runs:
            ask = past.asked.get(run.began.call)
            early_ms = ask.ms + ask.delay_ms - run.began.ms if ask else 0
            if early_ms > _ROUNDING_MS:
                yield Breach("early", job.job_id, f"{run.began.run} began {early_ms} ms early")


def withdrawn_is_not_run(past: Past) -> Iterator[Breach]:
    """A job that is said to be gone does not begin afterwards."""
    for job in past.jobs.values():
        gone_us = min((each.us for each in job.withdrawn if each.is_gone), default=None)
        if gone_us is None or _was_forgotten(past, job):
            continue
        for run in job.runs:
            if run.began.us > gone_us:
                yield Breach("withdrawn", job.job_id, f"{run.began.run} began after it was gone")


def refused_is_not_run(past: Past) -> Iterator[Breach]:
    """What a full queue has refused for certain never runs."""
    refused = {each.call for each in past.refused if each.is_certain}
    for job in past.jobs.values():
        for run in job.runs:
            if run.began.call in refused:
                yield Breach("refused", job.job_id, f"{run.began.run} is of a refused call")


def calls_add_once(past: Past) -> Iterator[Breach]:
    """One call of `add` makes one job; of the calls for one id, one is run."""
    ids = defaultdict(set)
    for job in past.jobs.values():
        calls = {run.began.call for run in job.runs}
        if len(calls) > 1 and not _was_forgotten(past, job):
            text = f"of {len(calls)} calls that wanted this id all ran: {', '.join(sorted(calls))}"
            yield Breach("unique", job.job_id, text)
        fresh = [each for each in job.added if not each.is_taken]
        if len(fresh) > 1 and not _was_forgotten(past, job):
            yield Breach("unique", job.job_id, f"{len(fresh)} calls were told that they added it")
        for run in job.runs:
            if run.began.call in past.asked:
                ids[run.began.call].add(job.job_id)
    for call, found in ids.items():
        if len(found) > 1:
            text = f"call {call} made {len(found)} jobs: {', '.join(sorted(found))}"
            yield Breach("added once", min(found), text)


def results_are_readable(past: Past) -> Iterator[Breach]:
    """The result of a completed job can be read, and is that of one of its runs."""
    for job in past.jobs.values():
        for found in job.found:
            if found.place != "completed":
                continue
            if not found.has_result and not _was_starved(past, job):
                yield Breach("result", job.job_id, "it completed and its result is not there")
            if found.call and found.call not in {run.began.call for run in job.runs}:
                yield Breach("result", job.job_id, f"its result is that of {found.call}")


def windows_fire_by_policy(past: Past) -> Iterator[Breach]:
    """Every window that fired is on the grid; with `fire-all` none is left out."""
    for key, spec in past.recurring.items():
        windows = sorted(_window_of(job_id) for job_id in past.jobs if _is_of(job_id, key))
        if not windows:
            yield Breach("windows", "", f"{key} never fired")
            continue
        off = [each for each in windows if (each - windows[0]) % spec.every_ms]
        if off:
            yield Breach("windows", f"{key}@{off[0]}", f"{off[0]} is no window of {key}")
        expected = range(windows[0], windows[-1] + 1, spec.every_ms)
        missing = sorted(set(expected) - set(windows))
        if spec.policy == "fire-all" and missing and not past.losses():
            yield Breach("windows", "", f"{key} left out {len(missing)}, the first {missing[0]}")


def poison_is_set_aside(past: Past) -> Iterator[Breach]:
    """What is no job is a dead letter in the end, and held nobody up."""
    if past.set_aside < past.poisoned and not past.losses():
        yield Breach("poison", "", f"{past.poisoned} were left, {past.set_aside} were set aside")


def it_came_to_rest(past: Past) -> Iterator[Breach]:
    """When the faults were over everything was settled, and no rubbish stayed."""
    if past.quiet is None:
        yield Breach("rest", "", "nobody looked whether it came to rest")
        return
    if not past.quiet.is_drained:
        stuck = [
            job.job_id for job in past.jobs.values() if {"stream", "delayed"} & {*job.places()}
        ]
        first = stuck[0] if stuck else ""
        yield Breach("rest", first, f"the queue did not drain: {len(stuck)} jobs are stuck")
    for each in past.quiet.leftovers:
        yield Breach("rest", "", each)


RULES: dict[str, Rule] = {
    "lost": nothing_is_lost,
    "one place": one_place,
    "beside itself": no_run_beside_itself,
    "doubled": no_run_after_success,
    "budget": budgets_are_kept,
    "early": nothing_is_early,
    "withdrawn": withdrawn_is_not_run,
    "refused": refused_is_not_run,
    "unique": calls_add_once,
    "result": results_are_readable,
    "windows": windows_fire_by_policy,
    "poison": poison_is_set_aside,
    "rest": it_came_to_rest,
}


def _is_excused(past: Past, earlier: Run, later: Run) -> bool:
    """Whether the worker of the earlier run may have lost the job before the later one began."""
    died_us = past.died_us.get(earlier.began.who)
    if died_us is not None and died_us <= later.began.us:
        return True
    # From a lease before the run: what was read then may have begun late.
    since_us, until_us = earlier.began.us - past.lease_us, later.began.us
    if any(since_us <= each.us <= until_us for each in past.forgotten):
        return True
    return any(
        cut.until_us - cut.us >= past.lease_us // _EXCUSED_PART
        and cut.us <= until_us
        and cut.until_us >= since_us
        for cut in past.cuts_of(earlier.began.who)
    )


def _forgotten_runs(past: Past, job: JobPast) -> int:
    """How many runs the server cannot know of: it forgot them while the job was under way."""
    since_us, until_us = job.runs[0].began.us - past.lease_us, job.runs[-1].began.us
    times = [each for each in past.forgotten if since_us <= each.us <= until_us]
    return len(job.runs) if times else 0


def _was_forgotten(past: Past, job: JobPast) -> bool:
    """Whether something of the job was told to a primary that died with it.

    An answer may be written down long after the server gave it: what counts is when it was asked.
    And a run is settled some time after it has ended.
    """
    told = [(past.asked[each.call].us, each.us) for each in job.added if each.call in past.asked]
    told += [(each.us - past.lease_us, each.us) for each in job.withdrawn]
    told += [(run.began.us, run.until_us + past.lease_us) for run in job.runs]
    return any(
        since_us <= loss.us and until_us >= loss.since_us
        for loss in past.losses()
        for since_us, until_us in told
    )


def _was_starved(past: Past, job: JobPast) -> bool:
    return any(
        each.us <= run.until_us + past.lease_us and run.began.us <= each.until_us
        for each in past.starved
        for run in job.runs
    )


def _is_of(job_id: str, key: str) -> bool:
    return job_id.startswith(f"{key}@")


def _window_of(job_id: str) -> int:
    return int(job_id.rpartition("@")[2])
