"""Jobs become batches for a function of columns, and each gets its part; no Spark is needed."""

import asyncio
from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from chasquimq import Job
from chasquimq.errors import ConfigError
from chasquimq.spark.vectors import Batching, Vectors, vector_schema
from chasquimq.wire.codec import pack

SCHEMA = StructType([StructField("x", LongType()), StructField("word", StringType())])


def jobs(count, **facts):
    return [
        Job(id=f"j{n}", name="n", data={"x": n, "word": str(n)},
            **{"attempt": 1, "created_at_ms": n} | facts)
        for n in range(count)
    ]  # fmt: skip


async def answers(function, given, shape="arrow", **batching):
    vectors = Vectors(
        function, Batching(**{"shape": shape, "size": 100, "at_a_time": 1} | batching)
    )
    return await asyncio.gather(*(vectors(job) for job in given), return_exceptions=True)


@pytest.mark.parametrize(
    "answer",
    [
        [0, 2, 4],
        (0, 2, 4),
        np.array([0, 2, 4]),
        list(np.array([0, 2, 4])),
        pd.Series([0, 2, 4]),
        pa.array([0, 2, 4]),
        pa.chunked_array([[0], [2, 4]]),
        list(pa.array([0, 2, 4])),
    ],
    ids=["list", "tuple", "numpy", "numpy-scalars", "pandas", "arrow", "chunks", "arrow-scalars"],
)
async def test_whatever_holds_one_value_a_row_is_an_answer_that_can_be_stored(answer):
    found = await answers(lambda _: answer, jobs(3))
    assert found == [0, 2, 4]
    assert [pack(each) for each in found] == [pack(n) for n in (0, 2, 4)]


async def test_no_answer_is_none_for_every_job():
    assert await answers(lambda _: None, jobs(2)) == [None, None]


@pytest.mark.parametrize(
    ("answer", "told"), [([1], "1 values for 2 jobs"), (7, "class 'int'.* for 2 jobs")]
)
async def test_an_answer_that_is_not_one_value_a_row_fails_every_job(answer, told):
    for found in await answers(lambda _: answer, jobs(2)):
        with pytest.raises(ValueError, match=told):
            raise found


async def test_arrow_gets_a_table_of_what_is_known_and_the_payload_as_json():
    seen = []
    await answers(seen.append, jobs(2))
    [table] = seen
    assert isinstance(table, pa.Table)
    assert table.to_pylist()[1] == {
        "job_id": "j1",
        "name": "n",
        "attempt": 1,
        "created_at": datetime.fromtimestamp(0.001, UTC),
        "payload": '{"x": 1, "word": "1"}',
    }


async def test_pandas_gets_a_frame_with_the_fields_of_the_payload_as_columns():
    seen = []
    await answers(seen.append, jobs(3), "pandas", schema=SCHEMA)
    [frame] = seen
    assert isinstance(frame, pd.DataFrame)
    assert list(frame.columns) == ["job_id", "name", "attempt", "created_at", "x", "word"]
    assert frame["x"].dtype == np.int64
    assert (frame["x"] * 2).tolist() == [0, 2, 4]
    assert frame["created_at"].dt.tz is not None


async def test_batches_are_of_the_size_asked_for_and_a_rest_goes_after_a_moment():
    sizes = []
    await answers(lambda table: sizes.append(table.num_rows), jobs(25), size=10)
    assert sizes == [10, 10, 5]


async def test_a_job_that_failed_before_comes_alone():
    seen = []

    def note(table):
        seen.append(table["job_id"].to_pylist())

    given = jobs(3)
    given[1].attempt = 2
    await answers(note, given)
    assert sorted(seen) == [["j0", "j2"], ["j1"]]


def test_a_field_with_the_name_of_a_column_of_ours_is_refused():
    with pytest.raises(ConfigError, match="'attempt', which every batch has"):
        vector_schema(StructType([StructField("attempt", LongType())]))
