"""`RepeatPattern`, `MissedFiresPolicy`, `RepeatableSpec`, `RepeatableMeta` and the stored form.

    [key, job_name, pattern, payload, limit | nil, start_after_ms | nil, end_before_ms | nil, 0]
    [..., missed_fires]                               only if it is not "skip"

    pattern      = {"Cron": [expression, tz | nil]}  or  {"Every": [interval_ms]}
    missed_fires = "Skip"  or  "FireOnce"  or  {"FireAll": [max_catchup]}

Only shapes are checked here: whether a cron expression or a time zone means anything is not a
matter of bytes.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

from chasquimq.errors import DecodeError
from chasquimq.given import as_ms, check_keys
from chasquimq.wire.codec import pack_plain, unpack
from chasquimq.wire.envelope import Payload, decode_payload, encode_payload
from chasquimq.wire.ids import ulid
from chasquimq.wire.record import Record
from chasquimq.wire.retry import (
    U32_MAX,
    U64_MAX,
    BackoffSpec,
    RetryOverride,
    check_unsigned,
    retry_from_wire,
)

SHORTEST_INTERVAL_MS = 100
"""Below this a fire costs more than it is worth."""

_SPEC_SLOTS = range(8, 11)
# Epoch milliseconds have this many digits until the year 2286.
_WINDOW_DIGITS = 13
# The live count of fires is a field of the hash beside the blob; this slot is always written as 0.
_FIRED = 0


@dataclass(frozen=True, slots=True)
class RepeatPattern(Record):
    """When a recurring job fires; build one with `cron` or `every`.

    Raises `TypeError` or `ValueError` if the fields do not fit the kind.
    """

    kind: str
    expression: str | None = None
    tz: str | None = None
    interval_ms: int | None = None

    def __post_init__(self) -> None:
        """Check that exactly the fields of the kind are there."""
        match self.kind:
            case "cron":
                _check_text("expression", self.expression)
                if self.tz is not None:
                    _check_text("tz", self.tz, may_be_blank=True)
                _check_absent(self.kind, interval_ms=self.interval_ms)
            case "every":
                _check_interval(self.interval_ms)
                _check_absent(self.kind, expression=self.expression, tz=self.tz)
            case _:
                msg = f"repeat kind is {self.kind!r}: use 'cron' or 'every'"
                raise ValueError(msg)

    @staticmethod
    def cron(expression: str, *, tz: str | None = None) -> "RepeatPattern":
        """Fire whenever the expression matches the wall clock in `tz` (UTC if None)."""
        return RepeatPattern("cron", expression, tz)

    @staticmethod
    def every(interval_ms: int | timedelta) -> "RepeatPattern":
        """Fire at a fixed interval, for the first time one interval from now."""
        return RepeatPattern("every", interval_ms=as_ms("interval_ms", interval_ms))

    @staticmethod
    def from_dict(raw: Mapping[str, Any]) -> "RepeatPattern":
        """The pattern that `to_dict` wrote; `ValueError` for unknown kinds and keys."""
        check_keys("repeat", raw, ("kind", "expression", "tz", "interval_ms"))
        return RepeatPattern(**{"kind": None, **raw})

    def signature(self) -> str:
        """The part of a derived spec key that says when; the cron text as it is, unnormalised."""
        if self.kind == "cron":
            return f"cron:{self.expression}:{'UTC' if self.tz is None else self.tz}"
        return f"every:{self.interval_ms}"

    def to_dict(self) -> dict[str, Any]:
        """The fields that are set, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, slots=True)
class MissedFiresPolicy(Record):
    """What to do about fires that came due while no scheduler ran.

    Raises `TypeError` or `ValueError` if `max_catchup` does not fit the kind.
    """

    kind: str
    max_catchup: int | None = None

    def __post_init__(self) -> None:
        """Check that `max_catchup` is there for "fire-all", positive, and only then."""
        match self.kind:
            case "skip" | "fire-once":
                _check_absent(self.kind, max_catchup=self.max_catchup)
            case "fire-all":
                _check_positive("max_catchup", self.max_catchup, U32_MAX)
            case _:
                msg = f"missed_fires kind is {self.kind!r}: use 'skip', 'fire-once' or 'fire-all'"
                raise ValueError(msg)

    @staticmethod
    def skip() -> "MissedFiresPolicy":
        """Drop them and go on with the next; the default, no herd after an outage."""
        return MissedFiresPolicy("skip")

    @staticmethod
    def fire_once() -> "MissedFiresPolicy":
        """One job stands for all of them."""
        return MissedFiresPolicy("fire-once")

    @staticmethod
    def fire_all(max_catchup: int) -> "MissedFiresPolicy":
        """One job for each, oldest first, and at most `max_catchup` of them."""
        return MissedFiresPolicy("fire-all", max_catchup)

    @staticmethod
    def from_dict(raw: Mapping[str, Any]) -> "MissedFiresPolicy":
        """The policy that `to_dict` wrote; `ValueError` for unknown kinds and keys."""
        check_keys("missed_fires", raw, ("kind", "max_catchup"))
        return MissedFiresPolicy(**{"kind": None, **raw})

    def to_dict(self) -> dict[str, Any]:
        """The fields that are set, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, slots=True)
class RepeatableMeta(Record):
    """A recurring job as it is listed: everything but its payload, so that long lists stay cheap.

    `missed_fires` is None for the default, which is to skip.
    """

    key: str
    job_name: str
    pattern: RepeatPattern
    next_fire_ms: int
    limit: int | None = None
    start_after_ms: int | None = None
    end_before_ms: int | None = None
    missed_fires: MissedFiresPolicy | None = None
    paused: bool = False
    """Ours. Its windows pass without firing."""
    fired: int = 0
    """Ours. How many windows have fired so far, which `limit` is measured against."""
    attempts: int | None = None
    """Ours, like the next two. How often each fired job may run, if it says so itself."""
    backoff: BackoffSpec | None = None
    """How long each fired job waits between its runs, if it says so itself."""
    job_id: str | None = None
    """What stands in place of the key in the ids of fired jobs."""


@dataclass(frozen=True, slots=True)
class RepeatableSpec:
    """A recurring job as it is stored.

    `limit` 0 or None means no limit. `retry` is what each fire takes along as its own retry rules.
    """

    key: str
    job_name: str
    pattern: RepeatPattern
    payload: Payload
    limit: int | None = None
    start_after_ms: int | None = None
    end_before_ms: int | None = None
    missed_fires: MissedFiresPolicy = field(default_factory=MissedFiresPolicy.skip)
    retry: RetryOverride | None = None

    def __post_init__(self) -> None:
        """Check that every number fits its slot."""
        for name in ("limit", "start_after_ms", "end_before_ms"):
            value = getattr(self, name)
            if value is not None:
                check_unsigned(name, value)

    def meta(
        self,
        next_fire_ms: int,
        *,
        paused: bool = False,
        fired: int = 0,
        job_id: str | None = None,
    ) -> RepeatableMeta:
        """The listed form, with what is stored beside the spec."""
        return RepeatableMeta(
            self.key,
            self.job_name,
            self.pattern,
            next_fire_ms,
            self.limit,
            self.start_after_ms,
            self.end_before_ms,
            None if self.missed_fires.kind == "skip" else self.missed_fires,
            paused,
            fired,
            self.retry.max_attempts if self.retry else None,
            self.retry.backoff if self.retry else None,
            job_id,
        )


def spec_key(job_name: str, pattern: RepeatPattern) -> str:
    """The key of a spec whose caller chose none."""
    return f"{job_name}::{pattern.signature()}"


def fire_id(spec_key: str, window_ms: int) -> str:
    """The id of the job that a spec's window makes: it says which window it stands for."""
    return f"{spec_key}@{window_ms}"


def by_hand_id(spec_key: str, now_ms: int) -> str:
    """The id of a job that a spec makes besides its windows: no other job has it."""
    return f"{spec_key}@{ulid(now_ms)}"


def window_of(job_id: str) -> int | None:
    """The window that a fired job stands for, in epoch ms; None for any other job."""
    _, at, window = job_id.rpartition("@")
    is_window = bool(at) and len(window) == _WINDOW_DIGITS and window.isascii() and window.isdigit()
    return int(window) if is_window else None


def encode_spec(spec: RepeatableSpec) -> bytes:
    """The stored form, without `retry`: eight slots, or nine if missed fires are not skipped.

    The released reference engine deletes specs it cannot read, and it reads no tenth slot. So an
    override is kept in a hash field of its own (`encode_retry`), which that engine ignores.
    The payload is wrapped twice: bytes that hold the payload slot of the envelopes to come.
    """
    slots = [
        *(spec.key, spec.job_name, _pattern_to_wire(spec.pattern), encode_payload(spec.payload)),
        *(spec.limit, spec.start_after_ms, spec.end_before_ms, _FIRED),
    ]
    if spec.missed_fires.kind != "skip":
        slots.append(_missed_to_wire(spec.missed_fires))
    return pack_plain(slots)


def decode_spec(blob: bytes) -> RepeatableSpec:
    """The spec in a stored form of eight, nine or ten slots; `DecodeError`, only, if it is none."""
    slots = unpack(blob)
    if not isinstance(slots, list) or len(slots) not in _SPEC_SLOTS:
        msg = "repeat spec is not an array of 8 to 10 slots"
        raise DecodeError(msg)
    key, job_name, pattern, payload, limit, start_after_ms, end_before_ms, _, *more = slots
    if not (isinstance(key, str) and isinstance(job_name, str) and isinstance(payload, bytes)):
        msg = "repeat spec must start with a text key, a text name, a pattern and a bin payload"
        raise DecodeError(msg)
    unpack(payload)
    try:
        return RepeatableSpec(
            key,
            job_name,
            _pattern_from_wire(pattern),
            decode_payload(payload),
            limit,
            start_after_ms,
            end_before_ms,
            _missed_from_wire(more[0] if more else None),
            retry_from_wire(more[1]) if more[1:] and more[1] is not None else None,
        )
    except (TypeError, ValueError) as error:
        msg = f"repeat spec {key[:64]!r}: {error}"
        raise DecodeError(msg) from error


def _pattern_to_wire(pattern: RepeatPattern) -> dict[str, list[Any]]:
    if pattern.kind == "cron":
        return {"Cron": [pattern.expression, pattern.tz]}
    return {"Every": [pattern.interval_ms]}


def _pattern_from_wire(value: object) -> RepeatPattern:
    match value:
        case {"Cron": [expression, tz]}:
            return RepeatPattern("cron", expression, tz)
        case {"Every": [interval_ms]}:
            return RepeatPattern("every", interval_ms=interval_ms)
    msg = "the pattern is neither Cron nor Every"
    raise ValueError(msg)


def _missed_to_wire(policy: MissedFiresPolicy) -> str | dict[str, list[int | None]]:
    return "FireOnce" if policy.kind == "fire-once" else {"FireAll": [policy.max_catchup]}


def _missed_from_wire(value: object) -> MissedFiresPolicy:
    match value:
        # Catching up with none of them is skipping; typed producers of the reference can write it.
        case None | "Skip" | {"FireAll": [0]}:
            return MissedFiresPolicy.skip()
        case "FireOnce":
            return MissedFiresPolicy.fire_once()
        case {"FireAll": [max_catchup]}:
            return MissedFiresPolicy("fire-all", max_catchup)
    msg = "missed_fires is neither Skip, FireOnce nor FireAll"
    raise ValueError(msg)


def _check_text(name: str, value: object, *, may_be_blank: bool = False) -> None:
    if not isinstance(value, str):
        msg = f"{name} must be a str, got {type(value).__name__}: pass it as text"
        raise TypeError(msg)
    if not may_be_blank and not value.strip():
        msg = f"{name} is blank: give it a value"
        raise ValueError(msg)


def _check_positive(name: str, value: object, maximum: int = U64_MAX) -> None:
    if value is None:
        msg = f"{name} is missing: give it a positive whole number"
        raise ValueError(msg)
    check_unsigned(name, value, maximum)
    if value == 0:
        msg = f"{name} is 0: it must be positive"
        raise ValueError(msg)


def _check_interval(value: object) -> None:
    if isinstance(value, int) and value < 1:
        msg = f"interval_ms is {value}: the shortest interval is {SHORTEST_INTERVAL_MS} ms"
        raise ValueError(msg)
    _check_positive("interval_ms", value)


def _check_absent(kind: str, **fields: object) -> None:
    for name, value in fields.items():
        if value is not None:
            msg = f"{name} has no meaning with kind {kind!r}: leave it out"
            raise ValueError(msg)
