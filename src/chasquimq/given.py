"""Checks what callers give at any door: ids, names, limits, durations, instants.

Durations and instants come out as whole milliseconds, whichever way they were said.
"""

import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, overload

N = TypeVar("N", int, float)

MsLike: TypeAlias = int | float | timedelta
"""A duration: milliseconds, or a `timedelta`."""
InstantLike: TypeAlias = int | datetime
"""An instant: epoch milliseconds, or a `datetime`; a naive one is UTC."""
BytesLike: TypeAlias = bytes | bytearray | memoryview

MAX_QUEUE_NAME_BYTES = 512
"""Long enough for any name a person would type, short enough to keep keys cheap to send."""

_SHOWN_CHARS = 64
_MS = timedelta(milliseconds=1)
_SECOND = timedelta(seconds=1)
_EPOCH = datetime.fromtimestamp(0, UTC)


class Duration(Generic[N]):
    """The type of a config's field that is a number and may be given as a `timedelta`.

    `block_ms: Duration[int] = Duration(5_000)` is an int for who reads it and `int | timedelta` for
    who makes the config. It exists for type checkers only: at run time `Duration(5_000)` is 5_000,
    and the config turns what it was given into the unit that the field's name ends in.
    """

    if TYPE_CHECKING:

        def __init__(self, default: N) -> None: ...  # noqa: D107 -- never called
        def __get__(self, config: Any, kind: Any) -> N: ...  # noqa: ANN401 -- any config
        def __set__(self, config: Any, value: N | timedelta) -> None: ...  # noqa: ANN401
    else:

        def __new__(cls, default: N) -> N:
            """The number itself."""
            return default


def in_unit_of(field: str, value: timedelta) -> int:
    """A duration in the unit that a field's name ends in, rounded up: a limit is never missed."""
    unit = _SECOND if field.endswith("_secs") else _MS
    return -(-value // unit)


@overload
def as_ms(name: str, value: int | timedelta) -> int: ...
@overload
def as_ms(name: str, value: int | timedelta | None) -> int | None: ...
def as_ms(name: str, value: int | timedelta | None) -> int | None:
    """A `timedelta` as milliseconds; all else as it is, to be checked by who stores it."""
    return duration_ms(name, value) if isinstance(value, timedelta) else value


def duration_ms(name: str, value: MsLike) -> int:
    """A duration in whole milliseconds; 0 or more, finite."""
    if isinstance(value, timedelta):
        # Not by way of `total_seconds`, a float: 1.001 s would become 1000 ms.
        value = value // _MS
    if isinstance(value, bool) or not isinstance(value, int | float):
        kind = type(value).__name__
        msg = f"{name} must be a number of milliseconds or a timedelta, got {kind}"
        raise TypeError(msg)
    if value < 0 or (isinstance(value, float) and not math.isfinite(value)):
        msg = f"{name} must be a finite number, 0 or more; got {value!r}"
        raise ValueError(msg)
    return int(value)


def instant_ms(name: str, value: InstantLike) -> int:
    """An instant in epoch milliseconds; one before the epoch is the epoch."""
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        return max(0, (moment - _EPOCH) // _MS)
    if isinstance(value, bool) or not isinstance(value, int):
        kind = type(value).__name__
        msg = f"{name} must be epoch milliseconds or a datetime, got {kind}"
        raise TypeError(msg)
    if value < 0:
        msg = f"{name} must be 0 or more, got {value}: it is counted from 1970"
        raise ValueError(msg)
    return value


def instant_or_none(name: str, value: InstantLike | None) -> int | None:
    """The same, where none need be given."""
    return None if value is None else instant_ms(name, value)


def text(name: str, value: str) -> str:
    """Text that UTF-8 can carry, perhaps empty."""
    if not isinstance(value, str):
        msg = f"{name} must be a str, got {type(value).__name__}: pass it as text"
        raise TypeError(msg)
    try:
        value.encode()
    except UnicodeEncodeError:
        msg = f"{name} has a lone surrogate, not valid UTF-8: remove it"
        raise ValueError(msg) from None
    return value


def text_id(name: str, value: object, remedy: str) -> str:
    """Text that can be an id: not blank."""
    if not isinstance(value, str) or not value.strip():
        msg = f"{name} must be non-blank text, got {value!r}: {remedy}"
        raise ValueError(msg)
    return text(name, value)


def queue_name(name: str) -> str:
    """The same name, if it can be one; else `TypeError` or `ValueError`."""
    if not isinstance(name, str):
        msg = f"queue name must be a str, got {type(name).__name__}: pass the name as text"
        raise TypeError(msg)
    shown = repr(name if len(name) <= _SHOWN_CHARS else name[:_SHOWN_CHARS] + "...")
    if not name.strip():
        msg = f"queue name {shown} is blank: give the queue a name"
        raise ValueError(msg)
    if "{" in name or "}" in name:
        msg = (
            f"queue name {shown} contains a brace, which would break the cluster hash tag:"
            " remove '{' and '}'"
        )
        raise ValueError(msg)
    if any(_is_control(char) for char in name):
        msg = f"queue name {shown} contains a control character: remove it"
        raise ValueError(msg)
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        msg = f"queue name {shown} has a lone surrogate, not valid UTF-8: remove it"
        raise ValueError(msg) from None
    if size > MAX_QUEUE_NAME_BYTES:
        msg = (
            f"queue name {shown} takes {size} bytes in UTF-8, at most {MAX_QUEUE_NAME_BYTES} are"
            " allowed: choose a shorter name"
        )
        raise ValueError(msg)
    return name


def payload(value: BytesLike) -> bytes:
    """What an engine-level job carries: bytes, which nobody looks into."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    kind = type(value).__name__
    msg = f"payload must be bytes, got {kind}: pack it (encode_payload), or add it with Queue.add"
    raise TypeError(msg)


def count(name: str, value: int, least: int = 0) -> int:
    """A whole number, `least` or more."""
    if isinstance(value, bool) or not isinstance(value, int):
        msg = f"{name} must be a whole number, got {value!r}"
        raise TypeError(msg)
    if value < least:
        msg = f"{name} must be {least} or more, got {value}"
        raise ValueError(msg)
    return value


def check_kind(name: str, value: object, kind: type) -> None:
    """`TypeError` unless `value` is a `kind`."""
    if not isinstance(value, kind):
        msg = f"{name} must be a {kind.__name__}, got {type(value).__name__}: make one"
        raise TypeError(msg)


def chosen(**settings: Any) -> dict[str, Any]:  # noqa: ANN401 -- checked by who takes them
    """The settings that were given; those that are None are left to their defaults."""
    return {name: value for name, value in settings.items() if value is not None}


def check_keys(what: str, raw: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """`ValueError` that names the keys of `raw` that are not known."""
    unknown = sorted(map(repr, raw.keys() - set(known)))
    if unknown:
        msg = f"{what} has unknown keys {', '.join(unknown)}: use {', '.join(known)}"
        raise ValueError(msg)


def _is_control(char: str) -> bool:
    return char < " " or "\x7f" <= char <= "\x9f"
