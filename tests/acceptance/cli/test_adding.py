"""`add`: data in every form, and what is wrong with it."""

from datetime import UTC, datetime, timedelta

import pytest

from chasquimq import Queue


async def stored(server, queue_name, job_id):
    async with Queue(queue_name, redis_url=server.url) as queue:
        return await queue.get_job(job_id)


async def test_data_is_json_on_the_command_line(done, server, queue_name):
    added = done("add", queue_name, "welcome", '{"to": ["ada", null, 1.5]}', "--json").json
    assert (added["name"], added["deduplicated"]) == ("welcome", False)
    job = await stored(server, queue_name, added["id"])
    assert (job.name, job.data) == ("welcome", {"to": ["ada", None, 1.5]})


async def test_data_comes_from_a_file_or_from_stdin(done, server, queue_name, tmp_path):
    file = tmp_path / "data.json"
    file.write_text('{"a": 1}')
    done("add", queue_name, "x", f"@{file}", "--job-id", "j1")
    done("add", queue_name, "x", "-", "--job-id", "j2", stdin="[2]")
    done("add", queue_name, "x", "--job-id", "j3")
    jobs = [await stored(server, queue_name, job_id) for job_id in ("j1", "j2", "j3")]
    assert [job.data for job in jobs] == [{"a": 1}, [2], None]


def test_an_id_of_ones_own_is_added_once(done, queue_name):
    assert done("add", queue_name, "x", "--job-id", "j1").out == "added j1\n"
    assert done("add", queue_name, "x", "--job-id", "j1").out == "j1 was there already\n"
    assert done("counts", queue_name, "--json").json["waiting"] == 1


def test_a_job_may_run_later_with_rules_of_its_own(done, queue_name):
    done("add", queue_name, "x", "--delay", "2m", "--attempts", "7", "--backoff",
         "exponential:1s:5m", "--job-id", "j1")  # fmt: skip
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    done("add", queue_name, "y", "--at", at.isoformat())
    first, second = done("delayed", "ls", queue_name, "--json").lines
    assert (first["id"], (first["due_ms"] - first["created_at_ms"]) // 60_000) == ("j1", 2)
    assert second["due_ms"] == at.timestamp() * 1_000


@pytest.mark.parametrize(
    ("backoff", "is_cut"),
    [("1h", True), ("exponential:1h", True), ("30s", False), ("exponential:1h:1h", False)],
)
def test_a_backoff_that_workers_will_cut_is_told(done, queue_name, backoff, is_cut):
    for add in (["add"], ["repeatable", "add"]):
        every = ["--every", "1h"] if add != ["add"] else []
        told = done(*add, queue_name, "x", "--backoff", backoff, *every).err
        remark = "a backoff of 3600000 ms to their max_backoff_ms, 30000 by default"
        assert (remark in told) is is_cut
        assert len(told.splitlines()) == is_cut


async def test_a_bulk_takes_the_data_of_each_line(done, server, queue_name):
    ids = [line["id"] for line in done(
        "add", queue_name, "x", "--bulk", "-", "--json", stdin='{"n": 1}\n\n[2]\n"three"\n'
    ).lines]  # fmt: skip
    jobs = [await stored(server, queue_name, job_id) for job_id in ids]
    assert [(job.name, job.data) for job in jobs] == [("x", {"n": 1}), ("x", [2]), ("x", "three")]


async def test_a_bulk_without_a_name_takes_whole_jobs(done, server, queue_name, tmp_path):
    file = tmp_path / "jobs.jsonl"
    file.write_text('{"name": "a", "data": 1, "job_id": "j1"}\n{"name": "b", "delay_ms": 60000}\n')
    assert done("add", queue_name, "--bulk", str(file)).out == "added 2 jobs\n"
    assert (await stored(server, queue_name, "j1")).name == "a"
    assert done("counts", queue_name, "--json").json["delayed"] == 1


@pytest.mark.servers("valkey")
@pytest.mark.parametrize(
    ("arguments", "stdin", "told"),
    [
        (["x", "hello"], "", "text needs quotes"),
        (["x", "NaN"], "", "data is not JSON: NaN is no number that JSON has"),
        (["x", "[1, -Infinity]"], "", "-Infinity is no number that JSON has"),
        (["x", "1e999"], "", "1e999 is too large for a number"),
        (["x", "--bulk", "-"], "NaN\n", "line 1 is not JSON: NaN"),
        (["x", "@/no/such/file"], "", "/no/such/file cannot be read"),
        (["x", "-"], "", "stdin is not JSON"),
        (["x", "--delay", "soon"], "", "'soon' is no duration: write 250ms"),
        (["x", "--at", "noon"], "", "'noon' is no instant"),
        (["x", "--delay", "1s", "--at", "2100-01-01"], "", "use one"),
        (["x", "--attempts", "0"], "", "--attempts"),
        (["x", "--backoff", '{"kind": "wild", "delay_ms": 1}'], "", "backoff kind is 'wild'"),
        (["x", "--backoff", "exponential:1s:5"], "", "has a cap of 5 ms, below its start of 1000"),
        (
            ["x", "--backoff", '{"kind": "fixed", "delay_ms": 9, "max_delay_ms": 1}'],
            "",
            "backoff max_delay_ms is 1, below delay_ms, which is 9",
        ),
        ([], "", "NAME is missing"),
        (["--bulk", "-"], "7\n", "line 1 is no object"),
        (["--bulk", "-"], '{"name": "a"}\n{"nam": "b"}\n', "line 2 has unknown keys"),
        (["x", "--bulk", "-"], "{}\n{nope\n", "line 2 is not JSON"),
    ],
)
def test_a_mistake_is_told_in_one_line_and_nothing_is_added(
    chasqui, done, queue_name, arguments, stdin, told
):
    answer = chasqui("add", queue_name, *arguments, stdin=stdin)
    assert answer.code == 2
    assert told in answer.err
    assert len(answer.err.splitlines()) == 1
    assert done("counts", queue_name, "--json").json["waiting"] == 0
