"""Every file in examples/ is run as its reader would run it, and says what it is meant to say."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.spark import EXAMPLES as SPARK_EXAMPLES

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
MAX_LINES = 60

# What each example must print, in this order, other lines in between.
SAYS = {
    "app_registry.py": [
        r"prices are loaded",
        r"two apples: 6",
        r"a pear, later: 4",
        r"called directly: 3",
        r"no task is named 'totl'; this app has log-line, total: .* \[CMQ-013\]",
        r"prices are gone",
    ],
    "bulk.py": [
        r"10000 jobs added, [\d,]+ a second",
        r"not added: \[False, False, False, False, True\]",
        r"all run, ",
    ],
    "delayed_and_cancel.py": [
        r"Counts\(waiting=0, active=0, delayed=3, dead=0\)",
        r"dentist is delayed",
        r"cancelled: True",
        r"cancelled again: False",
        r"dentist is unknown",
        r"tea after (?:[3-9]|\d\d)\d\d ms",
        r"call after (?:[4-9]|\d\d)\d\d ms",
        r"too late to cancel: False",
    ],
    "engine_api.py": [
        r"\{'items': 2\} in run 1",
        r"\{'items': 2\} in run 2",
        r"""results: \[b'\{"total": 5\}', b'\{"total": 10\}', b'\{"total": 15\}'\]""",
        r"dead: \[\('unrecoverable', 'ValueError: an empty order'\)\]",
    ],
    "events.py": [r"delayed .*'delay_ms': 200", r"completed .*'attempt': 2"],
    "graceful_stop.py": [
        r"first begins, run 1",
        r"first worker stopped; Counts\(waiting=2, active=0, delayed=0, dead=0\)",
        r"second begins, run 1",
        r"third begins, run 1",
        r"finished: \['first', 'second', 'third'\]",
    ],
    "manage_queue.py": [
        r"paused: True",
        r"counts: \{'waiting': 3, 'active': 0, 'delayed': 1, 'failed': 0\}",
        r"page: \['a', 'b'\]",
        r"page: \['c'\]",
        r"removed: True",
        r"updated: True",
        r"rescheduled: True",
        r"promoted: True",
        r"resumed: True",
        r"ran: \['a 1', 'c 2', 'later 1'\]",
        r"would drain: 1000",
        r"drained: 1000",
        r"left: 0",
    ],
    "metrics.py": [
        r'chasquimq_jobs_completed_total\{name="nap",queue="metrics"\} 10\.0',
        r'chasquimq_queue_depth\{queue="metrics",state="waiting"\} 0\.0',
        r'"status": "ready"',
        r"the slowest took (?:9|\d\d)\d ms",
    ],
    "progress_and_logs.py": [
        # The handler and who follows it are two: either may be the first to say so.
        r"(?:the log has 4 lines.*?book: 100 %|book: 100 %.*?the log has 4 lines)",
        r"count: 50 %",
    ],
    "quickstart.py": [r"Welcome, Ada!"],
    "rate_limit.py": [
        r"a burst of [5-9], all 15 after [01]\.[0-9] s",
        r"try again in 200 ms",
        r"run 1 again: no attempt was spent",
    ],
    "recurring.py": [
        r"tick::every:200: Every 200 ms",
        r"fired tick::every:200@\d{13}",
        r"removed: True",
    ],
    "results.py": [
        r"as they come: \[None, 0\.25, 0\.5, 0\.75\]",
        r"later, in one go: \[None, 0\.25, 0\.5, 0\.75\]",
        r"failed: job \w+ failed \(unrecoverable\): .*division by zero \[CMQ-012\]",
        r"a value: ok, 0\.25",
        r"None was returned: ok, None",
        r"dead-lettered: failed, None, '.*division by zero'",
        r"still delayed: pending",
        r"never heard of: unknown",
    ],
    "retries_and_dlq.py": [
        r"run 1 of charge",
        r"run 2 of charge",
        r"run 3 of charge",
        r"retries_exhausted: .*the gateway is down",
        r"dead letter: unrecoverable after 1 runs",
        r"dead letter: retries_exhausted after 3 runs",
        r"replayed: 1",
        r"charged 20 in run 1",
        r"discarded: 1",
    ],
    "sync_from_flask_style.py": [
        r"\('on its way', 202\)",
        r"\('already on its way', 202\)",
        r"sent to ada@example\.com",
    ],
    "sync_handler.py": [
        r"0\.png by job-images",
        r"7\.png by job-images",
        r"1\.6 s of work in",
    ],
    "tasks.py": [
        r"added ship \{'item': 'apple', 'count': 2\}",
        r"added thank-you",
        r"added ship \{'item': 'unicorn'\}",
    ],
    "unique_jobs.py": [
        r"deduplicated: \[False, True\]",
        r"deduplicated after it ran: True",
        r"runs: \['invoice-2026-05'\]",
    ],
}
NAMES = sorted(path.name for path in EXAMPLES.glob("*.py"))


def environment(**changes: str) -> dict[str, str]:
    """Nothing of this machine decides: no server but the embedded one, no width of a terminal."""
    kept = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
    return {**kept, "CHASQUI_REDIS_URL": "embedded://", **changes}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        cwd=ROOT,
        env=environment(),
    )


def test_every_example_says_what_it_is_meant_to_say_and_none_is_left_out():
    assert sorted([*SAYS, *SPARK_EXAMPLES, "demo.py"]) == NAMES


@pytest.mark.parametrize("name", sorted(SAYS))
def test_an_example_runs_ends_by_itself_and_says_what_it_shows(name):
    done = run(f"examples/{name}")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(".*?".join(SAYS[name]), done.stdout, re.DOTALL), done.stdout


@pytest.mark.parametrize("name", sorted(SAYS))
def test_an_example_is_short(name):
    assert len((EXAMPLES / name).read_text().splitlines()) <= MAX_LINES


SUMMARY = re.compile(r"^ *(\w+) +(\d+) +(\d+) +(\d+) +(\d+) +(\d+) +(\d+) +\d+ ms *$", re.MULTILINE)


def test_the_demo_without_a_terminal_prints_lines_and_a_table_that_adds_up():
    done = run("examples/demo.py", "--no-report")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert re.search(r"\d s  waiting +\d+  active +\d+  delayed +\d+  completed +\d+", done.stdout)
    rows = {row[0]: tuple(map(int, row[1:])) for row in SUMMARY.findall(done.stdout)}
    assert set(rows) == {"email", "reminder", "payment", "import", "report", "all"}
    for added, runs, retries, completed, dead, replayed in rows.values():
        assert completed == added > 0
        assert runs == added + retries + replayed
        assert dead == replayed
    assert rows["payment"][2] > 0
    assert rows["import"][4] > 0
    everything = tuple(sum(row[i] for kind, row in rows.items() if kind != "all") for i in range(6))
    assert rows["all"] == everything


def test_the_demo_on_a_terminal_draws_a_live_display():
    shown, screen = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "examples/demo.py", "--no-report"],
        cwd=ROOT,
        env=environment(TERM="xterm-256color", COLUMNS="80", LINES="30"),
        stdin=subprocess.DEVNULL,
        stdout=screen,
        stderr=screen,
    ) as demo:
        os.close(screen)
        text = b"".join(iter(lambda: read(shown), b"")).decode()
    os.close(shown)
    assert demo.returncode == 0, text
    assert text.count("ChasquiMQ, embedded server") > 20
    assert "What happened" in text


def read(descriptor: int) -> bytes:
    """The next piece of what a terminal shows; nothing once the program has ended."""
    try:
        return os.read(descriptor, 65_536)
    except OSError:
        return b""


LOST_EVENT = """
import asyncio
from chasquimq import Counts, QueueEvent
from demo_parts import summary
from demo_parts.ledger import Ledger
from demo_parts.story import Story

async def main():
    ledger = Ledger()
    story = Story(None, ledger)
    story.added["email"] = story.runs["email"] = 1
    ledger.take(QueueEvent("waiting", "1", "email", {"ts": 1}))
    ledger.take(QueueEvent("active", "1", "email", {"ts": 2, "attempt": 1}))
    for each in summary.discrepancies(ledger, story, Counts(0, 1, 0, 0)):
        print(each)

asyncio.run(main())
"""


def test_the_demo_names_each_number_that_does_not_add_up():
    done = subprocess.run(
        [sys.executable, "-c", LOST_EVENT],
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
        cwd=EXAMPLES,
    )
    assert done.stdout.splitlines() == [
        "email: completed 0, expected 1",
        "the queue is not empty: Counts(waiting=0, active=1, delayed=0, dead=0)",
        "the demo was to show retries, and none happened",
        "the demo was to show dead letters, and none happened",
    ]
