"""`dlq`, `result` and a job's whole way from the command line: added, failed, seen, replayed."""

import asyncio
import os
import pty
import re
import subprocess
import sys

import pytest

from chasquimq import Queue, UnrecoverableError, Worker
from tests.acceptance.cli.conftest import environment
from tests.support.eventually import eventually


async def work(server, queue_name, *, until, broken=True):
    """Run a worker until `until(counts)`; jobs named `bad` fail for good while it is broken."""

    async def handle(job):
        if broken and job.name == "bad":
            message = "no \x1b[31m such address"
            raise UnrecoverableError(message)
        return {"did": job.data}

    worker = Worker(queue_name, handle, redis_url=server.url, store_results=True)
    running = asyncio.create_task(worker.run())
    async with Queue(queue_name, redis_url=server.url) as queue:

        async def is_so():
            return until(await queue.counts())

        await eventually(is_so)
        await worker.close()
        await running


async def bury(done, server, queue_name, *names):
    for number, name in enumerate(names, 1):
        done("add", queue_name, name, f'{{"n": {number}}}', "--job-id", f"j{number}")
    bad = sum(name == "bad" for name in names)
    await work(
        server, queue_name, until=lambda now: now.dead == bad and not now.waiting + now.active
    )


async def test_a_failed_job_is_seen_with_its_traceback_and_replayed(done, server, queue_name):
    await bury(done, server, queue_name, "bad", "good")

    (letter,) = done("dlq", "peek", queue_name, "--json").lines
    assert (letter["job_id"], letter["name"], letter["reason"]) == ("j1", "bad", "unrecoverable")
    assert (letter["data"], letter["attempts"]) == ({"n": 1}, 1)
    shown = done("dlq", "show", queue_name, "j1").out
    assert "raise UnrecoverableError" in shown
    assert r"\x1b[31m such address" in shown
    assert "\x1b" not in shown

    assert done("dlq", "replay", queue_name, "--yes").out == "replayed 1 of 1 entries\n"
    await work(server, queue_name, broken=False, until=lambda now: not now.waiting + now.active)
    assert done("result", queue_name, "j1", "--json").json == {
        "id": "j1", "status": "ok", "value": {"did": {"n": 1}}, "reason": None, "error": None,
    }  # fmt: skip


async def test_peek_has_the_documented_columns_where_there_is_room(done, server, queue_name):
    await bury(done, server, queue_name, "bad")
    wide = done("dlq", "peek", queue_name, COLUMNS="200").out
    header = [cell.strip() for cell in wide.splitlines()[1].strip("│").split("│")]
    assert header == [f"dlq peek: {queue_name}", "source_id", "name", "reason", "detail", "error",
                      "payload bytes", "job id"]  # fmt: skip
    narrow = done("dlq", "peek", queue_name, COLUMNS="80").out
    assert max(map(len, narrow.splitlines())) <= 80
    for shown in (wide, narrow):
        assert "unrecoverable" in shown
        assert "address" in shown
        assert re.search(r"│ j1 +│|│ +j1 │", shown)


def test_peek_cuts_errors_on_a_terminal_and_nowhere_else(done, server, queue_name):
    fields = {"d": b"", "source_id": "1-1", "reason": "unrecoverable", "error": "no luck " * 20}
    server.client().xadd(f"{{chasqui:{queue_name}}}:dlq", fields)
    for columns in ("", "80", "200"):
        shown = done("dlq", "peek", queue_name, COLUMNS=columns).out
        assert shown.count("luck") == 20
        assert "…" not in shown

    ours, theirs = pty.openpty()
    peek = [sys.executable, "-m", "chasquimq", "dlq", "peek", queue_name]
    variables = environment(CHASQUI_REDIS_URL=server.url)
    subprocess.run(peek, check=True, stdout=theirs, env=variables, timeout=30)
    seen = os.read(ours, 65_536).decode()
    os.close(ours)
    os.close(theirs)
    assert seen.count("luck") < 10
    assert "…" in seen


def test_an_empty_dead_letter_queue_says_so(done, queue_name):
    shown = done("dlq", "peek", queue_name).out
    assert "(empty)" in shown
    assert "(no entries)" in shown
    assert done("dlq", "peek", queue_name, "--json").out == ""
    assert done("dlq", "replay", queue_name).out == "replayed 0 of 0 entries\n"


async def test_dead_letters_are_chosen_by_id_name_and_reason(chasqui, done, server, queue_name):
    await bury(done, server, queue_name, "bad", "bad", "bad")
    assert chasqui("dlq", "peek", queue_name, "--reason", "odd").code == 2
    assert done("dlq", "peek", queue_name, "--name", "other", "--json").out == ""
    assert done("dlq", "discard", queue_name, "--id", "j2", "--yes", "--json").json == {
        "discarded": 1, "found": 1,
    }  # fmt: skip
    left = done("dlq", "peek", queue_name, "--reason", "unrecoverable", "--json").lines
    assert [letter["job_id"] for letter in left] == ["j1", "j3"]
    assert done("dlq", "replay", queue_name, "--limit", "1", "--yes").out == (
        "replayed 1 of 1 entries\n"
    )


@pytest.mark.parametrize(("verb", "done_word"), [("replay", "replayed"), ("discard", "discarded")])
async def test_a_named_dead_letter_that_is_not_there_is_exit_code_one(
    chasqui, done, server, queue_name, verb, done_word
):
    nothing = chasqui("dlq", verb, queue_name, "--id", "99-0", "--yes")
    assert (nothing.code, nothing.out) == (1, f"{done_word} 0 of 0 entries\n")
    assert nothing.err == "chasqui: there is no such dead letter 99-0\n"

    await bury(done, server, queue_name, "bad")
    some = chasqui("dlq", verb, queue_name, "--id", "99-0", "--id", "j1", "--yes", "--json")
    assert (some.code, some.json) == (1, {done_word: 1, "found": 1})
    assert "99-0" in some.err


async def test_an_export_holds_every_dead_letter_with_its_envelope(done, server, queue_name):
    await bury(done, server, queue_name, "bad", "bad")
    first, second = done("dlq", "export", queue_name).lines
    assert [first["job_id"], second["job_id"]] == ["j1", "j2"]
    assert first["payload"]["base64"]
    assert len(done("dlq", "export", queue_name, "--limit", "1").lines) == 1


def test_a_payload_of_any_shape_is_replayed(done, server, queue_name):
    """Written by another engine: the payload is no `bin`, the letter has no fields of ours."""
    client, key = server.client(), f"{{chasqui:{queue_name}}}"
    envelope = b"\x94\xa2j1\x81\xa1k\x01\xcf\x00\x00\x01\x8b\xcf\xe5h\x00\x02"
    client.xadd(f"{key}:dlq", {"d": envelope, "source_id": "1-0", "reason": "stalled"})
    client.xadd(f"{key}:dlq", {"d": b"", "source_id": "2-0", "reason": "malformed", "detail": "x"})

    first, second = done("dlq", "peek", queue_name, "--json").lines
    assert (first["job_id"], first["data"]) == ("j1", {"k": 1})
    assert (second["job_id"], second["detail"]) == (None, "x")
    assert done("dlq", "replay", queue_name, "--yes").out == "replayed 1 of 2 entries\n"
    assert client.xlen(f"{key}:stream") == 1


async def test_without_a_terminal_nothing_is_done_unasked(chasqui, done, server, queue_name):
    await bury(done, server, queue_name, "bad")
    for verb in ("replay", "discard"):
        answer = chasqui("dlq", verb, queue_name)
        assert answer.code == 1
        assert f"{verb} 1 dead letter of" in answer.err
        assert "add --yes" in answer.err
    assert done("counts", queue_name, "--json").json["dead"] == 1


@pytest.mark.parametrize("command", [("dlq", "show"), ("result",)])
def test_an_unknown_id_is_not_found(chasqui, done, queue_name, command):
    done("add", queue_name, "x")
    answer = chasqui(*command, queue_name, "nobody")
    assert answer.code == 1
    assert "nobody" in answer.err
    assert len(answer.err.splitlines()) == 1


@pytest.mark.parametrize("wait", ["0.1", "100ms", "0.1s"])
def test_a_result_can_be_waited_for_and_the_wait_ends(chasqui, done, queue_name, wait):
    done("add", queue_name, "x", "--job-id", "j1")
    answer = chasqui("result", queue_name, "j1", "--wait", wait)
    assert answer.code == 1
    assert answer.err == "chasqui: job j1 has not ended yet, after 0.1 s\n"
    assert "wait for it with --wait" in chasqui("result", queue_name, "j1").err


@pytest.mark.parametrize(
    ("wait", "told"),
    [("0", "it must be above 0"), ("nan", "it must be above 0"), ("soon", "write 30 for seconds")],
)
def test_a_time_to_wait_that_is_none_is_refused(chasqui, queue_name, wait, told):
    answer = chasqui("result", queue_name, "j1", "--wait", wait)
    assert answer.code == 2
    assert told in answer.err
