"""What tests of Spark share: their marks, and the settings of a small session."""

import os
import shutil
from pathlib import Path

import pyspark
import pytest

from chasquimq.spark.java import OLDEST_JAVA, java_version
from tests.support import spark_classes


def _marks(group: str) -> list[pytest.MarkDecorator]:
    return [
        pytest.mark.spark,
        # One process runs all of a group, one after the other.
        pytest.mark.xdist_group(group),
        # What differs between servers is tested below Spark, on all of them.
        pytest.mark.servers("valkey"),
        pytest.mark.timeout(600),
    ]


SPARK_MARKS = _marks("spark")
"""Of tests in the session that they all share."""

DRIVER_MARKS = _marks("spark-drivers")
"""Of tests that start drivers of their own, and do not use the shared session; beside the others,
since a driver that starts, or waits to be killed, leaves a core idle."""

QUICK_JAVA = spark_classes.options()
"""Of a Java that starts quickly."""

SMALL = {
    # Two tasks at a time, each tried up to twice.
    "spark.master": "local[2,2]",
    # Of which what is young has 400: with half of it a twentieth of the time went into collecting.
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": f"{QUICK_JAVA} -Xmn400m",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.pollingDelay": "20ms",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.log.level": "OFF",
    # For a handful of rows most of the time would go into compiling a plan, into planning anew
    # after each stage, and into noting where a column was made.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Without a file of checksums beside each file, which is made, and given its mode, like any.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
}


SPARKS_OWN = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.shuffle.partitions": "200",
}
"""What users have unless they set something else, and a small batch of the pipeline has not."""


def home_without_zip(folder: Path) -> Path:
    """A home for Spark in which its own Python is not zipped, so that it is taken from the package.

    A zip holds nothing compiled: each process that Spark starts takes 1.0 s longer to import it,
    and every streaming query starts some. Formats are then not found by name: Spark looks for them
    only where the zip is.
    """
    for each in Path(pyspark.__file__).parent.iterdir():
        if each.name != "python":
            (folder / each.name).symlink_to(each)
    return folder


def why_no_java() -> str | None:
    """Why Spark cannot start here, None if it can."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    if java is None:
        return f"Spark needs Java {OLDEST_JAVA} or newer, and there is none"
    version = java_version(java)
    if version is None or version < OLDEST_JAVA:
        return f"Spark needs Java {OLDEST_JAVA} or newer, and {java} is {version}"
    return None


EXAMPLES = {
    "backfill.py": [
        r"1 of 4 rows cannot be jobs, so nothing was added: column 'runs' is 'many'.*row 3 of",
        r"two are added, and the queue is full\n",
        r"2 before and 2 now, of 4\n",
        r"once more: 0\n",
        r"waiting: 4\n",
    ],
    "pipeline.py": [
        r"41 events; again: 0",
        r"\{'name': 'ship', 'completed': 8, 'dead': 4, 'slo_burn': [\d.]+\}",
        r"a report, as a page of \d+ kB",
        r"4 dead letters: order # has no address",
        r"replayed: 4",
    ],
    "spark_events.py": [
        r"rows in the lake: 100\n",
        r"rows in the lake: 101\n",
        r"delayed reminder 1\n",
        r"waiting welcome 100\n",
    ],
    "spark_sink.py": [
        r'bill 3 \{"who": "ada", "due": 3\.5\}',
        r'bill 5 \{"who": "eve", "due": 0\.99\}',
        r"billed, each once: \['ada', 'bob', 'eve'\]",
    ],
    "spark_worker.py": [
        r"lengths: 5 5\n",
        r"given up: \[\"ValueError: 'a' is no word\"\]",
        r"collected: 3\n",
        r"\['chaski', 'quipu', 'relay'\]",
    ],
}
"""What each example that needs Spark must print, in this order, other lines in between."""
