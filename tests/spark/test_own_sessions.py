"""What starts a Spark of its own: commands, and a session that nobody prepared."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.support.spark import DRIVER_MARKS, SMALL

pytestmark = [*DRIVER_MARKS, pytest.mark.usefixtures("java")]


@pytest.fixture(autouse=True)
def as_users_have_it(monkeypatch):
    """Without what makes the other tests start quicker."""
    monkeypatch.delenv("SPARK_HOME", raising=False)


CONF = [f"--conf={name}={value}" for name, value in SMALL.items()]


def test_a_stream_goes_on_until_ctrl_c_and_tells_what_it_did(server, queue, queue_name, tmp_path):
    queue.add("welcome", {})
    with subprocess.Popen(
        [sys.executable, "-m", "chasquimq", "pipeline", "stream", queue_name, "--every", "1 second",
         "--redis-url", server.url, "--json", *CONF],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
    ) as process:  # fmt: skip
        told = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        done, rest = process.communicate(timeout=60)
    assert told == "chasqui: 1 events, 1 buckets and 1 hours recomputed\n", rest
    assert (process.returncode, rest) == (0, "")
    assert json.loads(done)["events"] == 1


UNREGISTERED = """
import json, sys
from pyspark.sql import SparkSession
builder = SparkSession.builder
for name, value in json.loads(sys.argv[1]).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
url, queue = sys.argv[2:]
jobs = spark.range(3).write.format("chasquimq").option("redis_url", url).option("queue", queue)
jobs.mode("append").save()
frames = {}
for name in ["events", "jobs", "delayed", "dlq", "schedules", "results"]:
    frame = spark.read.format("chasquimq_" + name).option("redis_url", url).option("queue", queue)
    frames[name] = frame.load()
print(json.dumps([frames["jobs"].count(), {name: frames[name].columns[1] for name in frames}]))
"""


def test_formats_are_found_by_name_wherever_the_package_is_installed(server, queue_name):
    """In a session of its own, where nobody registered anything."""
    command = [sys.executable, "-c", UNREGISTERED, json.dumps(SMALL), server.url, queue_name]
    # Spark asks the Python that it finds, else the one that it is told of: here, this one.
    env = os.environ | {"PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=200, check=False, env=env
    )
    assert done.returncode == 0, done.stderr
    count, second_columns = json.loads(done.stdout.splitlines()[-1])
    assert count == 3
    assert second_columns == {
        "events": "entry_id", "jobs": "entry_id", "delayed": "job_id", "dlq": "dlq_id",
        "schedules": "key", "results": "job_id",
    }  # fmt: skip
