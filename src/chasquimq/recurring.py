"""Turns friendly arguments about recurring jobs into a spec, and patterns into what people read."""

from datetime import UTC, datetime, tzinfo
from typing import Any

from chasquimq.arguments import (
    BackoffLike,
    MissedFiresLike,
    RepeatLike,
    checked_name,
    retry_of,
)
from chasquimq.clock import SYSTEM_CLOCK
from chasquimq.engine import cadence
from chasquimq.engine.cron import parse_cron, parse_zone
from chasquimq.given import InstantLike, instant_or_none
from chasquimq.job import Job
from chasquimq.wire.codec import pack
from chasquimq.wire.repeat import (
    MissedFiresPolicy,
    RepeatableSpec,
    RepeatPattern,
    spec_key,
)

_UNITS = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1_000))


def spec_of(  # noqa: PLR0913 -- the documented arguments of `Queue.upsert_repeatable_job`
    name: str,
    data: Any,  # noqa: ANN401 -- the user's data
    *,
    repeat: RepeatLike,
    limit: int | None = None,
    start_after_ms: InstantLike | None = None,
    end_before_ms: InstantLike | None = None,
    attempts: int | None = None,
    backoff: BackoffLike | None = None,
    missed_fires: MissedFiresLike | None = None,
) -> RepeatableSpec:
    """Check everything a caller can get wrong; the key is derived from the name and the pattern."""
    pattern = pattern_of(repeat)
    return RepeatableSpec(
        spec_key(checked_name(name), pattern),
        name,
        pattern,
        pack(data),
        _checked_limit(limit),
        instant_or_none("start_after_ms", start_after_ms),
        instant_or_none("end_before_ms", end_before_ms),
        _policy_of(missed_fires),
        retry_of(attempts, backoff),
    )


def recurring_job(spec: RepeatableSpec, data: Any) -> Job:  # noqa: ANN401 -- the user's data
    """What stands for a stored spec: a job whose id is the spec's key. It has no result."""
    return Job(spec.key, spec.job_name, data, 0, SYSTEM_CLOCK.now_ms())


def refuse_delay_of_recurring(delay_ms: object, delay: object) -> None:
    """A recurring job starts by its pattern: a delay beside it is refused, not ignored."""
    if delay_ms is not None or delay is not None:
        msg = "a recurring job takes no delay: use upsert_repeatable_job(..., start_after_ms=...)"
        raise ValueError(msg)


def pattern_of(repeat: RepeatLike) -> RepeatPattern:
    """A pattern that can work, from a `RepeatPattern` or its dict."""
    if isinstance(repeat, dict):
        repeat = RepeatPattern.from_dict(repeat)
    if not isinstance(repeat, RepeatPattern):
        kind = type(repeat).__name__
        msg = f"repeat must be a RepeatPattern or its dict, got {kind}: use RepeatPattern.cron(...)"
        raise TypeError(msg)
    cadence.check_pattern(repeat)
    return repeat


def next_fires(
    repeat: RepeatLike, count: int = 5, *, after: datetime | None = None
) -> list[datetime]:
    """The next `count` times a pattern fires, in UTC; an interval is counted from `after` (now)."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        msg = f"count must be a whole number, 0 or more; got {count!r}"
        raise ValueError(msg)
    moment = after if after is None or after.tzinfo else after.replace(tzinfo=UTC)
    start_ms = SYSTEM_CLOCK.now_ms() if moment is None else int(moment.timestamp() * 1_000)
    windows = cadence.preview(pattern_of(repeat), start_ms, count)
    return [datetime.fromtimestamp(window_ms / 1_000, UTC) for window_ms in windows]


def zone_of(pattern: RepeatPattern) -> tzinfo:
    """The zone whose clocks a pattern goes by; of an interval UTC."""
    return parse_zone(pattern.tz, is_stored=True)


def describe(repeat: RepeatLike) -> str:
    """A pattern in words: `At 09:30 on Monday through Friday (UTC)`, `Every 5 minutes`."""
    return _in_words(pattern_of(repeat))


def describe_stored(pattern: RepeatPattern) -> tuple[str | None, str]:
    """The same of one that is stored, as it stands; or None, and why it can never fire."""
    try:
        return _in_words(pattern), ""
    except ValueError as error:
        return None, str(error)


def _in_words(pattern: RepeatPattern) -> str:
    if pattern.kind == "cron":
        return parse_cron(pattern.expression or "", pattern.tz, is_stored=True).describe()
    interval_ms = pattern.interval_ms or 0
    for unit, size_ms in _UNITS:
        if interval_ms % size_ms == 0:
            count = interval_ms // size_ms
            return f"Every {unit}" if count == 1 else f"Every {count} {unit}s"
    return f"Every {interval_ms} ms"


def _checked_limit(limit: int | None) -> int | None:
    """On the wire 0 says that there is no limit, which nobody means who writes it here."""
    if limit == 0 and not isinstance(limit, bool):
        msg = "limit is 0, which would fire without end: leave it out for that, or use 1 or more"
        raise ValueError(msg)
    return limit


def _policy_of(missed_fires: MissedFiresLike | None) -> MissedFiresPolicy:
    if missed_fires is None:
        return MissedFiresPolicy.skip()
    if isinstance(missed_fires, dict):
        return MissedFiresPolicy.from_dict(missed_fires)
    if not isinstance(missed_fires, MissedFiresPolicy):
        kind = type(missed_fires).__name__
        msg = f"missed_fires must be a MissedFiresPolicy or its dict, got {kind}"
        raise TypeError(msg)
    return missed_fires
