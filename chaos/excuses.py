"""Pure: what excuses a breach, each as narrow as it can be said.

A worker may lose what it has read, runs, or has just run, if it was killed, or could not work for a
good part of a lease: frozen, cut off, or starved by the machine. A connection that was merely reset
excuses nothing: what was in an answer that got lost is handed back. Nor does an event loop that was
blocked; nor do scripts that were flushed, or memory that ran out.
"""

from bisect import bisect_left

from chaos.history import Cut, Paused
from chaos.past import FOREVER_US, JobPast, Past, Run

# Shorter interruptions excuse nothing. Leases are renewed when a third of their time has passed, so
# half a lease of silence loses one; to what was measured comes the time to connect again.
_EXCUSED_PART = 6
# A run is settled within so many leases of its end, or something was done to its worker by then:
# longer than any event loop is blocked.
_SETTLED_LEASES = 2
# For so long, at most, a key of ours holds something else, if it had to wait for its turn too.
_LONGEST_HIDDEN_US = 10_000_000
# Why somebody stood still as a whole, and goes on where it was when that is over.
_STOOD_STILL = ("frozen", "stood still")
_AT_ONCE_US = 50_000
# Who never reads a job.
_NO_WORKERS = ("producer", "promoter", "scheduler")


def is_lost(past: Past, run: Run, until_us: int) -> bool:
    """Whether the worker of a run may have lost the job before that moment."""
    died_us = past.died_us.get(run.began.who)
    if died_us is not None and died_us <= until_us:
        return True
    if was_forgotten_in_hand(past, run, until_us):
        return True
    since_us = _read_since_us(past, run)
    return any(_is_long(past, cut, since_us, until_us) for cut in past.cuts_of(run.began.who))


def was_forgotten_in_hand(past: Past, run: Run, until_us: int) -> bool:
    """Whether the server may have forgotten, by then, that the worker of a run had the job."""
    since_us = _read_since_us(past, run)
    return any(since_us <= each.us <= until_us for each in past.forgotten)


def _read_since_us(past: Past, run: Run) -> int:
    """From a lease before a run: what was read then may have begun late."""
    return run.began.us - past.lease_us


def is_unsettled(past: Past, run: Run, until_us: int = FOREVER_US) -> bool:
    """Whether the worker of a run may not have been able to say, by then, how it ended.

    What befell it long after the run says nothing: by then it was settled.
    """
    return is_lost(past, run, min(until_us, run.until_us + _SETTLED_LEASES * past.lease_us))


def was_about_to_begin(past: Past, later: Run, earlier: Run) -> bool:
    """Whether the worker of the later run stood still just before it, and the earlier came between.

    A worker looks whether a job is its own, and then begins it. Nothing can keep it from standing
    still between the two, until the job is another's. It is the first that the worker begins when
    it wakes, of a delivery before that of the other; all others are looked at again. By their
    numbers deliveries can be compared unless the job was sent round again in between.
    """
    since_us, until_us = earlier.began.us - past.lease_us, later.began.us
    reviving = past.jobs[later.began.job_id].reviving
    is_one_life = not any(since_us <= each.us <= until_us for each in reviving)
    if is_one_life and later.began.attempt >= earlier.began.attempt:
        return False
    beginnings = past.beginnings[later.began.who]
    return any(
        cut.why in _STOOD_STILL
        and cut.us <= earlier.began.us
        and _is_long(past, cut, cut.us, cut.until_us)
        and cut.until_us <= later.began.us <= cut.until_us + _AT_ONCE_US
        and beginnings[bisect_left(beginnings, cut.until_us)] == later.began.us
        for cut in past.cuts.get(later.began.who, ())
    )


def last_life(past: Past, job: JobPast) -> list[Run]:
    """Its runs since it was sent round again for the last time; all, if nobody knows when.

    That it was may be unknown to who asked, or may have died with a primary.
    """
    answers = [each.is_done for each in job.revived]
    is_vain = any(
        loss.since_us <= each.us and each.since_us <= loss.us
        for loss in past.losses()
        for each in job.revived
    )
    if is_vain or None in answers or len(answers) < len(job.reviving):
        return job.runs
    since_us = max((each.since_us for each in job.revived if each.is_done), default=0)
    return [run for run in job.runs if run.began.us >= since_us]


def forgotten_runs(past: Past, job: JobPast, budget: int) -> int:
    """How many runs, at most, the server forgot while the job was under way.

    Each time it is as if the job had not run since it came to the stream.
    """
    since_us, until_us = job.runs[0].began.us - past.lease_us, job.runs[-1].began.us
    return budget * sum(since_us <= each.us <= until_us for each in past.forgotten)


def lost_deliveries(past: Past, job: JobPast, until_us: int) -> int:
    """How many times, at most, the job was read and lost before it began: each costs it a run."""
    since_us = _due_us(past, job)
    # Who was killed in a run of this job has cost it that run, and no other.
    spent = {run.began.who for run in job.runs if not run.how}
    killed = sum(
        since_us <= died_us <= until_us and who not in spent and _was_killed(past, who, died_us)
        for who, died_us in past.died_us.items()
    )
    cuts = [
        # Who hears no answers may be given the same job again when its lease is over.
        1 + (cut.until_us - cut.us) // past.lease_us
        for cuts in past.cuts.values()
        for cut in cuts
        if _is_of_workers(cut) and _is_long(past, cut, since_us, until_us)
    ]
    # And each time a lease had to run out before anybody else was given it.
    return min(killed + sum(cuts), (until_us - since_us) // past.lease_us)


def was_forgotten(past: Past, job: JobPast) -> bool:
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


def was_told_in_vain(past: Past, us: int) -> bool:
    """Whether what a primary was told at that moment may have died with it."""
    return any(loss.since_us <= us <= loss.us for loss in past.losses())


def is_certainly_paused(past: Past, paused: Paused) -> bool:
    """Whether nothing but the end of the pause can have ended it.

    A primary that died may have taken it along; something else at the key of the pause did.
    """
    is_hidden = any(
        each.fault == "wrong-type"
        # Where it was called off the detail says why, and not where.
        and (":paused" in each.detail or not each.is_done)
        and paused.us - _LONGEST_HIDDEN_US <= each.us <= paused.until_us
        for each in past.broke
    )
    return not is_hidden and not was_told_in_vain(past, paused.us)


def was_starved(past: Past, job: JobPast) -> bool:
    """Whether the server had no memory to give while the job was run and settled."""
    return any(
        each.us <= run.until_us + past.lease_us and run.began.us <= each.until_us
        for each in past.starved
        for run in job.runs
    )


def _due_us(past: Past, job: JobPast) -> int:
    """Before this moment nobody can have read it."""
    asked = past.asked_for(job)
    if asked is not None:
        return asked.us + asked.delay_ms * 1_000
    return job.runs[0].began.us - past.lease_us if job.runs else -FOREVER_US


def _was_killed(past: Past, who: str, died_us: int) -> bool:
    """Whether a worker ended otherwise than by a stop, which hands back what was not begun."""
    stops = [cut for cut in past.cuts.get(who, ()) if cut.why == "stopped"]
    was_stopped = any(cut.until_us <= died_us for cut in stops)
    return not who.startswith(_NO_WORKERS) and not was_stopped


def _is_of_workers(cut: Cut) -> bool:
    return cut.why != "stopped" and not cut.who.startswith(_NO_WORKERS)


def _is_long(past: Past, cut: Cut, since_us: int, until_us: int) -> bool:
    """Whether it was within that time, and long enough to lose a lease."""
    is_within = cut.us <= until_us and cut.until_us >= since_us
    return is_within and cut.until_us - cut.us >= past.lease_us // _EXCUSED_PART
