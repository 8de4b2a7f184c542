"""One small Spark session for all tests, and frames over the queue of a test."""

import asyncio
import os
from pathlib import Path

import pytest

from chasquimq import SyncQueue
from chasquimq.spark import session
from tests import support
from tests.support.spark import SMALL, home_without_zip, why_no_java
from tests.support.spark_process import spark_processes
from tests.support.story import work

PRELOADED = Path(support.__file__).parent / "preloaded"


@pytest.fixture(scope="session")
def java(tmp_path_factory):
    """Skips, and says why, where there is no Java for Spark; else Spark's starts are quick."""
    if (reason := why_no_java()) is not None:
        pytest.skip(reason)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_HOME", str(home_without_zip(tmp_path_factory.mktemp("spark-home"))))
        # Each of some hundred processes of Python would compile what it imports, and import it.
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        patch.setenv("PYTHONPATH", str(PRELOADED), prepend=os.pathsep)
        yield


@pytest.fixture(scope="session")
def spark(java, tmp_path_factory, worker_id):
    """The session.

    All processes of a run have one between them: that the tests are kept together is seen to by a
    plugin, and a Java for each process would go unnoticed but for the time it takes.
    """
    if worker_id != "master":
        (tmp_path_factory.getbasetemp().parent / "spark-session").touch(exist_ok=False)
    started = session("tests", SMALL)
    yield started
    started.stop()


@pytest.fixture
def adaptive(spark):
    """Plans change while they run, as they do for users; the other tests have no time for that."""
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    yield
    spark.conf.set("spark.sql.adaptive.enabled", SMALL["spark.sql.adaptive.enabled"])


@pytest.fixture
def start_driver(java):
    """`start_driver(config)`: a driver of the test's own; killed in the end."""
    with spark_processes() as start:
        yield start


@pytest.fixture
def queue(server, queue_name):
    """The test's queue."""
    with SyncQueue(queue_name, redis_url=server.url) as opened:
        yield opened


@pytest.fixture
def read(spark, server, queue_name):
    """`read(format, option=...)`: a frame over the test's queue."""

    def load(name, *, schema=None, **options):
        reader = spark.read.format(name).options(
            **{"redis_url": server.url, "queue": queue_name} | options
        )
        return (reader.schema(schema) if schema else reader).load()

    return load


@pytest.fixture
def stream(spark, server, queue_name):
    """`stream(option=...)`: a streaming frame over the events of the test's queue."""

    def load(**options):
        given = {"redis_url": server.url, "queue": queue_name} | options
        return spark.readStream.format("chasquimq_events").options(**given).load()

    return load


@pytest.fixture
def write(server, queue_name):
    """`write(frame, option=...)`: its rows become jobs of the test's queue."""

    def save(frame, **options):
        given = {"redis_url": server.url, "queue": queue_name} | options
        frame.write.format("chasquimq").options(**given).mode("append").save()

    return save


@pytest.fixture
def to_parquet(tmp_path):
    """`to_parquet(frame, **trigger)`: run a stream into a folder until it has caught up."""

    def run(frame, **options):
        query = (
            frame.writeStream.format("parquet")
            .options(**options)
            .option("path", str(tmp_path / "lake"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return query

    return run


@pytest.fixture
def forget_last_commit(tmp_path):
    """Leave what a crash after the last write and before its commit leaves."""

    def forget():
        commits = tmp_path / "checkpoint" / "commits"
        last = max(int(path.name) for path in commits.glob("[0-9]*"))
        (commits / str(last)).unlink()

    return forget


@pytest.fixture
def play(server, queue_name):
    """`play(jobs)`: real jobs of the test's queue, run to their end by a real worker."""
    return lambda jobs: asyncio.run(work(server.url, queue_name, jobs))
