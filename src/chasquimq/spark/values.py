"""Arrow columns to lists of Python values, those of the usual types without a call for each."""

from array import array
from itertools import pairwise
from typing import Any

import pyarrow as pa

_NUMBERS = {pa.int64(): "q", pa.int32(): "i", pa.float64(): "d", pa.float32(): "f"}
_OFFSETS = {pa.string(): "i", pa.large_string(): "q"}


def values(column: pa.Array) -> list[Any]:
    """What `to_pylist` gives, maps as dicts; several times as fast for numbers and ASCII text."""
    if column.null_count == 0 and len(column):
        if column.type in _NUMBERS:
            return _slice(column.buffers()[1], _NUMBERS[column.type], column.offset, len(column))
        if column.type in _OFFSETS:
            return _texts(column)
    return column.to_pylist(maps_as_pydicts="strict")  # type: ignore[no-any-return]


def _texts(column: pa.Array) -> list[str]:
    _, places, content = column.buffers()
    offsets = _slice(places, _OFFSETS[column.type], column.offset, len(column) + 1)
    first = offsets[0]
    raw = memoryview(content)[first : offsets[-1]] if content is not None else b""
    text = str(raw, "utf-8")
    if len(text) != len(raw):  # some characters are longer than a byte, so places are others
        return column.to_pylist()  # type: ignore[no-any-return]
    return [text[begin - first : end - first] for begin, end in pairwise(offsets)]


def _slice(buffer: pa.Buffer, code: str, first: int, count: int) -> list[Any]:
    items = array(code)
    items.frombytes(buffer.slice(first * items.itemsize, count * items.itemsize))
    return items.tolist()
