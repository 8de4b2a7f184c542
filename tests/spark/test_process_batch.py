"""A backlog drained once, as a table."""

import time

import pytest
from pyspark.sql.datasource import DataSourceRegistration
from pyspark.sql.functions import col, lit, when

from chasquimq import SyncQueue
from chasquimq.errors import ConfigError
from chasquimq.spark import process_batch
from chasquimq.wire.keys import QueueKeys
from tests.support.raw_queue import RawQueue
from tests.support.spark import SPARK_MARKS

pytestmark = SPARK_MARKS

SCHEMA = "n long"


@pytest.fixture
def drain(spark, server, queue_name):
    """`drain(function, ...)`: process the test's queue."""

    def run(function, **options):
        given = {"spark": spark, "redis_url": server.url, "schema": SCHEMA} | options
        return process_batch(queue_name, function, **given)

    return run


@pytest.fixture
def raw(server, queue_name):
    return RawQueue(server.client(), QueueKeys(queue_name))


def add(queue, count):
    queue.add_bulk([{"name": "n", "data": {"n": n}, "job_id": f"j{n}"} for n in range(count)])


def test_a_backlog_is_one_table_that_can_be_read_again_and_is_then_done(
    queue, drain, raw, tmp_path, spark
):
    add(queue, 1_200)

    def save(jobs):
        assert jobs.count() == 1_200
        jobs.select("job_id", "payload.n").write.parquet(str(tmp_path / "out"))

    done = drain(save)
    assert (done.completed, done.failed, done.lost) == (1_200, 0, 0)
    assert sorted(row.n for row in spark.read.parquet(str(tmp_path / "out")).collect()) == list(
        range(1_200)
    )
    assert (raw.stream(), raw.held()) == ([], [])
    kinds = [line.split()[0] for line in raw.events()]
    assert [kinds.count(f"e={kind}") for kind in ("active", "completed")] == [1_200, 1_200]


def test_each_job_is_told_its_share_of_the_time_that_its_table_took(queue, drain, server):
    add(queue, 400)
    began = time.monotonic()
    drain(lambda jobs: jobs.foreach(lambda _: None))
    took_us = (time.monotonic() - began) * 1e6
    events = server.client().xrange(QueueKeys(queue.name).events)
    told = [int(fields[b"duration_us"]) for _, fields in events if fields[b"e"] == b"completed"]
    assert len(told) == 400
    assert 0 < sum(told) <= took_us


def test_batches_of_one_name_on_two_servers_have_each_their_own_jobs(
    queue, drain, server, queue_name
):
    """The permit that keeps a name to one driver is a key of one database: others may work too."""
    elsewhere = f"{server.url}/1"
    add(queue, 3)
    seen, drained_inside = [], []

    def inner(jobs):
        drained_inside.extend(jobs.collect())

    def outer(jobs):
        drain(inner, redis_url=elsewhere)
        seen.extend(row.job_id for row in jobs.collect())

    with SyncQueue(queue_name, redis_url=elsewhere) as other:
        add(other, 5)
        drain(outer)
        assert other.counts().waiting == 0
        other.obliterate()
    assert sorted(seen) == ["j0", "j1", "j2"]
    assert len(drained_inside) == 5


def test_what_the_function_raised_is_told_though_spark_is_gone(queue, drain, monkeypatch):
    add(queue, 1)

    def gone(*_):
        msg = "no Spark any more"
        raise RuntimeError(msg)

    def function(_):
        monkeypatch.setattr(DataSourceRegistration, "register", gone)
        msg = "the function's own"
        raise ValueError(msg)

    with pytest.raises(ValueError, match="the function's own"):
        drain(function)
    assert queue.counts().active == 1


def test_a_queue_that_nobody_has_used_is_not_made(queue, drain, raw):
    assert drain(lambda jobs: jobs.count()).completed == 0
    assert not raw.client.exists(raw.keys.stream)


def test_an_answer_settles_job_by_job(queue, drain):
    add(queue, 4)

    def answer(jobs):
        n = col("payload.n")
        return jobs.where(n < 3).select(
            "job_id", (n * 2).alias("result"), when(n == 1, lit("no ones")).alias("error")
        )

    done = drain(answer, store_results=True, max_attempts=1)
    assert (done.completed, done.failed, done.dead) == (2, 2, 2)
    assert queue.get_job_result_bulk(["j0", "j2"]) == [0, 4]
    assert sorted(letter["error"] for letter in queue.peek_dlq()) == [
        "no ones",
        "the function's answer left this job out",
    ]


def test_what_was_written_and_not_acknowledged_comes_again_as_the_same_table(
    queue, drain, tmp_path, spark, raw
):
    """The function dies after its write; the next run overwrites the very same rows."""
    add(queue, 50)
    seen = []

    def save(jobs):
        rows = sorted(row.job_id for row in jobs.select("job_id").collect())
        seen.append(rows)
        jobs.select("job_id").write.mode("overwrite").parquet(str(tmp_path / f"{rows[0]}"))
        if len(seen) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        drain(save)
    assert len(raw.held()) == 50
    queue.add("late", {"n": 99}, job_id="later")
    assert drain(save).completed == 51
    assert seen[0] == seen[1]
    assert seen[2] == ["later"]
    assert spark.read.parquet(str(tmp_path / seen[0][0])).count() == 50


def test_a_batch_that_never_ends_well_reaches_the_dlq_within_its_budget(queue, drain):
    add(queue, 3)

    def fail(jobs):
        message = "as always"
        raise RuntimeError(message)

    for _ in range(2):
        with pytest.raises(RuntimeError):
            drain(fail, max_attempts=2)
    done = drain(fail, max_attempts=2)
    assert (done.completed, done.dead) == (0, 3)
    assert {letter["reason"] for letter in queue.peek_dlq()} == {"retries_exhausted"}


def test_a_paused_queue_gives_nothing(queue, drain):
    add(queue, 3)
    queue.pause()
    assert drain(lambda jobs: pytest.fail("it was called")).completed == 0
    assert queue.counts().waiting == 3


def test_an_answer_without_job_ids_is_refused_and_the_jobs_stay(queue, drain, raw):
    add(queue, 2)
    with pytest.raises(ConfigError, match="without 'job_id'"):
        drain(lambda jobs: jobs.select("payload.n"))
    assert len(raw.stream()) == 2
