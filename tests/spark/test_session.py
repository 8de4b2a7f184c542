"""Formats are found, the server can be set once for a session, and no password is shown."""

import re
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from chasquimq.errors import ConfigError
from chasquimq.spark import FORMATS, SparkWorker, process_batch, register, session
from chasquimq.spark.session import _defaults
from chasquimq.spark.source import URL_SETTING
from chasquimq.wire.keys import QueueKeys
from tests.support.spark import SMALL, SPARK_MARKS

pytestmark = SPARK_MARKS

ROOT = Path(__file__).parents[2]
DAEMON_SETTING, DAEMON = "spark.python.daemon.module", "chasquimq.spark.daemon"


def test_every_format_has_a_module_by_which_it_is_found():
    modules = {path.stem.removeprefix("pyspark_") for path in ROOT.glob("src/pyspark_*.py")}
    assert modules == set(FORMATS)


def test_tasks_are_forked_with_our_formats_loaded_unless_their_python_is_another(
    spark, monkeypatch
):
    def parent_of_a_task(_):
        import os  # noqa: PLC0415 -- in a task
        from pathlib import Path  # noqa: PLC0415

        return Path(f"/proc/{os.getppid()}/cmdline").read_text().split("\0")[1:3]

    [parent] = spark.sparkContext.parallelize([0], 1).map(parent_of_a_task).collect()
    assert parent == ["-m", DAEMON]
    for python, daemon in ((sys.executable, DAEMON), ("/another/python", None)):
        monkeypatch.setenv("PYSPARK_PYTHON", python)
        assert _defaults({"spark.master": "local[1]"}, None).get(DAEMON_SETTING) == daemon
    assert DAEMON_SETTING not in _defaults({"spark.master": "spark://host:7077"}, None)


def test_a_local_spark_logs_errors_only_and_another_what_it_is_told_to():
    assert _defaults({"spark.master": "local[1]"}, None)["spark.log.level"] == "ERROR"
    assert "spark.log.level" not in _defaults({"spark.master": "spark://host:7077"}, None)


@pytest.fixture
def url_set(spark):
    """`url_set(url)`: the session's server; taken back after the test."""

    def set_url(url):
        spark.conf.set(URL_SETTING, url)
        register(spark)

    yield set_url
    spark.conf.unset(URL_SETTING)
    register(spark)


def test_the_server_can_be_set_for_the_session(spark, server, queue_name, url_set):
    server.client().xadd(QueueKeys(queue_name).events, {"e": "waiting"})
    url_set(server.url)
    frame = spark.read.format("chasquimq_events").option("queue", queue_name).load()
    assert frame.count() == 1


@pytest.fixture
def logged(spark):
    """`logged()`: what Spark has said since the test began, from warnings on."""
    log4j = spark._jvm.org.apache.logging.log4j  # noqa: SLF001
    heard = spark._jvm.java.io.StringWriter()  # noqa: SLF001
    layout = log4j.core.layout.PatternLayout.createDefaultLayout()
    appenders = log4j.core.appender.WriterAppender
    listener = appenders.createAppender(layout, None, heard, "listener", *(False, True))
    listener.start()
    root = log4j.LogManager.getContext(False).getRootLogger()  # noqa: FBT003
    root.addAppender(listener)
    spark.sparkContext.setLogLevel("WARN")
    yield heard.toString
    spark.sparkContext.setLogLevel(SMALL["spark.log.level"])
    root.removeAppender(listener)


def test_registering_is_not_warned_of_and_other_warnings_are_heard(spark, logged):
    name = "org.apache.spark.sql.execution.datasources.DataSourceManager"
    manager = spark._jvm.org.apache.logging.log4j.LogManager.getLogger(name)  # noqa: SLF001
    manager.warn("before")
    register(spark)
    manager.warn("after")
    assert logged().split() == ["before", "after"]


def test_a_setting_that_is_no_url_is_refused_without_showing_it(url_set):
    with pytest.raises(ConfigError, match=re.escape(URL_SETTING)) as refused:
        url_set("redis://:hush@host:port")
    assert "hush" not in str(refused.value)


def test_the_setting_is_not_among_those_that_java_is_started_with(spark, url_set, monkeypatch):
    """They stand on its command line, for all users of the machine to read."""
    given = {}

    def config(self, name, value):
        given[name] = value
        return self

    monkeypatch.setattr(SparkSession.Builder, "config", config)
    own = "redis://:hush-hush@127.0.0.1:1"
    assert session("tests", SMALL | {URL_SETTING: own}) is spark
    assert given.items() >= SMALL.items()
    assert URL_SETTING not in given
    assert spark.conf.get(URL_SETTING) == own


def test_no_plan_log_or_progress_shows_a_password(
    spark, start_server, tmp_path, capfd, caplog, logged, queue_name
):
    own = start_server("valkey")
    own.client().config_set("requirepass", "hush-hush")
    url = own.url.replace("//", "//:hush-hush@")
    options = {"redis_url": url, "queue": queue_name}
    spark.sparkContext.setLogLevel("INFO")
    caplog.set_level("INFO")
    try:
        spark.range(3).write.format("chasquimq").options(**options).mode("append").save()
        frame = spark.read.format("chasquimq_events").options(**options).load()
        assert frame.count() == 3
        frame.explain(mode="extended")
        frame.explain(mode="formatted")
        query = (
            spark.readStream.format("chasquimq_events")
            .options(**options, startingOffsets="earliest")
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        query.explain(extended=True)
        progress = str(query.lastProgress)
        batch = process_batch(queue_name, lambda _: None, spark=spark, redis_url=url)
        spark.range(1).write.format("chasquimq").options(**options).mode("append").save()
        worker = SparkWorker(queue_name, str, spark=spark, redis_url=url, linger_ms=200)
        worker.run(until_idle=True)
    finally:
        spark.sparkContext.setLogLevel(SMALL["spark.log.level"])
    shown = capfd.readouterr()
    assert "chasquimq_events" in shown.out
    assert "1 jobs completed, 0 runs failed" in caplog.text
    assert "Submitting" in logged()
    written = "".join(path.read_text() for path in tmp_path.rglob("[0-9m]*") if path.is_file())
    told = shown.out + shown.err + progress + written + caplog.text + logged()
    assert "hush-hush" not in told + repr(worker) + repr(batch)


def test_a_password_in_the_setting_is_hidden_from_sparks_pages(spark, url_set):
    secret = "redis://:hush-hush@127.0.0.1:1"  # noqa: S105 -- nobody's
    url_set(secret)
    redacted = spark._jvm.org.apache.spark.util.Utils.redact(  # noqa: SLF001 -- what the pages use
        spark.sparkContext._jsc.sc().conf(),  # noqa: SLF001
        spark._jvm.PythonUtils.toSeq([spark._jvm.scala.Tuple2(URL_SETTING, secret)]),  # noqa: SLF001
    )
    assert "hush-hush" not in redacted.toString()
