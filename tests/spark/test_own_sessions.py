"""What starts a Spark of its own: commands, and a session that nobody prepared."""

import asyncio
import importlib
import json
import os
import signal
import subprocess
import sys
from itertools import takewhile
from pathlib import Path

import pytest

from tests.support.listening import is_loopback, listening, processes_of_session
from tests.support.spark import DRIVER_MARKS, QUICK_JAVA, SMALL
from tests.support.story import some, work

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = [*DRIVER_MARKS, pytest.mark.usefixtures("java")]


CONF = [f"--conf={name}={value}" for name, value in SMALL.items()]


def test_a_stream_goes_on_until_all_its_processes_are_told_to_end_and_tells_what_it_did(
    server, queue, queue_name, tmp_path
):
    queue.pause()  # tells of no job, so all that is to do ends with bronze
    with subprocess.Popen(
        [sys.executable, "-m", "chasquimq", "pipeline", "stream", queue_name, "--every", "1 second",
         "--redis-url", server.url, "--json", *CONF],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
        start_new_session=True,
    ) as process:  # fmt: skip
        told = [process.stderr.readline() for _ in range(4)]
        # As a terminal does with Ctrl+C, and a supervisor: Java hears of it too.
        for number in (signal.SIGINT, signal.SIGTERM):
            os.killpg(process.pid, number)
        done, rest = process.communicate(timeout=60)
    assert told == [
        "chasqui: starting Spark, which takes some seconds\n",
        f"chasqui: taking in the events of {queue_name}, until Ctrl+C\n",
        "chasqui: reading events into bronze\n",
        "chasqui: 1 event, 0 buckets and 0 stretches recomputed\n",
    ], rest
    assert (process.returncode, rest) == (0, "")
    assert json.loads(done)["events"] == 1


TALKING = """
def handle(job):
    print("sent", job.data)
    return job.data
"""


def test_a_fleet_of_the_command_says_an_object_a_line_and_what_handlers_print(
    server, queue, queue_name, tmp_path
):
    """Of Spark and Java nothing, neither when they start nor when all are told to end."""
    (tmp_path / "talking.py").write_text(TALKING)
    queue.add("n", 21, job_id="a")
    with subprocess.Popen(
        [sys.executable, "-m", "chasquimq", "worker", "talking:handle", queue_name,
         "--engine", "spark", "--slots", "1", "--json", "--redis-url", server.url, *CONF],
        stderr=subprocess.PIPE, text=True, cwd=tmp_path, start_new_session=True,
    ) as process:  # fmt: skip
        told = list(takewhile("sent 21\n".__ne__, process.stderr))
        os.killpg(process.pid, signal.SIGTERM)
        told += process.communicate(timeout=60)[1].splitlines()
    messages = [json.loads(line).get("message", "") for line in told]
    assert process.returncode == 0
    assert messages[0] == "starting Spark, which takes some seconds"
    assert messages[-1] == "fleet spark has stopped"
    assert (queue.counts().waiting, queue.counts().active) == (0, 0)


def test_the_demo_ends_with_a_report_and_says_where_it_is(
    server, queue_name, tmp_path, monkeypatch
):
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", QUICK_JAVA)
    monkeypatch.syspath_prepend(EXAMPLES)
    report = importlib.import_module("demo_parts.report")
    asyncio.run(work(server.url, queue_name, some("well", 1)))
    page = tmp_path / "build" / "report.html"
    said = report.write_report(server.url, queue_name, page)
    assert said == f"The pipeline took in 3 events of this; its report is in {page}"
    assert page.read_text().endswith("</html>\n")


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
jobs = spark.read.format("chasquimq_jobs").option("redis_url", url).option("queue", queue)
print(jobs.load().count())
"""


def test_formats_are_found_by_name_wherever_the_package_is_installed(
    server, queue_name, monkeypatch
):
    """In a session of its own, where nobody registered anything, and Spark is as users have it."""
    monkeypatch.delenv("SPARK_HOME", raising=False)
    command = [sys.executable, "-c", UNREGISTERED, json.dumps(SMALL), server.url, queue_name]
    # Spark asks the Python that it finds, else the one that it is told of: here, this one.
    env = os.environ | {"PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=200, check=False, env=env
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "3"


def test_why_spark_does_not_start_is_said_in_a_line(server, queue, queue_name):
    queue.add("welcome", {})
    done = subprocess.run(
        [sys.executable, "-m", "chasquimq", "pipeline", "run", queue_name,
         "--redis-url", server.url, "--conf", "spark.master=nonsense"],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    began, reason = done.stderr.splitlines()
    assert began == "chasqui: starting Spark, which takes some seconds"
    assert reason.startswith("chasqui: Spark could not start: Master must either be yarn or start")


WITH_PAGES = """
import json, sys
from chasquimq.spark import session
spark = session("listening", json.loads(sys.argv[1]))
spark.sparkContext.parallelize([0], 1).map(lambda each: each).collect()
print(spark.sparkContext.uiWebUrl, flush=True)
sys.stdin.readline()
spark.stop()
"""


def test_a_local_spark_with_its_pages_listens_on_the_loopback_only(server, monkeypatch):
    """Java, the driver, and what forks the processes of tasks."""
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)  # which a session before may have set
    config = SMALL | {"spark.ui.enabled": "true", "spark.ui.port": "0"}
    with subprocess.Popen(
        [sys.executable, "-c", WITH_PAGES, json.dumps(config)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            pages = process.stdout.readline().strip()
            places = listening(*processes_of_session(process.pid))
        finally:
            process.communicate("end\n", timeout=60)
    assert int(pages.rpartition(":")[2]) in {port for _, port in places}
    assert len(places) > 2
    assert {address for address, _ in places if not is_loopback(address)} == set()
