"""One batch taken through the tables, where it could go wrong."""

import pytest

from chasquimq.pipeline import Pipeline
from tests.support.batches import Batches, content
from tests.support.spark import SPARK_MARKS
from tests.support.told import START_MS, a_run, told

pytestmark = SPARK_MARKS


@pytest.mark.usefixtures("adaptive")
def test_events_without_a_time_are_a_job_that_counts_at_no_time(spark, tmp_path):
    """Nothing comes of them midway, where Spark may drop the counting of events with its plan."""
    batches = Batches(spark, tmp_path / "lake")
    batches.take(0, [told(0, "waiting", "mine") | {"event_at": None}])
    pipeline = Pipeline(str(tmp_path / "lake"), spark=spark)
    jobs = pipeline.table("jobs").select("job_id", "outcome", "arrived_at").collect()
    assert list(map(tuple, jobs)) == [("mine", "waiting", None)]
    assert pipeline.table("days").count() == 0
    pipeline.rebuild()
    assert pipeline.table("jobs").count() == 1


@pytest.mark.usefixtures("adaptive")
def test_a_gap_with_no_job_beside_it_touches_no_bucket(spark, tmp_path):
    """No job has changed, so Spark may leave out all events midway."""
    batches = Batches(spark, tmp_path / "lake")
    lost = told(0, "data-loss", None, lost=25, reason="25 events are missing")
    batches.take(0, [lost | {"event_at": None}, told(1, "drained", None)])
    pipeline = Pipeline(str(tmp_path / "lake"), spark=spark)
    assert [row["lost"] for row in pipeline.table("gaps").collect()] == [25]
    assert pipeline.table("jobs").count() == pipeline.table("days").count() == 0


def test_a_time_that_nothing_is_in_any_more_leaves_no_rows(spark, tmp_path):
    """A late event says that the job came at another time than it seemed."""
    batches = Batches(spark, tmp_path / "lake")
    ran_at = 20 * 60_000
    batches.take(0, a_run(ran_at, "mine"))
    pipeline = Pipeline(str(tmp_path / "lake"), spark=spark)

    def stretches(table):
        rows = pipeline.table(table).select("stretch").distinct().collect()
        return sorted(row["stretch"] for row in rows)

    seemed, came = "2026-01-31T09-50", "2026-01-31T10-10"
    assert stretches("minutes") == stretches("tallies") == [seemed, came]
    batches.take(1, [told(ran_at - 5, "waiting", "mine")])
    assert stretches("minutes") == stretches("tallies") == [came]
    # All in the hour that it came in, and none in the one before.
    counted = pipeline.table("hours").select("arrivals", "runs").collect()
    assert list(map(tuple, counted)) == [(1, 1)]
    found = content(pipeline)
    pipeline.rebuild()
    assert content(pipeline) == found


def test_a_gap_since_ever_marks_what_there_is_and_makes_no_more(spark, tmp_path):
    """A stream that was begun before its queue, and trimmed before it was read, lacks all years."""
    batches = Batches(spark, tmp_path / "lake")
    batches.take(0, a_run(0, "mine"))
    lost = told(-START_MS, "data-loss", None, lost=None, reason="nobody knows how many are missing")
    batches.take(1, [lost | {"event_at": None}, told(3_600_000, "drained", None)])
    pipeline = Pipeline(str(tmp_path / "lake"), spark=spark)
    for table in ("minutes", "hours", "days"):
        rows = pipeline.table(table).select("runs", "is_complete").collect()
        assert [row["is_complete"] for row in rows] == [False] * len(rows)
        assert sum(row["runs"] for row in rows) == 1
