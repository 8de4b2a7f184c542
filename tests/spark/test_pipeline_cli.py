"""`chasqui pipeline` in a process of its own, as people run it."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.support.spark import SMALL, SPARK_MARKS, why_no_java
from tests.support.story import some

pytestmark = SPARK_MARKS

CONF = [f"--conf={name}={value}" for name, value in SMALL.items()]


@pytest.fixture
def chasqui(server, tmp_path):
    """`chasqui(*arguments)`: run `chasqui pipeline`."""
    if (reason := why_no_java()) is not None:
        pytest.skip(reason)

    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "chasquimq", "pipeline", *arguments],
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
            cwd=tmp_path,
            env=os.environ | {"CHASQUI_REDIS_URL": server.url, "COLUMNS": "160"},
        )

    return run


def test_events_become_tables_and_a_report(chasqui, queue, queue_name, tmp_path):
    queue.add("welcome", {})
    taken = chasqui("run", queue_name, "--json", *CONF)
    assert (taken.returncode, json.loads(taken.stdout)) == (
        0, {"batches": 1, "events": 1, "lost": 0, "buckets": 1, "hours": 1},
    ), taken.stderr  # fmt: skip
    assert taken.stderr == "chasqui: 1 events, 1 buckets and 1 hours recomputed\n"
    told = chasqui("report", "--out", "page.html", *CONF)
    assert told.stdout.endswith(f"the report is in {tmp_path / 'page.html'}\n"), told.stderr
    assert f"{queue_name[:18]}… / welcome" in told.stdout
    assert "welcome" in (tmp_path / "page.html").read_text()


def test_a_stream_goes_on_until_ctrl_c_and_tells_what_it_did(server, queue, queue_name, tmp_path):
    if (reason := why_no_java()) is not None:
        pytest.skip(reason)
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


def test_dead_letters_are_shown_by_cause_and_a_chosen_group_is_replayed(
    chasqui, play, queue, queue_name
):
    play([*some("broken", 3), *some("ok", 1)])
    seen = chasqui("triage", queue_name, "--json", *CONF)
    assert (seen.returncode, seen.stderr) == (0, "")
    group = json.loads(seen.stdout)
    assert (group["count"], group["names"], group["message"]) == (3, ["broken"], "no parser for #")
    choice = ["--fingerprint", group["fingerprint"], "--replay"]
    dry = chasqui("triage", queue_name, *choice, "--dry-run", *CONF)
    assert dry.stdout == "would replay 3 dead letters\n", dry.stderr
    assert queue.counts().dead == 3
    done = chasqui("triage", queue_name, *choice, "--yes", "--json", *CONF)
    assert json.loads(done.stdout) == {"found": 3, "replayed": 3, "dry_run": False}
    assert (queue.counts().dead, queue.counts().waiting) == (0, 3)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["triage", "q", "--replay"], "--replay needs --fingerprint or --where"),
        (["triage", "q", "--replay", "--discard"], "--replay and --discard are both given"),
        (["run", "q", "--conf", "nonsense"], "--conf is 'nonsense': use KEY=VALUE"),
    ],
)
def test_a_mistake_is_told_before_spark_is_started(chasqui, arguments, problem):
    done = chasqui(*arguments)
    assert done.returncode == 2
    assert problem in done.stderr
