"""Tables that an older version wrote are read as they are, and brought up to date by a run."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chasquimq.pipeline import SCHEMA_VERSION, Pipeline
from tests.support.batches import Batches, content
from tests.support.spark import SPARK_MARKS
from tests.support.told import a_run, told

pytestmark = SPARK_MARKS

STORY = [
    told(0, "waiting", "a"),
    *a_run(5, "a"),
    told(6, "progress", "a", progress=50, entry_seq=3),
    *a_run(6, "b", fails="no"),
    told(9, "dlq", "b", attempt=1, reason="unrecoverable"),
]


@pytest.fixture
def pipeline(spark, tmp_path):
    return Pipeline(str(tmp_path / "lake"), spark=spark)


def age(folder, *missing):
    """Make the files of a table what a version wrote that did not know some columns yet."""
    for path in folder.rglob("*.parquet"):
        rows = pq.ParquetFile(path).read().drop_columns(list(missing))
        at = rows.schema.get_field_index("schema_version")
        version = pa.array([0] * len(rows), pa.int32())
        aged = rows.set_column(at, "schema_version", version)
        pq.write_table(aged, path, use_deprecated_int96_timestamps=True)  # as Spark does


def test_columns_that_a_version_did_not_have_are_null_until_their_rows_are_made_anew(
    spark, pipeline, tmp_path, unspared
):
    batches = Batches(spark, tmp_path / "lake")
    batches.take(0, STORY)
    kept = content(pipeline)

    age(tmp_path / "lake" / "jobs", "dlq_reason", "lives")
    age(tmp_path / "lake" / "bronze", "progress")
    old = pipeline.table("jobs").select("schema_version", "lives", "dlq_reason").distinct()
    assert list(map(tuple, old.collect())) == [(0, None, None)]
    assert pipeline.table("bronze").where("progress is not null").count() == 0

    # The batch comes again: silver and gold are what they were, by the version of today. What was
    # kept of an event stays as it was kept. This time with the settings of a large batch, which
    # make the same tables as those of a small one.
    unspared()
    batches.take(0, STORY)
    assert content(pipeline) == kept
    versions = pipeline.table("bronze").select("schema_version").distinct()
    assert list(map(tuple, versions.collect())) == [(0,)]
    assert f'"schema_version":{SCHEMA_VERSION},' in kept["jobs"][0]
