"""`BackoffSpec`, `BackoffKind`, `RetryOverride`: a job's own retry rules and their wire forms.

    retry   = [max_attempts | nil, backoff | nil]
    backoff = [kind, delay_ms, max_delay_ms | nil, multiplier | nil, jitter_ms | nil]

nil means "as the worker is configured". A map with the same names is read as well.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any

from chasquimq.errors import DecodeError
from chasquimq.given import as_ms, check_keys
from chasquimq.wire.codec import pack_plain, unpack

U32_MAX = (1 << 32) - 1
U64_MAX = (1 << 64) - 1

_BACKOFF_NAMES = ("kind", "delay_ms", "max_delay_ms", "multiplier", "jitter_ms")
_RETRY_NAMES = ("max_attempts", "backoff")


class BackoffKind(StrEnum):
    """How the delay grows from one retry to the next."""

    FIXED = "fixed"
    EXPONENTIAL = "exponential"
    UNKNOWN = "unknown"
    """A kind a newer producer knows and we do not; it is treated as exponential."""


@dataclass(frozen=True, slots=True)
class BackoffSpec:
    """A job's own backoff, instead of its worker's; build one with `fixed` or `exponential`.

    `kind` is kept as it was written, known or not, so that a job passes through us unchanged.
    Raises `TypeError` for values of the wrong type and `ValueError` for negative or infinite ones.
    """

    kind: str
    delay_ms: int
    max_delay_ms: int | None = None
    multiplier: float | None = None
    jitter_ms: int | None = None

    def __post_init__(self) -> None:
        """Check every field; a whole multiplier becomes a float, as the wire wants it."""
        _check_kind(self.kind)
        check_unsigned("delay_ms", self.delay_ms)
        if self.max_delay_ms is not None:
            check_unsigned("max_delay_ms", self.max_delay_ms)
        if self.jitter_ms is not None:
            check_unsigned("jitter_ms", self.jitter_ms)
        if self.multiplier is not None:
            object.__setattr__(self, "multiplier", _checked_multiplier(self.multiplier))

    @staticmethod
    def fixed(delay_ms: int | timedelta, jitter_ms: int | timedelta | None = None) -> "BackoffSpec":
        """The same delay before every retry; the worker's `max_backoff_ms`, 30 s, caps it."""
        return BackoffSpec(
            BackoffKind.FIXED.value,
            as_ms("delay_ms", delay_ms),
            jitter_ms=as_ms("jitter_ms", jitter_ms),
        )

    @staticmethod
    def exponential(
        initial_ms: int | timedelta,
        *,
        multiplier: float = 2.0,
        max_ms: int | timedelta | None = None,
        jitter_ms: int | timedelta | None = None,
    ) -> "BackoffSpec":
        """A delay that starts at `initial_ms` and is multiplied after every failed run.

        It stops growing at `max_ms`; left out, at the worker's `max_backoff_ms`, 30 s by default.
        """
        spec = BackoffSpec(
            BackoffKind.EXPONENTIAL.value,
            as_ms("initial_ms", initial_ms),
            as_ms("max_ms", max_ms),
            multiplier,
            as_ms("jitter_ms", jitter_ms),
        )
        check_cap(spec, "max_ms", "initial_ms")
        return spec

    @staticmethod
    def from_dict(raw: Mapping[str, Any]) -> "BackoffSpec":
        """The spec that `to_dict` wrote; stricter than the wire: only the two kinds we know."""
        check_keys("backoff", raw, _BACKOFF_NAMES)
        if raw.get("kind") not in (BackoffKind.FIXED, BackoffKind.EXPONENTIAL):
            msg = f"backoff kind is {raw.get('kind')!r}: use 'fixed' or 'exponential'"
            raise ValueError(msg)
        if raw.get("delay_ms") is None:
            msg = "backoff has no delay_ms: add the delay before a retry, in milliseconds"
            raise ValueError(msg)
        return BackoffSpec(**raw)

    def to_dict(self) -> dict[str, Any]:
        """The fields that are set, by name."""
        values = zip(_BACKOFF_NAMES, self.to_wire(), strict=True)
        return {name: value for name, value in values if value is not None}

    @property
    def growth(self) -> BackoffKind:
        """Which of the kinds we know this is."""
        return BackoffKind(self.kind) if self.kind in _KNOWN_KINDS else BackoffKind.UNKNOWN

    def to_wire(self) -> list[Any]:
        """The positional form; always five slots."""
        return [self.kind, self.delay_ms, self.max_delay_ms, self.multiplier, self.jitter_ms]


@dataclass(frozen=True, slots=True)
class RetryOverride:
    """What a job says about its own retries; with both fields None it changes nothing.

    `max_attempts` counts runs, not retries.
    """

    max_attempts: int | None = None
    backoff: BackoffSpec | None = None

    def __post_init__(self) -> None:
        """Check that `max_attempts` fits its slot."""
        if self.max_attempts is not None:
            check_unsigned("max_attempts", self.max_attempts, U32_MAX)

    def to_wire(self) -> list[Any]:
        """The positional form; always two slots."""
        return [self.max_attempts, None if self.backoff is None else self.backoff.to_wire()]


def retry_from_wire(value: object) -> RetryOverride:
    """The override in an unpacked slot; `DecodeError` if it is not one."""
    max_attempts, backoff = _slots(value, _RETRY_NAMES, required=1)
    fields = () if backoff is None else _slots(backoff, _BACKOFF_NAMES, required=2)
    try:
        return _override(max_attempts, *fields)
    except (TypeError, ValueError) as error:
        msg = f"retry override: {error}"
        raise DecodeError(msg) from error


def encode_retry(override: RetryOverride) -> bytes:
    """An override as bytes of its own, to be kept beside a spec whose form has no room for it."""
    return pack_plain(override.to_wire())


def decode_retry(buffer: bytes) -> RetryOverride:
    """The override that `encode_retry` wrote; `DecodeError` if the bytes are anything else."""
    return retry_from_wire(unpack(buffer))


def check_cap(spec: BackoffSpec, cap: str, start: str) -> None:
    """`ValueError`, in the caller's words, if a cap is below the first delay: nobody means that.

    Not a check of `BackoffSpec` itself: what other producers wrote is read, and cut as it says.
    """
    if spec.max_delay_ms is not None and spec.max_delay_ms < spec.delay_ms:
        msg = (
            f"{cap} is {spec.max_delay_ms}, below {start}, which is {spec.delay_ms}: "
            "raise the cap, or lower the delay"
        )
        raise ValueError(msg)


def check_unsigned(name: str, value: object, maximum: int = U64_MAX) -> None:
    """`TypeError` unless `value` is an int (a bool is not), `ValueError` unless in 0..`maximum`."""
    if not isinstance(value, int) or isinstance(value, bool):
        msg = f"{name} must be an int, got {type(value).__name__}: pass a whole number"
        raise TypeError(msg)
    if not 0 <= value <= maximum:
        msg = f"{name} is {value}: it must be between 0 and {maximum}"
        raise ValueError(msg)


_KNOWN_KINDS = frozenset(kind.value for kind in BackoffKind)


def _check_kind(kind: object) -> None:
    if not isinstance(kind, str):
        msg = f"backoff kind must be a str, got {type(kind).__name__}: use 'fixed'"
        raise TypeError(msg)


def _checked_multiplier(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        msg = f"multiplier must be a number, got {type(value).__name__}: pass a float"
        raise TypeError(msg)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or number < 0:
        msg = f"multiplier is {number}: it must be finite and not negative"
        raise ValueError(msg)
    return number


# All jobs of a kind tend to say the same, and checking it takes 4 us. `typed`, because True is 1.
@lru_cache(maxsize=256, typed=True)
def _override(max_attempts: int | None, *backoff: Any) -> RetryOverride:  # noqa: ANN401
    return RetryOverride(max_attempts, BackoffSpec(*backoff) if backoff else None)


def _slots(value: object, names: tuple[str, ...], *, required: int) -> list[Any]:
    """The values in the order of `names`, from an array or a map; None for those left out."""
    if isinstance(value, dict):
        return [value.get(name) for name in names]
    if isinstance(value, list) and required <= len(value) <= len(names):
        return value + [None] * (len(names) - len(value))
    msg = f"expected an array of {len(names)} ({', '.join(names)}), got {type(value).__name__}"
    raise DecodeError(msg)
