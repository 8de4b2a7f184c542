"""Pure: which windows of a recurring job had to fire, and which of those that did should not have.

A window that passes while nobody leads, or while the leader cannot reach the server, may be left
out by the policies that say so. One that comes while the same process has led for a while, and
nothing was done to it or to the server, may not, however wrong the clock of that process is.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from chaos.history import Born, Broke, Cut, Led, Recurs
from chaos.past import FOREVER_US, Past

# From what has an end a leader recovers in this time: it connects anew, and has its lock again.
_RECOVERY_US = 3_000_000
# What is written down with its begin alone has come to its end after so long, and if it had to wait
# for a command to pass.
_LONGEST_US = 10_000_000
# A window is on time for as long as the next one has not come; beyond that, what is not worth a
# word: a machine that is busy, or a look at the lock that came between.
_SLACK_US = 500_000
# Longer than anything keeps a leader's command from the server, and less than any clock is wrong.
_CLOCK_MS = 55_000
# These are done to the server, for everybody; the others name the process that they are done to. A
# server that is away, or without memory, is written down as such.
_AIMED_AT_ALL = frozenset({"reset-everybody", "move-slot", "destroy-group"})
# Something else at one of these keys keeps a leader from firing; at others it does not.
_NEEDED_TO_FIRE = (":stream ", ":repeat ", ":scheduler:lock ")


@dataclass(frozen=True, slots=True)
class _Term:
    """A time in which one process led."""

    since_us: int
    until_us: int
    who: str


def fired(past: Past, key: str) -> list[int]:
    """The windows of a recurring job that made a job, in order.

    Not those of which there is nothing but the event: what was told of and vanished was left out.
    """
    there = (job_id for job_id, job in past.jobs.items() if job.runs or job.found)
    return sorted(
        int(window)
        for owner, _, window in (job_id.rpartition("@") for job_id in there)
        if owner == key
    )


def window_of(past: Past, job_id: str) -> int | None:
    """The window that a job stands for, in epoch ms; None if it is not one of a recurring job."""
    owner, _, window = job_id.rpartition("@")
    return int(window) if owner in past.recurring and window.isdigit() else None


def expected(past: Past, spec: Recurs) -> range:
    """All windows, from the first after it was stored to the last that fired; none if none did."""
    windows = fired(past, spec.key)
    if not windows:
        return range(0)
    # The first is an interval after it was stored, which was written down a moment later.
    after_ms = spec.us // 1_000 + past.wall_offset_ms + spec.every_ms // 2
    before = (windows[0] - after_ms) // spec.every_ms
    return range(windows[0] - before * spec.every_ms, windows[-1] + 1, spec.every_ms)


def had_to_fire(past: Past, spec: Recurs) -> set[int]:
    """The windows which no policy lets anybody leave out; also behind the last that fired.

    Else a recurring job that stops firing would not be seen.
    """
    windows = expected(past, spec)
    if not windows:
        return set()
    last_ms = windows[-1]
    if past.ceased_us is not None:
        until_ms = (past.ceased_us - _SLACK_US) // 1_000 + past.wall_offset_ms
        last_ms = max(last_ms, until_ms - spec.every_ms)
    return set(_had_to_fire(past, spec, windows[0], last_ms))


def _had_to_fire(past: Past, spec: Recurs, first_ms: int, last_ms: int) -> Iterator[int]:
    offset_ms = past.wall_offset_ms
    for term in _terms(past):
        for since_us, until_us in _calm(past, term, spec.key):
            due_ms = since_us // 1_000 + offset_ms + spec.every_ms
            earliest = max(due_ms, first_ms)
            latest = min(until_us // 1_000 + offset_ms - spec.every_ms, last_ms)
            steps = -(-(earliest - first_ms) // spec.every_ms)
            yield from range(first_ms + steps * spec.every_ms, latest + 1, spec.every_ms)


def too_many(past: Past, spec: Recurs) -> Iterator[tuple[int, str]]:
    """Windows that fired and should have been left out, and why.

    A leader chooses by the time that its event tells: with `skip` no window fires once the next has
    come, with `fire-once` one does, and no other that had come by then. That time is the server's.
    """
    windows = fired(past, spec.key)
    for window_ms, next_ms in zip(windows, [*windows[1:], None], strict=True):
        fire = past.jobs[f"{spec.key}@{window_ms}"].fire()
        if fire is None or any(
            # What was told to a primary that died may be fired anew, at another time.
            loss.since_us <= fire.us <= loss.us + _RECOVERY_US
            for loss in past.losses()
        ):
            continue
        if abs(fire.told_ms - fire.at_ms) > _CLOCK_MS:
            wrong_ms = fire.told_ms - fire.at_ms
            yield window_ms, f"it was fired by a clock that was wrong by {wrong_ms} ms"
        if spec.policy == "fire-all":
            continue
        if spec.policy == "skip" and fire.told_ms >= window_ms + spec.every_ms:
            late_ms = fire.told_ms - window_ms
            yield window_ms, f"it was fired {late_ms} ms late, when the next had come"
        if next_ms is not None and next_ms <= fire.told_ms:
            yield next_ms, f"it was fired, too, though it had passed when {window_ms} was"


def _terms(past: Past) -> Iterator[_Term]:
    born = sorted(past.born, key=lambda each: each.us)
    for led in sorted(past.led, key=lambda each: each.us):
        if process := _who(born, led):
            until_us = min(led.until_us, past.died_us.get(process.who, FOREVER_US))
            yield _Term(led.us, until_us, process.who)


def _who(born: list[Born], led: Led) -> Born | None:
    """The youngest process of that name when the lock was seen in its hands."""
    of_name = [each for each in born if each.holder == led.holder and each.us <= led.us]
    return of_name[-1] if of_name else None


def _calm(past: Past, term: _Term, key: str) -> Iterator[tuple[int, int]]:
    """The parts of a term in which nothing was wrong, without their first and last moments."""
    since_us = term.since_us
    for began_us, over_us in sorted(_troubles(past, term.who, key)):
        if over_us < since_us:
            continue
        if began_us > term.until_us:
            break
        yield since_us + _SLACK_US, began_us - _SLACK_US
        since_us = over_us
    yield since_us + _SLACK_US, term.until_us - _SLACK_US


def _troubles(past: Past, who: str, key: str) -> Iterator[tuple[int, int]]:
    """When something was wrong for a recurring job: since when, until when it was for certain."""
    cuts: list[Cut] = past.cuts_of(who)
    yield from ((cut.us, cut.until_us + _RECOVERY_US) for cut in cuts)
    yield from ((each.us, each.until_us + _RECOVERY_US) for each in past.starved)
    yield from ((b.us, b.until_us + _RECOVERY_US) for b in past.blocked if b.who == who)
    yield from ((b.us, b.us + _LONGEST_US) for b in past.broke if _is_aimed_at(b, who, key))


def _is_aimed_at(broke: Broke, who: str, key: str) -> bool:
    if broke.fault == "wrong-type":
        # Where it was called off the detail says why, and not where.
        needed = (*_NEEDED_TO_FIRE, f":repeat:spec:{key} ")
        return not broke.is_done or any(each in broke.detail for each in needed)
    return broke.fault in _AIMED_AT_ALL or broke.detail.split(" ", 1)[0] == who
