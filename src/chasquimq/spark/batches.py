"""Columns of Python values to Arrow record batches of just the schema that Spark expects."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

Columns: TypeAlias = Mapping[str, Sequence[Any]]
"""Values by column; our times are epoch milliseconds. User data can be anything."""

_US_PER_MS = 1_000


def arrow_schema(schema: StructType) -> pa.Schema:
    """What Spark compares our batches with, down to the nullability."""
    return to_arrow_schema(schema, timezone="UTC")


def batch(schema: pa.Schema, columns: Columns) -> pa.RecordBatch:
    """One batch of the columns that `schema` names; others are left out."""
    return pa.RecordBatch.from_arrays(
        [_array(field.type, columns[field.name]) for field in schema], schema=schema
    )


def _array(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    if isinstance(values, pa.Array):
        return values if values.type == kind else values.cast(kind)
    if pa.types.is_timestamp(kind) and all(each is None or type(each) is int for each in values):
        micros = [None if each is None else each * _US_PER_MS for each in values]
        return pa.array(micros, pa.int64()).cast(kind)
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        # One value that does not fit must not cost the others: it alone becomes null.
        return pa.array([_fitting(kind, each) for each in values], kind)


def _fitting(kind: pa.DataType, value: object) -> object:
    try:
        pa.array([value], kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return None
    return value
