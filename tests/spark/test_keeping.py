"""Rows that several steps read: computed once, and the same wherever they are kept."""

import pytest

from chasquimq.pipeline import keeping
from chasquimq.pipeline.keeping import kept
from tests.support.spark import SPARK_MARKS

pytestmark = SPARK_MARKS

# Of each kind of column that the tables and what they are made of have; the last row has nothing.
ROWS = """
    SELECT * FROM VALUES
        (1, 'a', timestamp_millis(1769853590123), array(1.5D, 2D),
         named_struct('event', 'waiting', 'at', timestamp_millis(1769853590123)), true),
        (NULL, NULL, NULL, NULL, NULL, NULL)
    AS rows (number, text, at, values, mark, flag)
"""


@pytest.fixture(params=["UTC", "America/St_Johns"])
def zone(spark, request):
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield
    spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.usefixtures("zone")
@pytest.mark.parametrize("rows", [2, None], ids=["few", "unknown"])
@pytest.mark.parametrize("condition", ["true", "false"], ids=["some", "none"])
def test_what_is_kept_is_what_there_was(spark, rows, condition):
    frame = spark.sql(ROWS).where(condition)
    with kept(frame, rows) as same:
        assert same.schema.toNullable() == frame.schema.toNullable()
        assert sorted(map(str, same.collect())) == sorted(map(str, frame.collect()))


@pytest.mark.parametrize("rows", [3, None], ids=["few", "unknown"])
def test_it_is_computed_once(spark, rows):
    with kept(spark.range(3).selectExpr("uuid() AS chance"), rows) as drawn:
        assert drawn.collect() == drawn.collect()


def test_more_than_was_told_are_all_kept_and_let_go(spark, monkeypatch):
    monkeypatch.setattr(keeping, "FEW", 2)
    with kept(spark.range(5), 1) as frame:
        assert frame.count() == 5
        assert frame.is_cached
    assert not frame.is_cached


def test_what_is_kept_is_let_go_when_a_step_fails(spark):
    frame = spark.range(5)

    def fail():
        with kept(frame, None):
            assert frame.is_cached
            msg = "killed here"
            raise OSError(msg)

    with pytest.raises(OSError, match="killed here"):
        fail()
    assert not frame.is_cached
