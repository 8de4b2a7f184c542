"""What is small is planned as one task; what is large, or of unknown size, is not."""

import pytest

from chasquimq.pipeline.width import FEW, narrowed
from tests.support.spark import SPARK_MARKS

pytestmark = SPARK_MARKS


def shuffles(frame):
    """How often a plan that groups, joins and groups again moves rows between tasks."""
    once = frame.groupBy("id").count()
    joined = once.join(frame.hint("merge"), on="id", how="left").groupBy("count").count()
    plan = joined._jdf.queryExecution().executedPlan().toString()  # noqa: SLF001 -- no other way
    return plan.count("- Exchange ")


@pytest.mark.parametrize("rows", [0, FEW])
def test_few_rows_are_in_one_task_and_never_move(spark, rows):
    assert shuffles(narrowed(spark.range(4, numPartitions=2), rows)) == 0


def test_few_rows_that_are_found_among_many_move_once(spark):
    assert shuffles(narrowed(spark.range(4, numPartitions=2), 4, of_more=True)) == 1


@pytest.mark.parametrize("rows", [None, FEW + 1])
def test_many_rows_and_rows_that_nobody_counted_stay_spread(spark, rows):
    frame = spark.range(4, numPartitions=2)
    assert narrowed(frame, rows, of_more=True) is narrowed(frame, rows) is frame
    assert shuffles(frame) > 1
