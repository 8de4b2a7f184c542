"""Tables read by the names of their folders, as Spark and Hadoop understand them."""

import re

import pytest

from chasquimq.pipeline import folders
from chasquimq.pipeline.lake import Lake
from chasquimq.pipeline.scope import EVERYTHING, Scope
from chasquimq.pipeline.steps import buckets_of
from chasquimq.pipeline.tables import BATCHES, BRONZE
from tests.support.batches import Batches, batch_key
from tests.support.spark import SPARK_MARKS
from tests.support.told import a_run

pytestmark = SPARK_MARKS

DAY_MS = 86_400_000
DAYS = ["2026-01-31", "2026-02-01", "2026-02-02"]


@pytest.fixture(scope="module")
def lake(request, tmp_path_factory):
    """Three batches, each of a day of its own."""
    spark, folder = request.getfixturevalue("spark"), tmp_path_factory.mktemp("lake")
    batches = Batches(spark, folder)
    for number in range(3):
        batches.keep(number, a_run(number * DAY_MS, "a"))
    return Lake(spark, str(folder))


def listed(frame, column):
    """The folders in which Spark has looked for files, before any condition on rows."""
    return sorted({re.search(f"/{column}=([^/]+)/", path)[1] for path in frame.inputFiles()})


def test_folders_that_are_not_asked_for_are_not_even_listed(lake):
    assert listed(lake.read(BRONZE), "day") == DAYS
    assert listed(lake.read(BRONZE, day=folders.since(DAYS[1])), "day") == DAYS[1:]
    assert listed(lake.read(BRONZE, day=folders.since("")), "day") == DAYS
    assert listed(lake.read(BRONZE, batch=batch_key(1)), "day") == [DAYS[1]]
    both = folders.one_of([batch_key(0), batch_key(2)])
    assert listed(lake.read(BATCHES, batch=both), "batch") == [batch_key(0), batch_key(2)]


def test_days_are_made_of_the_buckets_that_they_and_later_days_tell_of(lake):
    """And of those that are named after them, whose producers are ahead of the server."""
    told = lake.read(BRONZE).select("bucket").distinct().collect()[0][0]
    days = Scope.of([("q", DAYS[1]), ("q", DAYS[2])])
    assert buckets_of(lake, days) == (folders.one_of({told}, "id-", DAYS[1], DAYS[2]), 6)
    none = Scope.of([("q", "2026-02-04")])  # of which bronze tells nothing
    assert buckets_of(lake, none) == buckets_of(lake, EVERYTHING) == (folders.EVERY, None)


def test_a_batch_is_known_once_it_is_whole(lake):
    assert lake.batch(batch_key(2))["events"] == 2
    assert lake.batch(batch_key(3)) is None
    assert lake.read(BATCHES, batch=batch_key(3)).count() == 0
