"""`inspect`, `counts`, `queues`, `watch`, `events`: what people look at."""

import re
import signal
import subprocess
import sys

import pytest

from chasquimq.wire.keys import QueueKeys
from tests.acceptance.cli.conftest import environment


def test_inspect_shows_the_depths_of_a_queue_that_no_worker_has_seen(done, queue_name):
    done("add", queue_name, "a")
    done("add", queue_name, "b", "--delay", "1h")

    shown = done("inspect", queue_name, COLUMNS="200")

    assert f"queue: {queue_name}" in shown.out
    assert "group: default" in shown.out
    rows = dict(re.findall(r"│ ([\w (]+\)?)\s*│ (.+?)\s*│", shown.out))
    assert {name.strip(): value for name, value in rows.items()} == {
        "stream depth": "1",
        "pending": "0 (group not created)",
        "DLQ depth": "0",
        "delayed depth": "1",
        "oldest delayed lag (ms)": "0",
        "repeatable count": "0",
    }
    assert done("inspect", queue_name, "--json").json == {
        "queue": queue_name, "group": "default", "stream": 1, "pending": 0, "group_exists": False,
        "dlq": 0, "delayed": 1, "oldest_delayed_lag_ms": 0, "repeatable": 0, "paused": False,
        "exists": True,
    }  # fmt: skip


def test_completed_jobs_are_shown_no_more_at_a_time_than_asked_for(done, server, queue_name):
    keys, ids = QueueKeys(queue_name), [f"job{n}" for n in range(30)]
    for job_id in ids:
        server.client().set(keys.result(job_id), b"\x01", ex=60)
    look = ("jobs", queue_name, "--state", "completed", "--limit", "14", "--json")

    first = done(*look).lines
    second = done(*look, "--cursor", first.pop()["next_cursor"]).lines
    third = done(*look, "--cursor", second.pop()["next_cursor"]).lines
    assert [len(page) for page in (first, second, third)] == [14, 14, 2]
    assert sorted(job["id"] for job in first + second + third) == sorted(ids)


@pytest.mark.parametrize("state", ["waiting", "delayed", "completed"])
def test_jobs_says_that_there_are_more_only_if_there_are(done, server, queue_name, state):
    for n in range(3):
        if state == "completed":
            server.client().set(QueueKeys(queue_name).result(f"job{n}"), b"\x01", ex=60)
        else:
            done("add", queue_name, "a", "--delay", "1h" if state == "delayed" else "0")
    look = ("jobs", queue_name, "--state", state, "--limit")

    assert done(*look, "3").err == ""
    assert len(done(*look, "3", "--json").lines) == 3
    assert "there are more: add --cursor " in done(*look, "2").err
    *_, last = done(*look, "2", "--json").lines
    assert len(done(*look, "2", "--json", "--cursor", last["next_cursor"]).lines) == 1


def test_counts_are_those_of_the_queue(done, queue_name):
    done("add", queue_name, "a")
    expected = {"queue": queue_name, "waiting": 1, "active": 0, "delayed": 0, "dead": 0,
                "paused": False, "exists": True}  # fmt: skip
    assert done("counts", queue_name, "--json").json == expected
    shown = done("counts", queue_name)
    assert re.search(r"waiting\s+│\s+1", shown.out)
    assert "paused" not in shown.out
    assert shown.err == ""


@pytest.mark.parametrize("command", ["counts", "inspect"])
def test_a_paused_queue_is_shown_to_be_paused(done, queue_name, command):
    done("pause", queue_name)
    assert done(command, queue_name, "--json").json["paused"] is True
    assert "yes: workers take no new jobs" in done(command, queue_name, COLUMNS="200").out


@pytest.mark.parametrize("command", ["counts", "inspect"])
def test_of_a_queue_without_a_key_it_is_said_that_nothing_is_known(done, queue_name, command):
    assert done(command, queue_name, "--json").json["exists"] is False
    assert f"nothing is known of {queue_name}: see  chasqui queues" in done(command, queue_name).err
    done("add", queue_name, "x")
    assert done(command, queue_name, "--json").json["exists"] is True
    assert done(command, queue_name).err == ""


UNKNOWN = [
    ["jobs", "QUEUE"], ["delayed", "ls", "QUEUE"], ["repeatable", "ls", "QUEUE"],
    ["repeatable", "rm", "QUEUE", "k"], ["dlq", "peek", "QUEUE"], ["dlq", "export", "QUEUE"],
    ["dlq", "replay", "QUEUE"], ["dlq", "discard", "QUEUE"],
    ["drain", "QUEUE", "--yes"], ["clean", "QUEUE", "--yes"], ["obliterate", "QUEUE", "--yes"],
    ["watch", "QUEUE", "--count", "1"],
]  # fmt: skip
UNKNOWN_AND_REFUSED = [
    ["job", "show", "QUEUE", "j"], ["job", "logs", "QUEUE", "j"], ["result", "QUEUE", "j"],
    ["dlq", "show", "QUEUE", "1-0"], ["repeatable", "next", "QUEUE", "k"],
    ["repeatable", "pause", "QUEUE", "k"], ["repeatable", "run", "QUEUE", "k"],
]  # fmt: skip


def said_of(queue_name):
    return f"chasqui: nothing is known of {queue_name}: see  chasqui queues  for those there are\n"


@pytest.mark.servers("valkey")
@pytest.mark.parametrize("words", UNKNOWN, ids=lambda words: " ".join(words[:2]))
def test_an_empty_answer_about_a_queue_that_nobody_knows_says_so(done, queue_name, words):
    words = [queue_name if word == "QUEUE" else word for word in words]
    assert done(*words).err == said_of(queue_name)
    assert done(*words, "--json").err == said_of(queue_name)
    done("add", queue_name, "x", "--delay", "1h")
    assert done(*words).err == ""


@pytest.mark.servers("valkey")
@pytest.mark.parametrize("words", UNKNOWN_AND_REFUSED, ids=lambda words: " ".join(words[:2]))
def test_what_is_not_found_in_a_queue_that_nobody_knows_is_told_in_one_line(
    chasqui, done, queue_name, words
):
    words = [queue_name if word == "QUEUE" else word for word in words]
    refused = chasqui(*words)
    assert (refused.code, refused.err.split()) == (1, said_of(queue_name).split())
    done("add", queue_name, "x", "--delay", "1h")
    refused = chasqui(*words)
    assert refused.code == 1
    assert "nothing is known" not in refused.err


@pytest.mark.servers("valkey")
@pytest.mark.parametrize(
    "words", [["cancel", "--yes"], ["promote"], ["reschedule", "--delay", "1h"]], ids=lambda w: w[0]
)
def test_a_delayed_job_of_a_queue_that_nobody_knows_is_told_so(chasqui, done, queue_name, words):
    verb, *more = words
    refused = chasqui("delayed", verb, queue_name, "j", *more)
    assert refused.code == 1
    assert refused.err.startswith(said_of(queue_name))
    done("add", queue_name, "x", "--delay", "1h")
    assert "nothing is known" not in chasqui("delayed", verb, queue_name, "j", *more).err


@pytest.mark.servers("valkey")
def test_who_waits_for_events_of_a_queue_that_nobody_knows_is_told_so(server, done, queue_name):
    with subprocess.Popen(
        [sys.executable, "-m", "chasquimq", "events", queue_name, "--from", "0", "--count", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(CHASQUI_REDIS_URL=server.url),
    ) as process:
        assert process.stderr.readline() == said_of(queue_name)
        done("add", queue_name, "x")
        out, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, "")
    assert " waiting " in out


@pytest.mark.servers("valkey")
def test_a_remedy_can_be_pasted_whatever_the_queue_is_called(done, queue_name):
    paused = done("pause", f"{queue_name} b")
    assert paused.err.endswith(f"will wait until  chasqui resume '{queue_name} b'\n")
    done("resume", f"{queue_name} b")


@pytest.mark.servers("valkey")
def test_a_pause_before_the_first_job_is_carried_out_and_noted(done, queue_name):
    paused = done("pause", queue_name)
    assert paused.out == f"paused {queue_name}\n"
    assert paused.err == (
        f"chasqui: nothing is known of {queue_name} yet: its jobs will wait until  "
        f"chasqui resume {queue_name}\n"
    )
    assert done("pause", queue_name).err == ""
    assert done("resume", queue_name).err == ""


@pytest.mark.servers("valkey")
def test_a_resume_of_a_queue_that_nobody_knows_says_so(done, queue_name):
    assert done("resume", queue_name).err == said_of(queue_name)


def test_queues_are_found_on_the_server(done, queue_name):
    done("add", queue_name, "a")
    done("add", f"{queue_name}-other", "b", "--delay", "1h")

    found = {line["queue"]: line for line in done("queues", "--limit", "1000", "--json").lines}

    assert found[queue_name] == {
        "queue": queue_name, "waiting": 1, "active": 0, "delayed": 0, "dead": 0, "paused": False,
        "problem": None,
    }  # fmt: skip
    assert found[f"{queue_name}-other"]["delayed"] == 1
    assert queue_name[:20] in done("queues", "--limit", "1000").out


def test_a_queue_that_the_server_does_not_tell_of_hides_no_other(done, queue_name, server):
    done("add", queue_name, "a")
    server.client().set(QueueKeys(f"{queue_name}-odd").dlq, "no stream", ex=60)

    found = {line["queue"]: line for line in done("queues", "--limit", "1000", "--json").lines}

    assert found[queue_name]["waiting"] == 1
    odd = found[f"{queue_name}-odd"]
    assert odd["problem"].startswith("WRONGTYPE Operation against a key")
    assert {odd[each] for each in ("waiting", "active", "delayed", "dead", "paused")} == {None}
    assert "WRONGTYPE" in done("queues", "--limit", "1000", COLUMNS="200").out


def test_watch_tells_how_much_changed_since_the_look_before(done, queue_name):
    done("add", queue_name, "a")
    first, second = done("watch", queue_name, "--count", "2", "--interval-ms", "20", "--json").lines

    assert (first["stream"], first["stream_delta"]) == (1, None)
    assert (second["stream"], second["stream_delta"], second["dlq_delta"]) == (1, 0, 0)
    assert second["at_ms"] > first["at_ms"]


def test_watch_prints_every_look_where_there_is_no_terminal(done, queue_name):
    shown = done("watch", queue_name, "--count", "2", "--interval-ms", "20", COLUMNS="200").out
    headers = re.findall(
        r"^chasqui watch (\S+)  refresh=20ms  \d{4}-\S+Z  \(Ctrl\+C to exit\)$", shown, re.MULTILINE
    )
    assert headers == [queue_name] * 2
    assert "\x1b" not in shown


def test_events_are_told_a_line_each(done, queue_name):
    done("add", queue_name, "welcome", "--job-id", "j1")
    done("add", queue_name, "later", "--delay", "1h", "--job-id", "j2")

    shown = done("events", queue_name, "--from", "0", "--count", "2").out.splitlines()

    iso = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    assert re.fullmatch(rf"{iso} \d+-\d+ waiting id=j1 name=welcome", shown[0])
    assert re.fullmatch(rf"{iso} \d+-\d+ delayed id=j2 name=later delay_ms=3600000", shown[1])


def test_events_can_be_chosen_by_kind_and_job(done, queue_name):
    for job_id in ("j1", "j2"):
        done("add", queue_name, "a", "--job-id", job_id)
    told = done("events", queue_name, "--from", "0", "--job", "j2", "--event", "waiting",
                "--count", "1", "--json").json  # fmt: skip
    assert (told["event"], told["job_id"], told["name"]) == ("waiting", "j2", "a")


@pytest.mark.parametrize("command", ["watch", "events"])
def test_ctrl_c_ends_what_has_no_end_of_its_own_quietly(server, done, queue_name, command):
    done("add", queue_name, "a")
    more = ("--from", "0") if command == "events" else ()
    with subprocess.Popen(
        [sys.executable, "-m", "chasquimq", command, queue_name, *more, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(CHASQUI_REDIS_URL=server.url),
    ) as process:
        assert process.stdout.readline().startswith("{")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, "")


@pytest.mark.parametrize(
    ("command", "more"),
    [("events", ["--from", "0"]), ("watch", ["--interval-ms", "3600000"])],
)
def test_a_reader_that_goes_away_ends_it_though_nothing_happens_any_more(
    server, done, queue_name, command, more
):
    done("add", queue_name, "a")
    with subprocess.Popen(
        [sys.executable, "-m", "chasquimq", command, queue_name, *more, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(CHASQUI_REDIS_URL=server.url),
    ) as process:
        assert process.stdout.readline().startswith("{")
        process.stdout.close()
        err = process.stderr.read()
        process.wait(timeout=20)
    assert (process.returncode, err) == (1, "")


def test_a_reader_that_goes_away_ends_it_quietly(server, done, queue_name):
    done("add", queue_name, "a", "--bulk", "-", stdin="1\n" * 2_000)
    with subprocess.Popen(
        [sys.executable, "-m", "chasquimq", "events", queue_name, "--from", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(CHASQUI_REDIS_URL=server.url),
    ) as process:
        process.stdout.readline()
        process.stdout.close()
        err = process.stderr.read()
        process.wait(timeout=20)
    assert (process.returncode, err) == (1, "")
