"""Tables that an older version wrote are read as they are, and brought up to date by a run."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chasquimq.pipeline import SCHEMA_VERSION, Pipeline
from tests.support.spark import SPARK_MARKS
from tests.support.story import some

pytestmark = SPARK_MARKS


@pytest.fixture
def pipeline(spark, tmp_path):
    return Pipeline(str(tmp_path / "lake"), spark=spark)


def content(pipeline, *names):
    """All rows of tables, in an order that does not depend on files."""
    return {name: sorted(map(str, pipeline.table(name).collect())) for name in names}


def age(folder, *missing):
    """Make the files of a table what a version wrote that did not know some columns yet."""
    for path in folder.rglob("*.parquet"):
        rows = pq.ParquetFile(path).read().drop_columns(list(missing))
        at = rows.schema.get_field_index("schema_version")
        version = pa.array([0] * len(rows), pa.int32())
        pq.write_table(rows.set_column(at, "schema_version", version), path)
        path.with_name(f".{path.name}.crc").unlink()


def forget_last_commit(lake):
    """Leave what a crash after all writes and before Spark's own note of them leaves."""
    commits = lake / "_checkpoint" / "commits"
    last = max(int(path.name) for path in commits.glob("[0-9]*"))
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink()


def test_columns_that_a_version_did_not_have_are_null_until_their_rows_are_made_anew(
    server, queue_name, pipeline, play, tmp_path
):
    play([*some("ok", 2), *some("broken", 1)])
    pipeline.run([queue_name], redis_url=server.url)
    made = ("runs", "jobs", "minutes", "hours", "days", "failures")
    kept, events = content(pipeline, *made), content(pipeline, "bronze", "batches")

    age(tmp_path / "lake" / "jobs", "dlq_reason", "lives")
    age(tmp_path / "lake" / "bronze", "wait_ms")
    old = pipeline.table("jobs").select("schema_version", "lives", "dlq_reason").distinct()
    assert list(map(tuple, old.collect())) == [(0, None, None)]
    assert pipeline.table("bronze").where("wait_ms is not null").count() == 0

    # The last batch comes again: silver and gold are what they were, with the version of today.
    # What an event did not say when it was kept stays unsaid.
    forget_last_commit(tmp_path / "lake")
    assert pipeline.run([queue_name], redis_url=server.url).events == len(events["bronze"])
    assert content(pipeline, *made) == kept
    assert {row[0] for row in pipeline.table("bronze").select("schema_version").collect()} == {0}
    assert f"schema_version={SCHEMA_VERSION}," in kept["jobs"][0]

    # And again, on what is whole: nothing changes, to the last character.
    forget_last_commit(tmp_path / "lake")
    pipeline.run([queue_name], redis_url=server.url)
    assert content(pipeline, *made) == kept
