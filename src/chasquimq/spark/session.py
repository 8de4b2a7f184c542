"""Starts a Spark session that knows our formats, on whatever Java there is."""

import os
import re
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from chasquimq.spark.java import find_java
from chasquimq.spark.registry import register
from chasquimq.spark.shield import shielded
from chasquimq.spark.source import URL_SETTING

# Spark's own default, and our setting, whose URL may hold a password.
_SECRETS = r"(?i)secret|password|token|access[.]?key|chasquimq[.]url"
_LOOPBACK = "127.0.0.1"
_LOCAL = {"spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}
# Listing folders takes a task for each of them, up to 10,000, where one machine needs a few.
_LISTING = {"spark.sql.sources.parallelPartitionDiscovery.parallelism": "8"}
_DAEMON = {"spark.python.daemon.module": "chasquimq.spark.daemon"}
# Else Spark warns, with a page of Java each, wherever a table has no folder yet.
_QUIET = {"spark.log.level": "ERROR"}


def session(app_name: str = "chasquimq", config: Mapping[str, str] | None = None) -> SparkSession:
    """A Spark session with our formats registered; the running one, if there is one.

    The master is `local[*]` unless `config` or the environment (`MASTER`, `SPARK_REMOTE`,
    `PYSPARK_SUBMIT_ARGS`) names another. All in `config` goes to Spark as it is, but for
    `spark.chasquimq.url`, which may hold a password: it is set when Java has started, so it is not
    on Java's command line. Raises `ConfigError` if there is no Java.

    In the environment of this process, what Spark's own start reads, it sets what is not set:
    `JAVA_HOME` if Spark would find no Java and, for a local master or a local Spark Connect,
    `PYSPARK_PYTHON` (tasks run on this very Python) and `SPARK_LOCAL_IP` (Spark listens on the
    loopback only). Tasks that run on this very Python are forked from `chasquimq.spark.daemon`, and
    a local Spark logs errors only (`spark.log.level`). A Java that is started here ignores SIGTERM,
    which is for this process: with it Java ends too.
    """
    settings = dict(config or {})
    url = settings.pop(URL_SETTING, None)
    remote = settings.get("spark.remote") or os.environ.get("SPARK_REMOTE")
    # A server elsewhere has settings, a Java and a Python of its own; a local one starts here.
    if remote is None or is_local(remote):
        settings = _defaults(settings, remote) | settings
        for name, value in _environment(remote or settings.get("spark.master")).items():
            os.environ.setdefault(name, value)
    builder = SparkSession.builder.appName(app_name)
    for name, value in settings.items():
        builder = builder.config(name, value)
    with warnings.catch_warnings(), shielded():
        # A local Spark Connect starts with them, then tries to set them again and says it cannot.
        warnings.filterwarnings("ignore", r"Failed to set spark\.", UserWarning)
        spark = builder.getOrCreate()
    if url is not None:
        spark.conf.set(URL_SETTING, url)
    register(spark)
    return spark


def running() -> SparkSession | None:
    """The session that this thread already has, None if it has none."""
    return SparkSession.getActiveSession()


def sees_files_here(config: Mapping[str, str]) -> bool:
    """Whether a session with this `config` takes a path without a scheme for one of this machine.

    False also where nobody can tell before it has started.
    """
    if "HADOOP_CONF_DIR" in os.environ or "spark.hadoop.fs.defaultFS" in config:
        return False
    home = os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent
    settings = Path(os.environ.get("SPARK_CONF_DIR") or Path(home, "conf"))
    if any((settings / name).exists() for name in ("spark-defaults.conf", "core-site.xml")):
        return False
    remote = config.get("spark.remote") or os.environ.get("SPARK_REMOTE")
    return is_local(remote or _defaults(config, None).get("spark.master"))


def _defaults(settings: Mapping[str, str], remote: str | None) -> dict[str, str]:
    """What is set unless the caller does."""
    if remote is not None:
        # Not the redaction: what it hides no client of Spark Connect can read, `register` neither.
        return _LOCAL | {"spark.connect.grpc.binding.address": _LOOPBACK}
    defaults = {"spark.redaction.regex": _SECRETS}
    master = settings.get("spark.master") or os.environ.get("MASTER")
    if master is None and not re.search(r"--master\b", os.environ.get("PYSPARK_SUBMIT_ARGS", "")):
        master = "local[*]"
    if master is not None:
        defaults["spark.master"] = master
    if not is_local(master):
        return defaults
    # Another Python than this one may not have us installed.
    is_this = os.environ.get("PYSPARK_PYTHON", sys.executable) == sys.executable
    return defaults | _LOCAL | _LISTING | _QUIET | (_DAEMON if is_this else {})


def _environment(master: str | None) -> dict[str, str]:
    java_home = find_java()
    found = {} if java_home is None else {"JAVA_HOME": java_home}
    if is_local(master):
        # Else tasks run on whatever `python3` the path has, where we may not be installed.
        found |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": _LOOPBACK}
    return found


def is_local(master: str | None) -> bool:
    """Whether a master runs on this machine, with executors of its own or without."""
    return master is not None and master.startswith("local")
