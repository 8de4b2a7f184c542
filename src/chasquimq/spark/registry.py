"""Makes our formats known to a Spark session."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from chasquimq.broker.url import parse_url
from chasquimq.errors import ConfigError
from chasquimq.spark.delayed_source import DelayedSource
from chasquimq.spark.dlq_source import DlqSource
from chasquimq.spark.events_source import EventsSource
from chasquimq.spark.jobs_source import JobsSource
from chasquimq.spark.queue_sink import QueueSink
from chasquimq.spark.results_source import ResultsSource
from chasquimq.spark.schedules_source import SchedulesSource
from chasquimq.spark.source import URL_SETTING, ChasquiSource

SOURCES: tuple[type[ChasquiSource[Any]], ...] = (
    QueueSink,
    EventsSource,
    JobsSource,
    DelayedSource,
    DlqSource,
    SchedulesSource,
    ResultsSource,
)
"""Every format; the first is the sink."""

FORMATS = tuple(each.name() for each in SOURCES)
"""Their names."""

# Warns of each format that is registered and that it could have found by itself: all of them.
_MANAGER = "org.apache.spark.sql.execution.datasources.DataSourceManager"

_SPARKS_SECRETS = "(?i)secret|password|token|access[.]?key"


def register(spark: SparkSession) -> None:
    """Make all formats known to a session, with its `spark.chasquimq.url` as their server.

    Needed only for that setting: without it the formats are found by themselves wherever the
    package is installed. Call it again after changing the setting. Raises `ConfigError` if the
    setting holds a password that Spark's own pages would show.
    """
    url = spark.conf.get(URL_SETTING, None)
    if url is not None:
        check_hidden(url, spark.conf.get("spark.redaction.regex", _SPARKS_SECRETS) or "")
    with _unwarned(spark):
        for source in SOURCES:
            spark.dataSource.register(source if url is None else _bound(source, url))


@contextmanager
def _unwarned(spark: SparkSession) -> Iterator[None]:
    """Let Spark not warn of formats that take the place of themselves.

    Where that cannot be had, over Spark Connect or with another logging than Spark's own, or where
    somebody has set the level of that very logger, it says what it says.
    """
    context = _hushed(spark)
    try:
        yield
    finally:
        if context is not None:
            context.getConfiguration().removeLogger(_MANAGER)
            context.updateLoggers()


def _hushed(spark: SparkSession) -> Any:  # noqa: ANN401 -- Java's
    """Where Spark's loggers are, now that the one is silent; None if it is not."""
    try:
        log4j = spark._jvm.org.apache.logging.log4j  # type: ignore[union-attr]  # noqa: SLF001
        context = log4j.LogManager.getContext(False)  # noqa: FBT003
        if context.getConfiguration().getLoggers().containsKey(_MANAGER):
            return None
        log4j.core.config.Configurator.setLevel(_MANAGER, log4j.Level.ERROR)
    except (AttributeError, TypeError, Py4JError):
        return None
    return context


def _bound(source: type[ChasquiSource[Any]], url: str) -> type[ChasquiSource[Any]]:
    """The same format with a server of its own; made here, so that it travels as a value."""

    class Bound(source):  # type: ignore[valid-type, misc]
        pass

    Bound.__name__ = Bound.__qualname__ = source.__name__
    Bound.url = url
    return Bound


def check_hidden(url: str, redaction: str) -> None:
    """`ConfigError` if `url` is no URL, or if Spark's pages would show its password."""
    try:
        target = parse_url(url)
    except ValueError as error:
        problem = str(error).replace("redis_url", URL_SETTING)
    else:
        has_secret = target.password is not None or target.sentinel_password is not None
        if not has_secret or re.search(_python_flags(redaction), URL_SETTING):
            return
        problem = (
            f"{URL_SETTING} holds a password, and Spark's pages would show it: start the session "
            "with chasquimq.spark.session(), or let spark.redaction.regex match 'chasquimq.url'"
        )
    raise ConfigError(problem)


def _python_flags(pattern: str) -> str:
    """Java lets `(?i)` stand anywhere; Python only at the start."""
    return ("(?i)" if "(?i)" in pattern else "") + pattern.replace("(?i)", "")
