"""Turns the friendly arguments of the front door into one engine `Wish`, or says what is wrong."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from chasquimq import given
from chasquimq.config import ProducerConfig
from chasquimq.engine.orders import Wish
from chasquimq.engine.plain import PlainBulk
from chasquimq.errors import DlqReason, NotSupportedError
from chasquimq.wire.codec import pack, pack_each
from chasquimq.wire.entry import DeadLetter
from chasquimq.wire.repeat import MissedFiresPolicy, RepeatPattern
from chasquimq.wire.retry import U32_MAX, U64_MAX, BackoffSpec, RetryOverride, check_cap

DelayMsLike: TypeAlias = int | float | datetime
BackoffLike: TypeAlias = int | BackoffSpec | dict[str, Any]
RepeatLike: TypeAlias = RepeatPattern | dict[str, Any]
MissedFiresLike: TypeAlias = MissedFiresPolicy | dict[str, Any]

BULK_KEYS = frozenset(
    {"name", "data", "delay_ms", "delay", "attempts", "backoff", "job_id", "repeat"}
)
_USUAL_KEYS = len(("name", "data"))
DEFAULT_KEYS = frozenset({"delay_ms", "delay", "attempts", "backoff"})

_NO_FLOWS = "jobs have no parents and children here: add the next job from the handler before it"
_NO_ORDER = "a queue is first in, first out: give what is urgent a queue of its own"
# Options of other bindings that change what a job means: better refused than ignored.
_NOT_SUPPORTED = {
    "parent": _NO_FLOWS,
    "children": _NO_FLOWS,
    "priority": _NO_ORDER,
    "lifo": _NO_ORDER,
}


@dataclass(frozen=True, slots=True)
class JobDefaults:
    """What jobs take of a queue when their own call says nothing."""

    attempts: int | None = None
    backoff: BackoffLike | None = None
    delay_ms: DelayMsLike | None = None
    delay: timedelta | None = None


NO_DEFAULTS = JobDefaults()


def job_defaults(options: Mapping[str, Any] | None) -> JobDefaults:
    """The defaults in `default_job_options`; what cannot work is refused when the queue is made."""
    if not options:
        return NO_DEFAULTS
    if not isinstance(options, Mapping):
        msg = f"default_job_options must be a dict, got {type(options).__name__}"
        raise TypeError(msg)
    _refuse_unsupported("default_job_options", options)
    unknown = options.keys() - DEFAULT_KEYS
    if unknown:
        known = ", ".join(sorted(DEFAULT_KEYS))
        msg = f"default_job_options has unknown keys {sorted(unknown)}: use {known}"
        raise ValueError(msg)
    defaults = JobDefaults(**options)
    retry_of(defaults.attempts, defaults.backoff)
    delay_of(defaults.delay_ms, defaults.delay)
    return defaults


def _refuse_unsupported(label: str, options: Mapping[str, Any]) -> None:
    for key, remedy in _NOT_SUPPORTED.items():
        if key in options:
            msg = f"{label} has {key!r}, which this library does not have: {remedy}"
            raise NotSupportedError(msg)


def refuse_options(call: str, options: Mapping[str, Any]) -> None:
    """Refuse what `call` does not take; what other bindings do with `NotSupportedError`."""
    _refuse_unsupported(f"{call}()", options)
    msg = f"{call}() got an unexpected keyword argument {next(iter(options))!r}"
    raise TypeError(msg)


def wish(  # noqa: PLR0913 -- the documented arguments of `Queue.add`
    name: str,
    data: Any,  # noqa: ANN401 -- the user's data
    *,
    delay_ms: DelayMsLike | None = None,
    delay: timedelta | None = None,
    attempts: int | None = None,
    backoff: BackoffLike | None = None,
    job_id: str | None = None,
    repeat: RepeatLike | None = None,
    missed_fires: MissedFiresLike | None = None,
    defaults: JobDefaults = NO_DEFAULTS,
) -> Wish:
    """Check everything a caller can get wrong; nothing has been sent when this raises."""
    is_now = delay_ms is None and delay is None
    is_plain = attempts is None and backoff is None and job_id is None
    is_alone = repeat is None and missed_fires is None and defaults is NO_DEFAULTS
    if is_now and is_plain and is_alone and type(name) is str and name.isascii():
        return Wish(name, pack(data))  # as nearly all are
    if defaults is not NO_DEFAULTS:
        attempts = defaults.attempts if attempts is None else attempts
        backoff = defaults.backoff if backoff is None else backoff
        if delay_ms is None and delay is None:
            delay_ms, delay = defaults.delay_ms, defaults.delay
    if repeat is not None:
        msg = "a recurring job cannot be part of a bulk: add it with add(..., repeat=...)"
        raise NotSupportedError(msg)
    if missed_fires is not None:
        msg = "missed_fires only means something together with repeat: remove it, or add repeat"
        raise ValueError(msg)
    checked_name(name)
    relative_ms, run_at_ms = delay_of(delay_ms, delay)
    return Wish(
        name=name,
        payload=pack(data),
        job_id=checked_job_id(job_id),
        retry=retry_of(attempts, backoff),
        delay_ms=relative_ms,
        run_at_ms=run_at_ms,
    )


def checked_name(name: str) -> str:
    """A job's name: text that UTF-8 can carry, perhaps empty."""
    return given.text("name", name)


def producer_config(name: str, **settings: Any) -> ProducerConfig:  # noqa: ANN401 -- checked there
    """A `ProducerConfig` from the front door's optional arguments; None takes the default."""
    return ProducerConfig(queue_name=name, **given.chosen(**settings))


def checked_limit(limit: int, name: str = "limit", least: int = 0) -> int:
    """How many to look at, at most: a whole number, `least` or more."""
    return given.count(name, limit, least)


def checked_state(state: str, known: Sequence[str], remedy: str = "") -> str:
    """A state that means something here."""
    if state not in known:
        msg = f"state {state!r} is none of {', '.join(known)}{remedy}"
        raise ValueError(msg)
    return state


def checked_wait(timeout: float, poll_interval: float) -> None:
    """Times to wait must be positive."""
    for name, value in (("timeout", timeout), ("poll_interval", poll_interval)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            msg = f"{name} must be a number of seconds above 0, got {value!r}"
            raise ValueError(msg)


def letter_filter(
    ids: Collection[str] | None, name: str | None, reason: str | None
) -> Callable[[DeadLetter], bool]:
    """Which dead letters are meant: all that match every condition given.

    `ids` may be ids in the dead-letter stream or ids of jobs.
    """
    if isinstance(ids, str | bytes):
        msg = f"ids must be a list of ids, got the {type(ids).__name__} {ids!r}: put it in a list"
        raise TypeError(msg)
    if reason is not None and reason not in tuple(DlqReason):
        known = ", ".join(DlqReason)
        msg = f"reason {reason!r} is none of the dead-letter reasons: use {known}"
        raise ValueError(msg)
    wanted_ids = None if ids is None else frozenset(ids)

    def is_wanted(letter: DeadLetter) -> bool:
        return (
            (wanted_ids is None or letter.dlq_id in wanted_ids or letter.job_id in wanted_ids)
            and (name is None or letter.name == name)
            and (reason is None or letter.reason == reason)
        )

    return is_wanted


def bulk_wishes(
    entries: Sequence[Mapping[str, Any]], defaults: JobDefaults = NO_DEFAULTS
) -> list[Wish]:
    """A `Wish` from each dict of `add_bulk`; an error names the position."""
    if not isinstance(entries, Sequence) or isinstance(entries, str | bytes):
        msg = f"jobs must be a list of dicts, got {type(entries).__name__}: put them in a list"
        raise TypeError(msg)
    plain = plain_bulk(entries, defaults)
    if plain is not None:
        return list(map(Wish, plain.names, plain.payloads))
    return [_bulk_wish(at, entry, defaults) for at, entry in enumerate(entries)]


def _bulk_wish(position: int, entry: Mapping[str, Any], defaults: JobDefaults) -> Wish:
    if not isinstance(entry, Mapping):
        msg = f"jobs[{position}] must be a dict, got {type(entry).__name__}"
        raise TypeError(msg)
    unknown = entry.keys() - BULK_KEYS
    if unknown:
        _refuse_unsupported(f"jobs[{position}]", entry)
        known = ", ".join(sorted(BULK_KEYS - {"repeat"}))
        msg = f"jobs[{position}] has unknown keys {sorted(unknown)}: use {known}"
        raise ValueError(msg)
    missing = {"name", "data"} - entry.keys()
    if missing:
        msg = f"jobs[{position}] lacks {', '.join(sorted(missing))}"
        raise ValueError(msg)
    try:
        return wish(**entry, defaults=defaults)
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        msg = f"jobs[{position}]: {error}"
        raise kind(msg) from error


def plain_bulk(
    entries: Sequence[Mapping[str, Any]], defaults: JobDefaults = NO_DEFAULTS
) -> PlainBulk | None:
    """What nearly every bulk is: names and data, no more; None if each must be looked at.

    0.6 us a job, where a look at each takes 2.7.
    """
    if defaults is not NO_DEFAULTS or not isinstance(entries, list | tuple):
        return None
    try:
        if {*map(type, entries)} != {dict} or {*map(len, entries)} != {_USUAL_KEYS}:
            return None
        names = [entry["name"] for entry in entries]
        if not all(map(str.isascii, names)):
            return None
        data = [entry["data"] for entry in entries]
        payloads = pack_each(data)
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
        return None
    return PlainBulk(names, payloads, data)


def checked_job_id(job_id: str | None) -> str | None:
    """An id a caller may choose: text that is not blank."""
    if job_id is None:
        return None
    return given.text_id("job_id", job_id, "leave it out for a generated one")


def required_job_id(job_id: str) -> str:
    """An id that may not be left out."""
    return given.text_id("job_id", job_id, "pass the id of a job")


def required_job_ids(job_ids: Sequence[str]) -> list[str]:
    """Many of them."""
    if isinstance(job_ids, str | bytes):
        msg = f"job_ids must be a list of ids, got {job_ids!r}: put it in a list"
        raise TypeError(msg)
    return [required_job_id(job_id) for job_id in job_ids]


def delay_of(delay_ms: DelayMsLike | None, delay: timedelta | None) -> tuple[int, int | None]:
    """A delay in ms, or an instant in epoch ms; `(0, None)` means now."""
    if delay_ms is not None and delay is not None:
        msg = "pass delay_ms or delay, not both"
        raise ValueError(msg)
    if delay is not None:
        if not isinstance(delay, timedelta):
            msg = f"delay must be a timedelta, got {type(delay).__name__}: use delay_ms for numbers"
            raise TypeError(msg)
        return given.duration_ms("delay", delay), None
    if delay_ms is None:
        return 0, None
    if isinstance(delay_ms, datetime):
        return 0, given.instant_ms("delay_ms", delay_ms)
    if isinstance(delay_ms, bool) or not isinstance(delay_ms, int | float):
        kind = type(delay_ms).__name__
        msg = f"delay_ms must be a number of milliseconds or a datetime, got {kind}"
        raise TypeError(msg)
    return given.duration_ms("delay_ms", delay_ms), None


def retry_of(attempts: int | None, backoff: BackoffLike | None) -> RetryOverride | None:
    """A job's own retry rules, or None to leave them to the worker."""
    if attempts is None and backoff is None:
        return None
    if attempts is not None:
        if isinstance(attempts, bool) or not isinstance(attempts, int):
            msg = f"attempts must be a whole number, got {attempts!r}"
            raise TypeError(msg)
        if attempts < 1:
            msg = f"attempts must be 1 or more (it counts the first run too), got {attempts}"
            raise ValueError(msg)
        if attempts > U32_MAX:
            msg = f"attempts is {attempts}: it must be {U32_MAX} or less"
            raise ValueError(msg)
    return RetryOverride(attempts, None if backoff is None else _backoff_of(backoff))


def _backoff_of(backoff: BackoffLike) -> BackoffSpec:
    if isinstance(backoff, BackoffSpec):
        return backoff
    if isinstance(backoff, dict):
        spec = BackoffSpec.from_dict(backoff)
        check_cap(spec, "backoff max_delay_ms", "delay_ms")
        return spec
    if isinstance(backoff, bool) or not isinstance(backoff, int):
        kind = type(backoff).__name__
        msg = f"backoff must be milliseconds, a BackoffSpec or a dict, got {kind}"
        raise TypeError(msg)
    if not 0 <= backoff <= U64_MAX:
        msg = f"backoff is {backoff}: it must be milliseconds from 0 to {U64_MAX}"
        raise ValueError(msg)
    return BackoffSpec.fixed(backoff)
