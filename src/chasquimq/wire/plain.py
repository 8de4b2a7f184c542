"""The plain shape of the richer Python values that user data may hold, or the place of one without.

`plain` is what the packer calls for a value it does not know. `locate` is called only after packing
failed: the packer says what it could not write, `locate` finds where that is.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

MAX_DEPTH = 1024
"""How deep lists and dicts may be nested: the limit of the MessagePack libraries on both ends."""

_SHOWN_KEY_CHARS = 40


def plain(value: object) -> object:
    """The plain value that stands for `value`; `TypeError` or `ValueError` if there is none.

    The result may hold further rich values, for which the packer calls again.
    """
    convert = _converter(type(value))
    if convert is not None:
        return convert(value)
    if isinstance(value, int):
        msg = "an integer beyond 64 bits, which MessagePack cannot carry: send it as text"
        raise ValueError(msg)  # noqa: TRY004 - the type is fine, the number is not
    kind = type(value)
    msg = (
        f"{kind.__module__}.{kind.__qualname__} is not a type MessagePack can carry:"
        " turn it into a dict, list, str, bytes or number first"
    )
    raise TypeError(msg)


def locate(
    root: object, probe: Callable[[Any], object], *, name: str
) -> tuple[str, Exception] | None:
    """Where in `root` the first value is that `probe` refuses, as Python text, and the refusal.

    Goes through the value in the order the packer does, without recursion, so that a value that is
    too deep or contains itself can be explained too. None if `probe` refuses nothing in it.
    """
    stack = [_Place(root, name, None, 0)]
    while stack:
        place = stack.pop()
        try:
            children = _children(place.value)
            if children is None:
                probe(place.value)
                continue
            place.check_nesting()
            inner = [_Place(value, step, place, place.depth + 1) for step, value in children]
        except (TypeError, ValueError, OverflowError) as error:
            return place.path(), error
        stack.extend(reversed(inner))
    return None


@dataclass(slots=True, eq=False)
class _Place:
    """A value inside a value: the last step of its path, and the place that holds it."""

    value: object
    step: str
    parent: "_Place | None"
    depth: int

    def path(self) -> str:
        steps: list[str] = []
        place: _Place | None = self
        while place is not None:
            steps.append(place.step)
            place = place.parent
        return "".join(reversed(steps))

    def check_nesting(self) -> None:
        holder = self.parent
        while holder is not None:
            if holder.value is self.value:
                msg = "contains itself: break the cycle, for example by sending ids"
                raise ValueError(msg)
            holder = holder.parent
        if self.depth >= MAX_DEPTH:
            msg = f"nested deeper than {MAX_DEPTH} levels: send a flatter value"
            raise ValueError(msg)


def _converter(kind: type) -> Callable[[Any], object] | None:
    found = _CONVERTERS.get(kind)
    if found is not None:
        return found
    if issubclass(kind, Enum):
        return _member_value
    if is_dataclass(kind):
        return _field_values
    for base, convert in _CONVERTERS.items():
        if issubclass(kind, base):
            return convert
    return None


def _member_value(member: Enum) -> object:
    # The packer asks only once about one value, so the value of a member is converted here.
    convert = _converter(type(member.value))
    return member.value if convert is None else convert(member.value)


def _field_values(instance: Any) -> dict[str, object]:  # noqa: ANN401 - any user's dataclass
    try:
        return {field.name: getattr(instance, field.name) for field in fields(instance)}
    except AttributeError as error:
        msg = f"a dataclass with a field that was never set ({error}): give it a value"
        raise TypeError(msg) from error


def _elements(values: set[Any] | frozenset[Any]) -> list[Any]:
    try:
        return sorted(values)
    except TypeError:
        return list(values)


# `datetime` before `date`, which is its base class: subclasses are matched in this order.
_CONVERTERS: dict[type, Callable[[Any], object]] = {
    datetime: datetime.isoformat,
    date: date.isoformat,
    time: time.isoformat,
    timedelta: timedelta.total_seconds,
    UUID: str,
    Decimal: str,
    set: _elements,
    frozenset: _elements,
}


def _children(value: object) -> Iterator[tuple[str, object]] | None:
    """The values inside `value` with the step that leads to each; None if it is not a container."""
    match value:
        case dict():
            return _items(value)
        case list() | tuple():
            return ((f"[{index}]", item) for index, item in enumerate(value))
        case set() | frozenset():
            return (("{...}", item) for item in _elements(value))
        case Enum():
            return iter(((".value", value.value),))
        case _ if is_dataclass(type(value)):
            return ((f".{name}", item) for name, item in _field_values(value).items())
        case _:
            return None


def _items(value: dict[Any, Any]) -> Iterator[tuple[str, object]]:
    for key, item in value.items():
        shown = repr(key)
        if len(shown) > _SHOWN_KEY_CHARS:
            shown = shown[:_SHOWN_KEY_CHARS] + "..."
        yield f" key {shown}", key
        yield f"[{shown}]", item
