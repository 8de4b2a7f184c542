"""`job`, `jobs`, `delayed`, `pause`, `resume`, `drain`, `clean`, `obliterate`."""

import asyncio
import os
import pty
import subprocess
import sys

import pytest

from chasquimq import Queue, RetryConfig, Worker
from chasquimq.wire.keys import QueueKeys
from tests.acceptance.cli.conftest import environment
from tests.acceptance.cli.test_dead_letters import bury
from tests.support.eventually import eventually


def waiting(done, queue_name):
    return done("counts", queue_name, "--json").json["waiting"]


def test_a_waiting_job_is_shown_whole(done, queue_name):
    done("add", queue_name, "welcome", '{"to": "ada"}', "--job-id", "j1", "--attempts", "3")
    shown = done("job", "show", queue_name, "j1")
    for text in ("job j1", "welcome", "waiting", "0 of 3", '"to": "ada"', "Z ("):
        assert text in shown.out
    found = done("job", "show", queue_name, "j1", "--json").json
    assert (found["state"], found["data"], found["max_attempts"]) == ("waiting", {"to": "ada"}, 3)
    assert found["outcome"] == "pending"


def test_a_delayed_job_says_when_it_is_due(done, queue_name):
    done("add", queue_name, "x", "--job-id", "j1", "--delay", "90m")
    found = done("job", "show", queue_name, "j1", "--json").json
    minutes = (found["due_ms"] - found["created_at_ms"]) // 60_000
    assert (found["state"], minutes) == ("delayed", 90)


async def test_a_job_that_will_be_tried_again_shows_why_it_failed_last(done, server, queue_name):
    done("add", queue_name, "n", "--job-id", "j1", "--backoff", "1h", "--attempts", "3")
    done("add", queue_name, "n", "--job-id", "j2", "--delay", "1h")

    async def fail(job):
        message = f"no \x1b[31m address in run {job.attempt}"
        raise ValueError(message)

    patient = RetryConfig(max_backoff_ms=3_600_000)
    worker = Worker(queue_name, fail, redis_url=server.url, handle_signals=False, retry=patient)
    running = asyncio.create_task(worker.run())
    async with Queue(queue_name, redis_url=server.url) as queue:
        for run in (1, 2):
            await eventually(lambda run=run: has_had(queue, run))
            told = done("job", "show", queue_name, "j1", "--json").json
            assert (told["state"], told["attempts"], told["error"]) == ("delayed", run, None)
            assert told["last_error"] == f"no \x1b[31m address in run {run}"
            shown = done("job", "show", queue_name, "j1").out
            assert f"last error  no \\x1b[31m address in run {run}" in shown
            if run == 1:
                await queue.promote_job("j1")
    await worker.close()
    await running
    assert done("job", "show", queue_name, "j2", "--json").json["last_error"] is None
    server.client().delete(QueueKeys(queue_name).events)
    assert done("job", "show", queue_name, "j1", "--json").json["last_error"] is None


async def has_had(queue, runs):
    job = await queue.get_job("j1")
    return job is not None and job.attempt == runs and await job.is_delayed()


async def test_a_dead_job_shows_its_traceback_and_is_sent_round_again(
    chasqui, done, server, queue_name
):
    await bury(done, server, queue_name, "bad", "good")
    dead = done("job", "show", queue_name, "j1", "--json").json
    assert (dead["state"], dead["reason"], dead["attempts"]) == ("failed", "unrecoverable", 1)
    assert "raise UnrecoverableError" in dead["traceback"]
    assert "raise UnrecoverableError" in done("job", "show", queue_name, "j1").out
    ended = done("job", "show", queue_name, "j2", "--json").json
    assert (ended["state"], ended["result"]) == ("completed", {"did": {"n": 2}})

    assert done("job", "retry", queue_name, "j1").out == "sent round again j1\n"
    assert waiting(done, queue_name) == 1
    assert chasqui("job", "retry", queue_name, "j1").code == 1


@pytest.mark.parametrize("verb", ["show", "logs", "remove", "retry"])
def test_an_unknown_job_is_exit_code_one(chasqui, done, queue_name, verb):
    done("add", queue_name, "x")
    answer = chasqui("job", verb, queue_name, "nobody", *(["--yes"] if verb == "remove" else []))
    assert answer.code == 1
    assert "nobody" in answer.err
    assert len(answer.err.splitlines()) == 1


def test_a_waiting_job_is_removed(done, queue_name):
    done("add", queue_name, "x", "--job-id", "j1")
    assert done("job", "remove", queue_name, "j1", "--yes", "--json").json == {
        "id": "j1",
        "done": True,
    }
    assert waiting(done, queue_name) == 0


def test_the_lines_a_job_logged_are_printed(done, server, queue_name):
    key = f"{{chasqui:{queue_name}}}:log:j1"
    for text in ("one", "two", "three \x1b[0m"):
        server.client().xadd(key, {"line": text})
    server.client().expire(key, 60)
    assert done("job", "logs", queue_name, "j1").out == "one\ntwo\nthree \\x1b[0m\n"
    last = done("job", "logs", queue_name, "j1", "--limit", "1", "--json").json
    assert (last["count"], last["lines"]) == (3, ["three \x1b[0m"])
    done("add", queue_name, "x", "--job-id", "j2")
    assert "has logged nothing" in done("job", "logs", queue_name, "j2").err


def test_jobs_are_listed_a_page_at_a_time(done, queue_name):
    for number in range(3):
        done("add", queue_name, "x", str(number), "--job-id", f"j{number}")
    *page, more = done("jobs", queue_name, "--limit", "2", "--json").lines
    rest = done("jobs", queue_name, "--limit", "2", "--cursor", more["next_cursor"], "--json").lines
    assert [job["id"] for job in page + rest] == ["j0", "j1", "j2"]
    shown = done("jobs", queue_name, "--limit", "2")
    assert "j0" in shown.out
    assert f"--cursor {more['next_cursor']}" in shown.err
    assert "(none)" in done("jobs", queue_name, "--state", "failed").out


async def test_what_is_not_known_of_a_job_is_not_invented(done, server, queue_name):
    await bury(done, server, queue_name, "bad", "good")
    assert done("jobs", queue_name, "--state", "completed", "--json").json == {
        "id": "j2", "name": None, "data": None, "attempts": None, "created_at_ms": None,
    }  # fmt: skip
    shown = done("jobs", queue_name, "--state", "completed", COLUMNS="200").out
    row = [cell.strip() for cell in shown.splitlines()[3].strip("│").split("│")]
    assert row == ["j2", "-", "-", "-", "-"]
    failed = done("jobs", queue_name, "--state", "failed", "--json").json
    assert (failed["name"], failed["attempts"], failed["data"]) == ("bad", 1, {"n": 1})


def test_delayed_jobs_are_listed_moved_promoted_and_cancelled(chasqui, done, queue_name):
    for number in (1, 2, 3):
        done("add", queue_name, "x", "--job-id", f"j{number}", "--delay", f"{number}h")
    assert "j1" in done("delayed", "ls", queue_name).out

    done("delayed", "reschedule", queue_name, "j1", "--delay", "5h")
    listed = [job["id"] for job in done("delayed", "ls", queue_name, "--json").lines]
    assert listed == ["j2", "j3", "j1"]

    assert done("delayed", "promote", queue_name, "j2").out == "promoted j2\n"
    assert waiting(done, queue_name) == 1

    answer = chasqui("delayed", "cancel", queue_name, "j3", "j2", "j1", "--yes")
    assert answer.code == 1
    assert answer.out == "cancelled j3\ncancelled j1\n"
    assert "job j2 is not delayed" in answer.err


def test_a_pause_holds_until_it_is_lifted(done, queue_name):
    assert done("pause", queue_name).out == f"paused {queue_name}\n"
    assert done("inspect", queue_name, "--json").json["paused"] is True
    assert "workers take no new jobs" in done("inspect", queue_name, COLUMNS="120").out
    assert done("resume", queue_name, "--json").json == {"queue": queue_name, "paused": False}
    assert done("inspect", queue_name, "--json").json["paused"] is False


def test_a_queue_is_drained_after_a_dry_run(done, queue_name):
    done("add", queue_name, "x")
    done("add", queue_name, "x", "--delay", "1h")
    assert done("drain", queue_name, "--dry-run").out == f"would remove 2 jobs of {queue_name}\n"
    kept = done("drain", queue_name, "--keep-delayed", "--yes", "--json").json
    assert kept == {"queue": queue_name, "removed": 1, "dry_run": False}
    assert done("drain", queue_name, "--yes").out == f"removed 1 job of {queue_name}\n"


async def test_old_dead_letters_are_cleaned(chasqui, done, server, queue_name):
    await bury(done, server, queue_name, "bad", "bad")
    state = ("clean", queue_name, "--state", "failed")
    assert done(*state, "--grace", "1h", "--yes", "--json").json["removed"] == []
    assert done(*state, "--dry-run", "--json").json["removed"] == ["j1", "j2"]
    assert done(*state, "--limit", "1", "--yes").out == f"removed 1 failed job of {queue_name}\n"
    assert chasqui("clean", queue_name, "--state", "active", "--yes").code == 2


def test_a_queue_is_removed_with_all_that_belongs_to_it(chasqui, done, server, queue_name):
    done("add", queue_name, "x")
    done("repeatable", "add", queue_name, "y", "--every", "1h")
    would = done("obliterate", queue_name, "--dry-run", "--json").json
    count = would.pop("removed_keys")
    assert count > 2
    assert would == {
        "queue": queue_name, "jobs": 1, "dead_letters": 0, "recurring_jobs": 1, "dry_run": True,
    }  # fmt: skip
    told = f"{count} keys of {queue_name}, with 1 job, 0 dead letters and 1 recurring job\n"
    assert done("obliterate", queue_name, "--dry-run").out == f"would remove {told}"
    refused = chasqui("obliterate", queue_name).err
    assert f"remove every key of {queue_name}, with 1 job, 0 dead letters and 1 recurr" in refused
    assert done("obliterate", queue_name, "--yes").out == f"removed {told}"
    assert server.client().keys(f"*{queue_name}*") == []


def test_a_queue_with_jobs_in_flight_is_not_removed_without_force(
    chasqui, done, server, queue_name
):
    done("add", queue_name, "x")
    key = f"{{chasqui:{queue_name}}}:stream"
    server.client().xgroup_create(key, "default", "0")
    server.client().xreadgroup("default", "c", {key: ">"})
    answer = chasqui("obliterate", queue_name, "--yes")
    assert answer.code == 1
    assert "queue busy" in answer.err
    done("obliterate", queue_name, "--force", "--yes")


@pytest.mark.parametrize(("answer", "left", "code"), [("y\n", 0, 0), ("n\n", 1, 1), ("\n", 1, 1)])
def test_on_a_terminal_it_asks_first(server, done, queue_name, answer, left, code):
    done("add", queue_name, "x")
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "chasquimq", "drain", queue_name],
        stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment(CHASQUI_REDIS_URL=server.url),
    ) as process:  # fmt: skip
        os.write(ours, answer.encode())
        _, err = process.communicate(timeout=30)
    os.close(ours)
    os.close(theirs)
    assert process.returncode == code
    assert f"remove all waiting and delayed jobs of {queue_name}? [y/N]:" in err
    assert waiting(done, queue_name) == left


@pytest.mark.parametrize("command", ["drain", "clean", "obliterate", "job remove"])
def test_without_a_terminal_nothing_is_destroyed_unasked(chasqui, done, queue_name, command):
    done("add", queue_name, "x", "--job-id", "j1")
    answer = chasqui(*command.split(), queue_name, *(["j1"] if command == "job remove" else []))
    assert answer.code == 1
    assert "add --yes" in answer.err
    assert waiting(done, queue_name) == 1
