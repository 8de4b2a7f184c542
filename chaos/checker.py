"""Pure: the promises, each as a rule over the past that yields every breach of it.

A rule has an excuse only where its promise has a limit; `excuses` says how far each goes.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from chaos.excuses import (
    forgotten_runs,
    is_certainly_paused,
    is_lost,
    is_unsettled,
    last_life,
    lost_deliveries,
    was_about_to_begin,
    was_forgotten,
    was_forgotten_in_hand,
    was_starved,
    was_told_in_vain,
)
from chaos.past import FOREVER_US, JobPast, Past
from chaos.windows import expected, fired, had_to_fire, too_many, window_of

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
    """Every job that was acknowledged, or begun, has ended, was withdrawn, or is still there.

    Begun is enough: a recurring job is acknowledged to nobody, nor is one whose answer got lost. So
    is that somebody was told of an id that it is taken: then there is a job that has it.
    """
    for job in past.jobs.values():
        was_there = job.added or job.runs
        if not was_there or job.found or job.may_be_withdrawn:
            continue
        if past.may_be_untold(job):
            continue
        # A server without memory keeps the acknowledgement, and may lose the outcome.
        if any(run.is_ok for run in job.runs) and was_starved(past, job):
            continue
        if not was_forgotten(past, job):
            how = "begun" if job.runs else "said to be taken"
            if job.is_acknowledged:
                how = "acknowledged"
            yield Breach("lost", job.job_id, f"it was {how}, and is nowhere")


def one_place(past: Past) -> Iterator[Breach]:
    """No job is found in two places, or twice in one; one that was withdrawn is in none."""
    for job in past.jobs.values():
        if len(job.found) > 1 and not was_forgotten(past, job):
            yield Breach("one place", job.job_id, f"it is in {' and '.join(job.places())}")
        if job.is_withdrawn and job.found and not was_forgotten(past, job):
            yield Breach("one place", job.job_id, f"withdrawn, and it is in {job.places()[0]}")


def no_run_beside_itself(past: Past) -> Iterator[Breach]:
    """No two runs of a job overlap, unless the worker of the first was not able to work."""
    for job in past.jobs.values():
        for at, later in enumerate(job.runs):
            for earlier in job.runs[:at]:
                is_beside = earlier.until_us > later.began.us
                if is_beside and not (
                    is_lost(past, earlier, later.began.us)
                    or was_about_to_begin(past, later, earlier)
                ):
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
                if is_after and not (
                    is_unsettled(past, earlier, later.began.us)
                    or was_about_to_begin(past, later, earlier)
                ):
                    text = f"{later.began.run} began after {earlier.began.run} had succeeded"
                    yield Breach("doubled", job.job_id, text)


def budgets_are_kept(past: Past) -> Iterator[Breach]:
    """No job has more runs than it was asked to have at most, nor one with a higher number.

    As many once more for each time that somebody sent it round again.
    """
    for job in past.jobs.values():
        budget = past.budget_of(job)
        if not job.runs or budget is None:
            continue
        unlike = [run for run in job.runs if run.began.budget != budget]
        if unlike:
            text = f"{unlike[0].began.run} has a budget of {unlike[0].began.budget}, not {budget}"
            yield Breach("budget", job.job_id, text)
        over = [run for run in job.runs if run.began.attempt > budget]
        if over:
            text = f"{over[0].began.run} was run {over[0].began.attempt} of {budget}"
            yield Breach("budget", job.job_id, text)
        allowed = budget * (1 + job.revivals())
        if len(job.runs) > allowed + forgotten_runs(past, job, budget):
            yield Breach("budget", job.job_id, f"{len(job.runs)} runs, {allowed} allowed")


def completed_has_succeeded(past: Past) -> Iterator[Breach]:
    """A job is completed only by a run that succeeded: it is written down before it is told."""
    for job in past.jobs.values():
        if "completed" in job.places() and not any(run.is_ok for run in job.runs):
            text = f"it is completed, and none of its {len(job.runs)} runs succeeded"
            yield Breach("completed", job.job_id, text)


def success_is_no_dead_letter(past: Past) -> Iterator[Breach]:
    """A job that succeeded is not a dead letter, unless its worker could not say so.

    If it ran again after that, whether it was allowed to is for the rules of second runs.
    """
    for job in past.jobs.values():
        if "dlq" not in job.places() or not job.runs or was_forgotten(past, job):
            continue
        last = job.runs[-1]
        if last.is_ok and not is_unsettled(past, last):
            yield Breach("succeeded", job.job_id, f"{last.began.run} did, and it is in dlq")


def nothing_is_given_up_early(past: Past) -> Iterator[Breach]:
    """A dead letter had all runs that were asked for, or one that said there is no hope.

    A run less for each time that somebody may have read it and lost it, since it was due.
    """
    for job in past.jobs.values():
        budget = past.budget_of(job)
        if "dlq" not in job.places() or budget is None:
            continue
        if any(run.how == "hopeless" for run in last_life(past, job)):
            continue
        runs = len(last_life(past, job))
        if runs + lost_deliveries(past, job, _given_up_us(past, job)) < budget:
            text = f"it is in dlq after {runs} runs of {budget}"
            yield Breach("given up", job.job_id, text)


def _given_up_us(past: Past, job: JobPast) -> int:
    """When it became a dead letter, the last time; the end of time if that is not known."""
    at_ms = max(each.ms for each in job.found if each.place == "dlq")
    return (at_ms + _ROUNDING_MS - past.wall_offset_ms) * 1_000 if at_ms else FOREVER_US


def nothing_is_early(past: Past) -> Iterator[Breach]:
    """No delayed job, and none of a window, begins before it is due by the server's clock."""
    for job in past.jobs.values():
        window_ms = window_of(past, job.job_id)
        for run in job.runs:
            ask = past.asked.get(run.began.call)
            due_ms = ask.ms + ask.delay_ms if ask else window_ms
            early_ms = 0 if due_ms is None else due_ms - run.began.ms
            if early_ms > _ROUNDING_MS:
                yield Breach("early", job.job_id, f"{run.began.run} began {early_ms} ms early")


def withdrawn_is_not_run(past: Past) -> Iterator[Breach]:
    """A job that is said to be gone does not begin afterwards.

    Who destroys a group makes what a worker has in hand look as if it waited: it can be withdrawn.
    """
    for job in past.jobs.values():
        gone_us = min((each.us for each in job.withdrawn if each.is_gone), default=None)
        if gone_us is None or was_forgotten(past, job):
            continue
        for run in job.runs:
            if run.began.us > gone_us and not was_forgotten_in_hand(past, run, gone_us):
                yield Breach("withdrawn", job.job_id, f"{run.began.run} began after it was gone")


def paused_is_not_begun(past: Past) -> Iterator[Breach]:
    """What is asked for while the queue is paused does not begin before that ends."""
    # Of two pauses at a time the one that ends first ends both; and one that was asked for before
    # the end of another was carried out may have been before that end.
    pauses = [
        (paused.us, min(each.until_us for each in past.paused if each.ended_us >= paused.asked_us))
        for paused in past.paused
        if is_certainly_paused(past, paused)
    ]
    for job in past.jobs.values():
        asked = past.asked_for(job)
        if asked is None:
            continue
        ends_us = [until_us for us, until_us in pauses if us < asked.us < until_us]
        for run in job.runs:
            if ends_us and asked.us < run.began.us < max(ends_us):
                yield Breach("paused", job.job_id, f"{run.began.run} began in a pause")


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
        if len(calls) > 1 and not was_forgotten(past, job):
            text = f"of {len(calls)} calls that wanted this id all ran: {', '.join(sorted(calls))}"
            yield Breach("unique", job.job_id, text)
        fresh = [each for each in job.added if not each.is_taken]
        if len(fresh) > 1 and not was_forgotten(past, job):
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
            if not found.has_result and not was_starved(past, job):
                yield Breach("result", job.job_id, "it completed and its result is not there")
            if found.call and found.call not in {run.began.call for run in job.runs}:
                yield Breach("result", job.job_id, f"its result is that of {found.call}")
            values = [run.has_value for run in job.runs if run.is_ok]
            if found.has_result and not found.call and values and all(values):
                yield Breach("result", job.job_id, "it returned something, and nothing is kept")


def windows_fire_by_policy(past: Past) -> Iterator[Breach]:
    """Every window that fired is on the grid; none is left out that the policy does not allow.

    With `fire-all` that is none at all; with the others those that nobody was there to fire. Nor
    does a primary that dies excuse any: a job and the next window of its spec are written in one
    step, so what is lost of the one is lost of the other, and the window fires again. Of those that
    nobody was there to fire, `skip` fires none and `fire-once` one.
    """
    for key, spec in past.recurring.items():
        windows = fired(past, key)
        if not windows:
            yield Breach("windows", "", f"{key} never fired")
            continue
        off = [each for each in windows if (each - windows[0]) % spec.every_ms]
        if off:
            yield Breach("windows", f"{key}@{off[0]}", f"{off[0]} is no window of {key}")
        missing = sorted(set(expected(past, spec)) - set(windows))
        if spec.policy == "fire-all" and missing:
            yield Breach("windows", "", f"{key} left out {len(missing)}, the first {missing[0]}")
            continue
        passed = sorted(had_to_fire(past, spec) - set(windows))
        if passed:
            text = f"{key} left out {len(passed)} under a leader, the first {passed[0]}"
            yield Breach("windows", "", text)
        for window_ms, why in too_many(past, spec):
            yield Breach("windows", f"{key}@{window_ms}", why)


def poison_is_set_aside(past: Past) -> Iterator[Breach]:
    """What is no job is a dead letter in the end, once, and held nobody up; nothing else is.

    Unless it was left with a primary that died before its replica had it. What was left without an
    answer may be there or not.
    """
    by_id = Counter(each.source_id for each in past.set_aside)
    known = {each.entry_id for each in past.poisoned if by_id[each.entry_id] == 1}
    # Those that a worker handed back have another id; and members never had one.
    left = [each for each in past.poisoned if each.entry_id not in known]
    aside = Counter(each.tail for each in past.set_aside if each.source_id not in known)
    most = Counter(each.tail for each in left)
    least = Counter(
        each.tail for each in left if each.is_certain and not was_told_in_vain(past, each.us)
    )
    for each in {each.tail: each for each in left}.values():
        there = aside.pop(each.tail, 0)
        if not least[each.tail] <= there <= most[each.tail]:
            text = f"{each.shape}, left {most[each.tail]} times, was set aside {there} times"
            yield Breach("poison", "", text)
    if aside:
        text = f"{aside.total()} dead letters are no jobs, and nobody left them: {min(aside)!r}"
        yield Breach("poison", "", text)


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
    "completed": completed_has_succeeded,
    "succeeded": success_is_no_dead_letter,
    "given up": nothing_is_given_up_early,
    "early": nothing_is_early,
    "withdrawn": withdrawn_is_not_run,
    "paused": paused_is_not_begun,
    "refused": refused_is_not_run,
    "unique": calls_add_once,
    "result": results_are_readable,
    "windows": windows_fire_by_policy,
    "poison": poison_is_set_aside,
    "rest": it_came_to_rest,
}
