"""A function of columns is shown a batch, and each job gets its part; no Spark is needed."""

from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from chasquimq.errors import ConfigError, DlqReason
from chasquimq.spark.vectors import Batching, Vectors, vector_schema
from chasquimq.wire.codec import unpack
from tests.support.builders import a_run

SCHEMA = StructType([StructField("x", LongType()), StructField("word", StringType())])


def runs(count):
    return [a_run({"x": n, "word": str(n)}, id=f"j{n}", name="n") for n in range(count)]


def outcomes(function, given, shape="arrow", *, keeps_results=True, schema=None):
    batching = Batching(shape=shape, size=100, at_a_time=1, schema=schema)
    return Vectors(function, batching, keeps_results=keeps_results)(given)


def values(found):
    return [None if each.value is None else unpack(each.value) for each in found]


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
def test_whatever_holds_one_value_a_row_is_an_answer_that_can_be_stored(answer):
    assert values(outcomes(lambda _: answer, runs(3))) == [0, 2, 4]


def test_no_answer_is_none_for_every_job():
    assert values(outcomes(lambda _: None, runs(2))) == [None, None]


def test_without_results_no_answer_is_packed():
    found = outcomes(lambda _: [object(), 1], runs(2), keeps_results=False)
    assert values(found) == [None, None]


@pytest.mark.parametrize(
    ("answer", "told"), [([1], "1 values for 2 jobs"), (7, "class 'int'.* for 2 jobs")]
)
def test_an_answer_that_is_not_one_value_a_row_fails_every_job(answer, told):
    with pytest.raises(ValueError, match=told):
        outcomes(lambda _: answer, runs(2))


def test_a_value_that_cannot_be_stored_fails_its_own_job_and_no_other():
    first, second = outcomes(lambda _: [object(), 1], runs(2))
    assert first.dlq_reason is DlqReason.UNRECOVERABLE
    assert "return value cannot be stored" in first.error
    assert values([second]) == [1]


def test_data_that_cannot_be_read_fails_its_own_job_and_the_others_are_shown():
    seen = []
    given = runs(3)
    given[1].envelope = given[1].envelope._replace(payload=b"\xc1")
    found = outcomes(lambda table: seen.append(table["job_id"].to_pylist()), given)
    assert seen == [["j0", "j2"]]
    assert found[1].dlq_reason is DlqReason.DECODE_FAILED
    assert values([found[0], found[2]]) == [None, None]


def test_when_no_data_can_be_read_the_function_is_not_called():
    [run] = runs(1)
    run.envelope = run.envelope._replace(payload=b"\xc1")
    [found] = outcomes(lambda _: pytest.fail("called"), [run])
    assert found.dlq_reason is DlqReason.DECODE_FAILED


def test_arrow_gets_a_table_of_what_is_known_and_the_payload_as_json():
    seen = []
    outcomes(seen.append, runs(2))
    [table] = seen
    assert isinstance(table, pa.Table)
    assert table.to_pylist()[1] == {
        "job_id": "j1",
        "name": "n",
        "attempt": 1,
        "created_at": datetime.fromtimestamp(1_700_000_000, UTC),
        "payload": '{"x": 1, "word": "1"}',
    }


def test_pandas_gets_a_frame_with_the_fields_of_the_payload_as_columns():
    seen = []
    outcomes(seen.append, runs(3), "pandas", schema=SCHEMA)
    [frame] = seen
    assert isinstance(frame, pd.DataFrame)
    assert list(frame.columns) == ["job_id", "name", "attempt", "created_at", "x", "word"]
    assert frame["x"].dtype == np.int64
    assert (frame["x"] * 2).tolist() == [0, 2, 4]
    assert frame["created_at"].dt.tz is not None


def test_a_field_with_the_name_of_a_column_of_ours_is_refused():
    with pytest.raises(ConfigError, match="'attempt', which every batch has"):
        vector_schema(StructType([StructField("attempt", LongType())]))
