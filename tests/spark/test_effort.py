"""How far a job of Spark is can be told while it is under way."""

from chasquimq.pipeline import effort
from tests.support.eventually import eventually_sync
from tests.support.spark import SPARK_MARKS

pytestmark = SPARK_MARKS

GROUP = "spark.jobGroup.id"


def test_tasks_of_a_job_are_told_as_they_are_done_and_no_trace_is_left(spark, monkeypatch):
    monkeypatch.setattr(effort, "_LOOK_S", 0.001)
    said, context = [], spark.sparkContext
    context.setLocalProperty(GROUP, "of the user")
    try:
        with effort.told(spark, "looking", said.append):
            assert spark.range(9, numPartitions=3).rdd.count() == 9
            eventually_sync(lambda: "looking: 3 of 3 tasks are done" in said)
        assert said[0] == "looking"
        assert context.getLocalProperty(GROUP) == "of the user"
    finally:
        context.setLocalProperty(GROUP, None)


def test_a_listener_that_fails_while_it_lasts_ends_nothing(spark, monkeypatch, caplog):
    monkeypatch.setattr(effort, "_LOOK_S", 0.001)

    def on_step(what):
        if what != "looking":
            raise RuntimeError(what)

    with effort.told(spark, "looking", on_step):
        assert spark.range(9).count() == 9
        eventually_sync(lambda: "how far it is cannot be told: looking" in caplog.text)


def test_where_nobody_asks_nothing_is_told():
    with effort.told(None, "looking", None):
        pass
