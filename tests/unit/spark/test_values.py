"""`values`: what `to_pylist` gives, for whole columns and for pieces of them."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from chasquimq.spark.values import values

COLUMNS = [
    pa.array([1, -2, 1 << 62], pa.int64()),
    pa.array([1, -2, 3], pa.int32()),
    pa.array([0.5, -1.25, float("inf")], pa.float64()),
    pa.array([0.5, -1.25, 2.0], pa.float32()),
    pa.array(["", "plain", "text"]),
    pa.array(["", "plain", "text"], pa.large_string()),
    pa.array(["", "é", "日本"]),
    pa.array(["", "", ""]),
    pa.array([None, "a", "b"]),
    pa.array([None, 1, 2]),
    pa.array([True, False, None]),
    pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int64())),
    pa.array([datetime(2026, 5, 1, tzinfo=UTC)] * 3, pa.timestamp("us", "UTC")),
]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: str(column.type))
def test_a_column_and_every_piece_of_it_give_their_values(column):
    expected = column.to_pylist(maps_as_pydicts="strict")
    for first in range(len(column) + 1):
        for size in range(len(column) - first + 1):
            assert values(column.slice(first, size)) == expected[first : first + size]
