"""User data to the type that a column has: JSON text, or what a user's schema says. Pure."""

import base64
import json
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    FractionalType,
    IntegralType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

_WIDTHS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}


def shaper(kind: DataType) -> Callable[[Any], Any]:
    """A function that gives user data the type of a column; JSON where that is text."""
    return as_json if isinstance(kind, StringType) else lambda value: shaped(value, kind)


def as_json(value: Any) -> str:  # noqa: ANN401 -- the user's data
    """JSON of anything a payload can hold: bytes as base 64, times as ISO 8601, keys as text."""
    try:
        return _to_json(value)
    except TypeError:
        return _to_json(_with_text_keys(value))


def shaped(value: Any, kind: DataType) -> Any:  # noqa: ANN401, PLR0911 -- by type
    """The value as `kind`; null, there and not around it, where it does not fit."""
    if value is None:
        return None
    match kind:
        case StructType():
            found = value if isinstance(value, Mapping) else {}
            return {each.name: shaped(found.get(each.name), each.dataType) for each in kind.fields}
        case ArrayType():
            return (
                [shaped(each, kind.elementType) for each in value]
                if isinstance(value, list)
                else None
            )
        case MapType():
            return [
                (shaped(key, kind.keyType), shaped(each, kind.valueType))
                for key, each in (value.items() if isinstance(value, Mapping) else ())
            ]
        case StringType():
            return value if isinstance(value, str) else as_json(value)
    try:
        return _scalar(value, kind)
    except (TypeError, ValueError, InvalidOperation, OverflowError):
        return None


def _scalar(value: Any, kind: DataType) -> Any:  # noqa: ANN401, PLR0911 -- by type
    match kind:
        case BooleanType():
            return value if isinstance(value, bool) else None
        case IntegralType():
            number = int(value)
            half = 1 << (_WIDTHS[kind.simpleString()] - 1)
            return number if -half <= number < half and number == value else None
        case DecimalType():
            # Rounded as the column says; one that has more digits than it may is no value of it.
            exact = Decimal(str(value)).quantize(Decimal(1).scaleb(-kind.scale))
            return exact if len(exact.as_tuple().digits) <= kind.precision else None
        case FractionalType():
            return float(value)
        case BinaryType():
            return value if isinstance(value, bytes) else None
        case TimestampType() | TimestampNTZType():
            return value if isinstance(value, datetime) else datetime.fromisoformat(value)
        case DateType():
            return value if isinstance(value, date) else date.fromisoformat(value)
    return None


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if isinstance(value, date) else str(value)


def _with_text_keys(value: Any) -> Any:  # noqa: ANN401 -- the user's data
    match value:
        case dict():
            return {
                key if isinstance(key, str) else as_json(key): _with_text_keys(each)
                for key, each in value.items()
            }
        case list() | tuple():
            return [_with_text_keys(each) for each in value]
    return value


# Made once: `json.dumps` makes an encoder for each call that is not a plain one.
_to_json = json.JSONEncoder(ensure_ascii=False, default=_plain).encode
