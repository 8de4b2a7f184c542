"""Keeps the classes that Spark loads in an archive, from which the Javas of the tests start.

    python -m tests.support.spark_classes      make it if it is missing, and print where it is

A Java that finds its classes there takes 8 s of processor time from its start to the end of its
first few queries, where one that reads them from Spark's jars takes 13. Twenty of them start in a
run of the tests.
"""

import fcntl
import importlib.metadata
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

ROOT = Path(__file__).parents[2]

_SPARE_JAVA = (
    # Compiles little and collects simply: starts in half the time, on half the memory. The room
    # for compiled code would then be 48 MB, which is full after eight batches of the pipeline:
    # from there on Java threw away and compiled again what it needed, at twice the time a batch.
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m "
    # Of five batches of the pipeline, from the start of Java on, a twelfth of the processor time
    # went into looking up where its memory is; large pages need fewer of these looks.
    "-XX:+UseTransparentHugePages "
    # Of the processor time of a driver's first batch a tenth went into checking classes.
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote "
    # Hadoop runs `chmod` for each folder and file it makes, a hundred in a batch of the pipeline:
    # this starts it without a helper in between.
    "-Djdk.lang.Process.launchMechanism=VFORK"
)
# What a Java says of an archive that it cannot use would stand among what a program prints.
_QUIETLY = "-Xlog:disable"

# Of all that the tests do: queries, files, streams, functions of Python; then Java ends by itself.
_PROGRAM = """
import sys
from pyspark import SparkContext
from chasquimq.spark import session
from tests.support.spark import SMALL

folder, options = sys.argv[1:]
spark = session("classes", SMALL | {"spark.driver.extraJavaOptions": options})
counted = spark.range(10).selectExpr("id % 3 as k").groupBy("k").count()
counted.write.partitionBy("k").parquet(folder + "/counted")
spark.read.parquet(folder + "/counted").join(counted, "k", how="inner").collect()
spark.range(3).mapInArrow(lambda batches: batches, "id long").collect()
stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "1").load()
stream.writeStream.format("parquet").option("checkpointLocation", folder + "/checkpoint").trigger(
    once=True
).start(folder + "/streamed").awaitTermination()
spark.stop()
gateway = SparkContext._gateway
gateway.shutdown()
gateway.proc.stdin.close()
gateway.proc.wait()
"""
_LONGEST_SECS = 300
_DATED_S = 1_600_000_000


def options() -> str:
    """The options of a Java that starts quickly: from the archive, if there is one."""
    archive = archive_path()
    if archive is None or not archive.exists():
        return _SPARE_JAVA
    _date_jars()
    return f"{_SPARE_JAVA} {_QUIETLY} -XX:SharedArchiveFile={archive}"


def archive_path() -> Path | None:
    """Where the archive for this Java and this Spark is, or would be; None without a Java."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else "java"
    try:
        told = subprocess.run([java, "-version"], check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    build = re.search(r"\(build ([^),]+)", told.stderr)
    spark = importlib.metadata.version("pyspark")
    # In the environment whose jars it is of: from those of another path Java would not start.
    return Path(sys.prefix, f"spark-{spark}-java-{build[1] if build else 'unknown'}.jsa")


def make() -> Path | None:
    """The archive, made if it is missing; None where it cannot be."""
    archive = archive_path()
    if archive is None or archive.exists():
        return archive
    with archive.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if archive.exists():
            return archive
        _date_jars()
        sys.stderr.write("keeping the classes of Spark in an archive ...\n")
        with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
            made = Path(folder, "classes.jsa")
            dump = f"{_SPARE_JAVA} {_QUIETLY} -XX:ArchiveClassesAtExit={made}"
            subprocess.run([sys.executable, "-c", _PROGRAM, folder, dump], check=False, cwd=ROOT,
                           capture_output=True, timeout=_LONGEST_SECS)  # fmt: skip
            if not made.exists():
                return None
            made.rename(archive)
    return archive


def _date_jars() -> None:
    """Give Spark's jars one date, whenever they were installed: an archive is of dated jars."""
    for jar in Path(pyspark.__file__).parent.glob("jars/*.jar"):
        if jar.stat().st_mtime != _DATED_S:
            os.utime(jar, (_DATED_S, _DATED_S))


if __name__ == "__main__":
    sys.stdout.write(f"{make() or 'no archive of the classes of Spark'}\n")
