"""The pipeline over the events of real jobs: whole, incremental, and the same when done again."""

import contextlib
import json
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

from chasquimq import SyncQueue
from chasquimq.errors import ConfigError, DataLossError
from chasquimq.pipeline import Pipeline, Slo, Triage
from chasquimq.pipeline.steps import Steps
from chasquimq.pipeline.tables import TABLES
from chasquimq.wire.keys import QueueKeys
from tests.support.batches import content
from tests.support.spark import SMALL, SPARK_MARKS
from tests.support.story import some

pytestmark = SPARK_MARKS


@pytest.fixture
def pipeline(spark, tmp_path):
    return Pipeline(str(tmp_path / "lake"), spark=spark, slo=Slo(within_ms=30_000))


@contextlib.contextmanager
def widths_of_batches(spark, monkeypatch):
    """A setting while each batch is made: in the batch's session, and in the user's."""
    name, own = "spark.sql.shuffle.partitions", "200"
    rebuild, found = Steps.rebuild, []

    def watched(self, lake, *rest):
        found.append((lake.spark.conf.get(name), spark.conf.get(name)))
        return rebuild(self, lake, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(Steps, "rebuild", watched)
        spark.conf.set(name, own)
        yield found
        spark.conf.set(name, SMALL[name])


def told(server, queue_name):
    """How often each event was told."""
    entries = server.client().xrange(QueueKeys(queue_name).events)
    return Counter(fields[b"e"].decode() for _, fields in entries)


def test_tables_tell_what_a_worker_did_and_more_events_change_only_what_they_touch(
    spark, server, queue_name, pipeline, play, tmp_path, monkeypatch
):
    play(
        [
            *some("ok", 4),
            *some("flaky", 2),
            *some("broken", 3),
            {"name": "own", "data": 0, "job_id": "mine"},
        ]
    )
    batches = []
    with widths_of_batches(spark, monkeypatch) as widths:
        done = pipeline.run(
            [queue_name], redis_url=server.url, max_events=40, on_batch=batches.append
        )

    first = told(server, queue_name)
    assert done.events == sum(first.values())
    assert done.batches == len(batches) == -(-done.events // 40)
    # Settings that suit a batch are those of its own session.
    assert widths == [("2", "200")] * done.batches
    in_bronze = {
        row["event"]: row["count"]
        for row in pipeline.table("bronze").groupBy("event").count().collect()
    }
    assert in_bronze == first
    outcomes = pipeline.table("jobs").groupBy("name", "outcome", "attempts").count().collect()
    assert sorted(map(tuple, outcomes)) == [
        ("broken", "dead", 1, 3),
        ("flaky", "completed", 2, 2),
        ("ok", "completed", 1, 4),
        ("own", "completed", 1, 1),
    ]

    # More of the same, and dead letters sent round again: late events of jobs that are known.
    with_replay(server.url, queue_name)
    play(some("ok", 2))
    pipeline.run([queue_name], redis_url=server.url)
    [replayed] = (
        pipeline.table("jobs")
        .groupBy("name", "lives", "attempts")
        .count()
        .where("lives > 1")
        .collect()
    )
    assert tuple(replayed) == ("broken", 2, 2, 3)
    [day] = pipeline.table("days").groupBy().sum("arrivals", "runs", "completed", "dead").collect()
    assert tuple(day) == (12, 12 + 2 + 3, 9, 3)

    # Its checkpoint lost, it goes on behind what it has.
    shutil.rmtree(tmp_path / "lake" / "_checkpoint")
    assert pipeline.run([queue_name], redis_url=server.url).events == 0
    check_the_report(pipeline)


def with_replay(url, name):
    triage = Triage(name, redis_url=url)
    [group] = triage.groups()
    assert (group.count, group.names, group.error_type) == (3, ("broken",), "UnrecoverableError")
    assert group.frames.startswith("story.py:handle")
    assert group.message == "no parser for #"
    ids = triage.choose(fingerprint=group.fingerprint)
    assert tuple(ids) == group.ids
    assert triage.choose(where="name = 'ok'") == []
    with pytest.raises(ConfigError, match="neither fingerprint nor where"):
        triage.choose()
    with pytest.raises(ConfigError, match="no condition on dead letters"):
        triage.choose(where="nonsense = 1")
    assert triage.replay(ids).changed == 3
    assert triage.replay(ids).changed == 0


def check_the_report(pipeline):
    found = pipeline.summary()
    assert sum(each.arrivals for each in found.points) == 12
    assert {each.name for each in found.names} == {"ok", "flaky", "broken", "own"}
    assert json.dumps(found.as_dict(), default=str)
    # Not of other percentiles: of the runs themselves.
    took = sorted(row[0] for row in pipeline.table("runs").select("ran_us").collect())
    assert len(took) == found.total.runs == sum(each.runs for each in found.points)
    least, most = took[0] / 1_010, took[-1] / 990  # three digits of each are kept
    assert least <= found.total.run_p50_ms <= found.total.run_p99_ms <= most
    assert {(each.kind, each.reason, each.failures) for each in found.reasons} == {
        ("run", "error", 6),
        ("run", "error", 2),
        ("job", "unrecoverable", 3),
    }
    day = f"{found.points[0].at:%Y-%m-%d}"
    assert pipeline.summary(first_day=day).total.runs == found.total.runs
    assert pipeline.summary(last_day="2020-01-01").points == ()
    assert pipeline.summary(["another"]).total.arrivals == 0


def test_what_bronze_has_outlives_a_kill_and_a_trim_and_what_is_trimmed_unread_is_told(
    server, queue_name, pipeline, play, monkeypatch
):
    play([*some("ok", 3), *some("broken", 1)])
    with monkeypatch.context() as patch:
        patch.setattr(Steps, "rebuild", killed)
        with pytest.raises(Exception, match="killed here"):
            pipeline.run([queue_name], redis_url=server.url)
    assert pipeline.table("bronze").count() > 0
    assert pipeline.table("jobs").count() == 0
    # What bronze has is safe, even if the server has dropped it meanwhile.
    server.client().xtrim(QueueKeys(queue_name).events, maxlen=1, approximate=False)
    kept = content(pipeline, ("bronze", "batches"))

    pipeline.run([queue_name], redis_url=server.url, fail_on_data_loss=False)
    assert content(pipeline, ("bronze", "batches")) == kept
    outcomes = pipeline.table("jobs").groupBy("outcome").count().collect()
    assert sorted(map(tuple, outcomes)) == [("completed", 3), ("dead", 1)]
    trimmed_unread_they_end_a_run_or_are_noted_as_a_gap(server, queue_name, pipeline, play)


def killed(*_):
    msg = "killed here"
    raise OSError(msg)


def trimmed_unread_they_end_a_run_or_are_noted_as_a_gap(server, queue_name, pipeline, play):
    play(some("ok", 3))
    server.client().xtrim(QueueKeys(queue_name).events, maxlen=4, approximate=False)
    with pytest.raises(DataLossError, match="trimmed unread"):
        pipeline.run([queue_name], redis_url=server.url)
    streaming = pipeline.stream([queue_name], redis_url=server.url, fail_on_data_loss=False)
    streaming.catch_up()
    streaming.stop()
    assert streaming.wait(10)
    done = streaming.total
    [gap] = pipeline.table("gaps").collect()
    assert done.lost == gap["lost"] > 0
    assert pipeline.table("minutes").where("not is_complete").count() > 0
    assert "Events are missing" in pipeline.report()


def test_a_table_that_was_never_written_is_empty_and_one_that_is_none_is_refused(pipeline):
    for table in TABLES[:2]:
        assert pipeline.table(table.name).count() == 0
    with pytest.raises(ConfigError, match="there is no table 'silver': use batches, bronze"):
        pipeline.table("silver")
    with pytest.raises(ConfigError, match="queues is 'emails': use a list"):
        pipeline.run("emails")
    with pytest.raises(ConfigError, match="'yesterday' is not a day"):
        pipeline.rebuild("yesterday")


def test_a_session_of_spark_connect_is_refused_before_anything_is_written(tmp_path):
    remote = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(ConfigError, match="is one of Spark Connect, over which tables cannot be"):
        Pipeline(str(tmp_path), spark=remote)
    assert list(tmp_path.iterdir()) == []


def test_a_format_that_the_session_does_not_have_is_refused_before_anything_is_written(
    spark, tmp_path
):
    with pytest.raises(ConfigError, match="is 'delta', which this Spark session does not have"):
        Pipeline(str(tmp_path), spark=spark, file_format="delta")
    assert list(tmp_path.iterdir()) == []
    # Of other formats Spark could not replace one folder, or not take rows away.
    with pytest.raises(ConfigError, match="is 'orc': use parquet, or delta in a session that has"):
        Pipeline(str(tmp_path), spark=spark, file_format="orc")


def test_the_fragments_of_the_page_run(start_server, tmp_path, spark):
    own = start_server("valkey")
    (tmp_path / "orders.csv").write_text("number,who\n7,ada\n")
    page = (Path(__file__).parents[2] / "docs" / "pipeline.md").read_text()
    world = {"url": own.url, "path": str(tmp_path)}
    for fragment in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        exec(compile(fragment, "pipeline.md", "exec"), world)  # noqa: S102 -- our own page
    with SyncQueue("orders", redis_url=own.url) as queue:
        assert queue.counts().waiting == 1
    assert (tmp_path / "_checkpoint").is_dir()
