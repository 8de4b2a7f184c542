"""Pure: the fire times of a pattern; what is due and what comes next, by bounds and policy."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice, takewhile

from chasquimq.engine.cron import parse_cron, portable
from chasquimq.wire.repeat import (
    SHORTEST_INTERVAL_MS,
    MissedFiresPolicy,
    RepeatableSpec,
    RepeatPattern,
)

MOST_FIRES_AT_ONCE = 1_000
"""Windows that one step makes up for; the rest follow in the next."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a due spec does now: the windows that fire, and the next one; None ends the spec."""

    windows_ms: tuple[int, ...]
    next_ms: int | None
    left: int | None = None
    """How many windows may still be made up for, if these are not all; `next_ms` is one of them."""


def check_pattern(pattern: RepeatPattern) -> None:
    """`ValueError`, naming the part, if a pattern can never work."""
    if pattern.kind == "cron":
        parse_cron(pattern.expression or "", pattern.tz)
    elif (pattern.interval_ms or 0) < SHORTEST_INTERVAL_MS:
        msg = (
            f"interval_ms is {pattern.interval_ms}: the shortest interval is "
            f"{SHORTEST_INTERVAL_MS} ms"
        )
        raise ValueError(msg)


def as_stored(pattern: RepeatPattern) -> RepeatPattern:
    """The same windows, said so that the reference engine's scheduler can fire them too."""
    if pattern.kind != "cron":
        return pattern
    return RepeatPattern("cron", *portable(pattern.expression or "", pattern.tz))


def first_fire(spec: RepeatableSpec, now_ms: int) -> int:
    """When a new spec fires for the first time; `ValueError` if it never would."""
    check_pattern(spec.pattern)
    start_ms = max(now_ms, spec.start_after_ms or 0)
    first = next_after(spec.pattern, start_ms)
    if first is None:
        msg = f"repeat pattern has no future fires: {spec.pattern.expression!r}"
        raise ValueError(msg)
    if spec.end_before_ms is not None and first > spec.end_before_ms:
        msg = (
            f"repeat spec end_before_ms {spec.end_before_ms} is before the first fire {first}: "
            "move the end, or leave it out"
        )
        raise ValueError(msg)
    return first


def next_after(pattern: RepeatPattern, moment_ms: int) -> int | None:
    """The first window strictly after an instant, counted from it for an interval."""
    return next(windows_after(pattern, moment_ms), None)


def windows_after(pattern: RepeatPattern, moment_ms: int) -> Iterator[int]:
    """All windows after an instant. For an interval that instant is itself a window."""
    if pattern.kind == "cron":
        cron = parse_cron(pattern.expression or "", pattern.tz, is_stored=True)
        yield from cron.fires_after(moment_ms)
        return
    interval_ms = pattern.interval_ms or 1
    while True:
        moment_ms += interval_ms
        yield moment_ms


def plan(spec: RepeatableSpec, due_ms: int, now_ms: int, *, left: int | None = None) -> Plan:
    """Decide about a spec whose window `due_ms` has come.

    On time, that is before the following window, the due window fires. If more windows have passed,
    nobody was there to fire them, and the policy decides: none of them, one for all, or each. Where
    these are too many for one step, `left` is what the plan before this one said.
    """
    following_ms = next_after(spec.pattern, due_ms)
    if following_ms is None or following_ms > now_ms:
        return _bounded(spec, (due_ms,), following_ms)
    windows: tuple[int, ...] = ()
    match spec.missed_fires:
        case MissedFiresPolicy(kind="fire-all", max_catchup=most):
            return _catch_up(spec, due_ms, now_ms, left or most or 1)
        case MissedFiresPolicy(kind="fire-once"):
            windows = (due_ms,)
    return _bounded(spec, windows, _first_after_now(spec.pattern, due_ms, now_ms))


def preview(pattern: RepeatPattern, now_ms: int, count: int) -> list[int]:
    """The next `count` windows, for people."""
    return list(islice(windows_after(pattern, now_ms), count))


def _catch_up(spec: RepeatableSpec, due_ms: int, now_ms: int, most: int) -> Plan:
    passed = takewhile(lambda ms: ms <= now_ms, windows_after(spec.pattern, due_ms))
    windows = tuple(islice(chain((due_ms,), passed), min(most, MOST_FIRES_AT_ONCE)))
    left = most - len(windows)
    following_ms = next(passed, None) if left else None
    if following_ms is None:
        return _bounded(spec, windows, _first_after_now(spec.pattern, due_ms, now_ms))
    return _bounded(spec, windows, following_ms, left)


def _first_after_now(pattern: RepeatPattern, due_ms: int, now_ms: int) -> int | None:
    if pattern.kind == "cron":
        return next_after(pattern, now_ms)
    # Stay on the grid: intervals are counted from the first window, not from when we came back.
    interval_ms = pattern.interval_ms or 1
    return due_ms + ((now_ms - due_ms) // interval_ms + 1) * interval_ms


def _bounded(
    spec: RepeatableSpec, windows: tuple[int, ...], next_ms: int | None, left: int | None = None
) -> Plan:
    end_ms = spec.end_before_ms
    if end_ms is not None:
        windows = tuple(ms for ms in windows if ms <= end_ms)
        if next_ms is not None and next_ms > end_ms:
            next_ms = left = None
    return Plan(windows, next_ms, left)
