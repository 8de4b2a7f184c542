"""Tables read by the names of their folders, as Spark and Hadoop understand them."""

import re

import pytest

from chasquimq.pipeline import folders
from chasquimq.pipeline.lake import Lake
from chasquimq.pipeline.scope import Scope
from chasquimq.pipeline.steps import buckets_of
from chasquimq.pipeline.tables import BATCHES, BRONZE, MINUTES
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


def test_minutes_are_made_of_the_buckets_that_events_of_their_time_tell_of(lake):
    """And of those that are named after them, whose producers are ahead of the server."""
    told = lake.read(BRONZE).select("bucket").distinct().collect()[0][0]
    named = {f"{DAYS[1]}T09-40", f"{DAYS[1]}T09-50", f"{DAYS[1]}T10-00"}
    both = Scope.of(("q", stretch) for stretch in sorted(named)[1:])
    # One is of that time; all three say that their job was made two days before.
    assert buckets_of(lake, both) == (folders.one_of({told, *named}, "id-"), 2)
    made = Scope.of([("q", f"{DAYS[0]}T09-50")])
    assert buckets_of(lake, made)[1] == 4
    none = Scope.of([("q", "2026-02-04T09-50")])  # of which bronze tells nothing
    named = {"2026-02-04T09-50", "2026-02-04T09-40"}
    assert buckets_of(lake, none) == (folders.one_of(named, "id-"), None)


def test_rows_of_delta_are_taken_away_by_a_statement_that_spark_can_parse(spark, monkeypatch):
    """The jars of Delta are not here: whether it does what it says is untried."""
    said = []
    monkeypatch.setattr(type(spark), "sql", lambda _, statement: said.append(statement))
    monkeypatch.setattr(Lake, "found", lambda *_: "some rows")
    two = Scope.of([("it's", "2026-01-31T09-10"), ("q", "2026-01-31T09-20")])
    Lake(spark, "/a `lake`", "delta").drop(MINUTES, two.holds("stretch"), stretch="*")
    [statement] = said
    assert statement.startswith("DELETE FROM delta.`/a ``lake``/minutes` WHERE (")
    parser = spark._jsparkSession.sessionState().sqlParser()  # noqa: SLF001 -- there is no other
    plan = parser.parsePlan(statement)
    assert plan.nodeName() == "DeleteFromTable"


def test_a_batch_is_known_once_it_is_whole(lake):
    assert lake.batch(batch_key(2))["events"] == 2
    assert lake.batch(batch_key(3)) is None
    assert lake.read(BATCHES, batch=batch_key(3)).count() == 0
