"""Columns of Python values to Arrow record batches of just the schema that Spark expects."""

import gc
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

Columns: TypeAlias = Mapping[str, Sequence[Any]]
"""Values by column; our times are epoch milliseconds. User data can be anything."""

_MS = pa.int64()
_US_PER_MS = 1_000
_LAST_MS = (1 << 63) // _US_PER_MS


def uncollected(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same batches; while one is made, Python does not look for cycles of garbage.

    A page of entries is some ten thousand lists, and none of them a cycle: looking through them
    again and again is a quarter of all work.
    """
    while True:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            made = next(batches, None)
        finally:
            if was_enabled:
                gc.enable()
        if made is None:
            return
        yield made


def arrow_schema(schema: StructType) -> pa.Schema:
    """What Spark compares our batches with, down to the nullability."""
    return to_arrow_schema(schema, timezone="UTC")


def batch(schema: pa.Schema, columns: Columns) -> pa.RecordBatch:
    """One batch of the columns that `schema` names; others are left out."""
    return pa.RecordBatch.from_arrays(
        [_array(field.type, columns[field.name]) for field in schema], schema=schema
    )


def _array(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    if pa.types.is_timestamp(kind) and _are_ms(values):
        return _instants(values, kind)
    try:
        return values.cast(kind) if isinstance(values, pa.Array) else pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        if isinstance(values, pa.Array):
            values = values.to_pylist()
        # One value that does not fit must not cost the others: it alone becomes null.
        return pa.array([_fitting(kind, each) for each in values], kind)


def _are_ms(values: Sequence[Any]) -> bool:
    if isinstance(values, pa.Array):
        return bool(pa.types.is_integer(values.type))
    return all(each is None or type(each) is int for each in values)


def _instants(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Instants of epoch milliseconds; null for one that is beyond what a timestamp can be."""
    import pyarrow.compute as pc  # noqa: PLC0415 -- takes 0.1 s, and who only plans needs none

    if isinstance(values, pa.Array):
        ms = values.cast(pa.int64())
    else:
        ms = pa.array([each if each is None or each < _LAST_MS else None for each in values], _MS)
    in_reach = pc.if_else(pc.less(pc.abs(ms), _LAST_MS), ms, pa.scalar(None, _MS))
    return pc.multiply(in_reach, _US_PER_MS).cast(kind)


def _fitting(kind: pa.DataType, value: object) -> object:
    try:
        pa.array([value], kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return None
    return value
