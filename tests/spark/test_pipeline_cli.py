"""`chasqui pipeline`, in the session that it finds."""

import csv
import json

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from chasquimq import SyncQueue
from chasquimq.cli import pipeline as command_line
from chasquimq.cli import unknown
from chasquimq.cli.main import entry
from chasquimq.cli.pipeline import _is_in_tables
from chasquimq.pipeline import lake
from tests.support.spark import SPARK_MARKS
from tests.support.story import some

pytestmark = SPARK_MARKS


@pytest.fixture
def here(spark, server, capsys, monkeypatch, tmp_path):
    """`here(*arguments)`: run `chasqui pipeline` in this process."""
    monkeypatch.setenv("CHASQUI_REDIS_URL", server.url)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        code = entry(["pipeline", *arguments])
        told = capsys.readouterr()
        assert SparkSession.getActiveSession().sparkContext is spark.sparkContext
        return code, told.out, told.err

    return run


def test_events_become_tables_at_a_url_and_a_report(here, queue, queue_name, tmp_path):
    queue.add("welcome", {})
    url = f"file://{tmp_path}/chasqui-lake"
    code, out, err = here("run", queue_name, "--path", url, "--json")
    assert (code, err.splitlines()) == (
        0,
        [
            f"chasqui: taking in the events of {queue_name}",
            "chasqui: reading events into bronze",
            "chasqui: making runs and jobs",
            "chasqui: making minutes, hours, days and failures",
            "chasqui: 1 event, 1 bucket and 1 stretch recomputed",
        ],
    )
    assert json.loads(out) == {"batches": 1, "events": 1, "lost": 0, "buckets": 1, "stretches": 1}

    # What the tables know need not be known to the server any more.
    assert _is_in_tables(queue_name, url)
    assert _is_in_tables(queue_name, "chasqui-lake")
    assert not _is_in_tables("ordres", "chasqui-lake")
    code, out, err = here("report", "--out", "page.html")
    assert code == 0, err
    assert out.endswith(f"the report is in {tmp_path / 'page.html'}\n")
    assert "chasqui: computing figures of 1 steps of a minute\n" in err
    assert f"{queue_name[:18]}… / welcome" in out
    assert "welcome" in (tmp_path / "page.html").read_text()

    # A report of nothing takes the place of no other.
    for nothing in (["no-such-queue"], ["--path", "elsewhere"]):
        code, out, err = here("report", "--out", "page.html", *nothing)
        assert (code, out) == (1, "")
        assert "hold nothing of these queues and days" in err
    assert "welcome" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("url", "where", "code", "told"),
    [
        (None, "error > 1", 2, "which does not fit every dead letter: The value"),
        (None, "nonsense = 1", 2, "which is no condition on dead letters: A column"),
        ("redis://:hush@127.0.0.1:1", "true", 3, "cannot connect to redis://:***@127.0.0.1:1"),
    ],
)
def test_why_triage_cannot_be_done_is_said_in_a_line(
    here, queue_name, play, url, where, code, told
):
    play([*some("broken", 1)])
    ended, out, err = here(
        "triage", queue_name, "--where", where, *(["--redis-url", url] if url else [])
    )
    assert (ended, out) == (code, "")
    *began, reason = err.splitlines()
    assert told in reason
    looking = f"chasqui: looking through the dead letters of {queue_name}"
    assert began == ([] if url else [looking])


def test_what_spark_falls_over_is_said_in_a_line_and_in_full_if_asked(here, queue, queue_name):
    queue.add("welcome", {})
    line = ["run", queue_name, "--path", "nowhere://host/lake"]
    code, out, err = here(*line)
    assert (code, out) == (1, "")
    [_, reason] = err.splitlines()
    assert reason.startswith("chasqui: Spark could not do it: No FileSystem for scheme")
    with pytest.raises((PySparkException, Py4JJavaError)):
        here(*line, "--verbose")


def test_files_that_another_took_away_midway_are_told_with_what_may_have_done_it(
    here, queue, queue_name, tmp_path, monkeypatch
):
    def take_away(step):
        if step == "making runs and jobs":
            for file in (tmp_path / "lake" / "bronze").rglob("*.parquet"):
                file.unlink()

    monkeypatch.setattr(command_line, "remark", take_away)
    queue.add("welcome", {})
    code, out, err = here("run", queue_name, "--path", "lake")
    assert (code, out) == (1, "")
    [reason] = err.splitlines()
    assert reason.startswith("chasqui: Spark could not do it: File file:")
    assert " does not exist. Another run, stream or compaction may be writing to the" in reason


def test_dead_letters_are_shown_by_cause_exported_and_a_chosen_group_is_replayed(
    here, play, queue, queue_name, tmp_path
):
    play([*some("broken", 3), *some("ok", 1)])
    code, out, err = here("triage", queue_name, "--json")
    looking = f"chasqui: looking through the dead letters of {queue_name}\n"
    assert (code, err) == (0, looking)
    group = json.loads(out)
    assert (group["count"], group["names"], group["message"]) == (3, ["broken"], "no parser for #")

    choice = ["--fingerprint", group["fingerprint"], "--export", "dead.csv", "--replay"]
    code, out, err = here("triage", queue_name, *choice, "--dry-run")
    assert (code, out, err) == (0, "would export and replay 3 dead letters\n", looking)
    assert queue.counts().dead == 3
    assert list(tmp_path.glob("*")) == []

    code, out, err = here("triage", queue_name, *choice, "--yes", "--json")
    assert json.loads(out) == {"found": 3, "dry_run": False, "exported": 3, "replayed": 3}, err
    assert "chasqui: 3 of 3 dead letters (100 %)" in err
    assert (queue.counts().dead, queue.counts().waiting) == (0, 3)
    with (tmp_path / "dead.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert sorted((row["name"], row["payload"], row["error_type"]) for row in rows) == [
        ("broken", str(number), "UnrecoverableError") for number in range(3)
    ]
    assert {row["fingerprint"] for row in rows} == {group["fingerprint"]}

    code, out, err = here("triage", queue_name, *choice[:2], "--replay", "--yes")
    assert (code, out) == (0, "no dead letter is one of those, so none was replayed\n"), err


def test_a_dry_run_of_a_backfill_shows_the_first_jobs_and_what_is_wrong(
    here, queue, queue_name, tmp_path
):
    (tmp_path / "in.json").write_text('{"kind": "mail", "to": "ada"}\n{"to": "bob"}\n')
    line = ["backfill", "in.json", "--queue", queue_name, "--name-column", "kind", "--dry-run"]
    code, out, err = here(*line)
    assert (code, err) == (1, f"chasqui: looking at all rows of json {tmp_path}/in.json\n")
    assert "│ mail │ s-" in out
    assert "cannot be a job: column 'kind' is null and names no job: fill it, or give a name" in out
    assert out.endswith("1 of 2 rows cannot be jobs: nothing would be added\n")

    code, out, err = here(*line, "--name", "other", "--json")
    told = json.loads(out)
    assert (code, told["rows"], told["unfit"]) == (0, 2, 0)
    assert [(job["name"], job["data"]) for job in told["jobs"]] == [
        ("mail", {"to": "ada"}), ("other", {"to": "bob"}),
    ]  # fmt: skip
    assert queue.counts().waiting == 0


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ([], "(no dead letters)"),
        (["--where", "true", "--replay"], "no dead letter is one of those, so none was replayed"),
        (["--where", "true", "--discard", "--dry-run"], "would discard 0 dead letters"),
    ],
)
def test_triage_of_a_queue_that_nobody_knows_is_answered_without_spark(
    server, capsys, arguments, answer
):
    assert entry(["pipeline", "triage", "ordres", *arguments, "--redis-url", server.url]) == 0
    told = capsys.readouterr()
    assert answer in told.out
    assert told.err == (
        "chasqui: nothing is known of ordres: see  chasqui queues  for those there are\n"
    )


def test_triage_that_may_not_ask_is_refused_before_spark_starts(server, queue, queue_name, capsys):
    queue.add("welcome", {})
    line = ["pipeline", "triage", queue_name, "--where", "true", "--replay"]
    assert entry([*line, "--redis-url", server.url]) == 1
    told = "refused to replay dead letters: there is no terminal to ask on, so add --yes"
    assert capsys.readouterr().err == f"chasqui: {told}\n"


@pytest.mark.parametrize("command", ["run", "stream"])
def test_a_queue_that_nobody_knows_is_refused_before_spark_starts_and_nothing_is_written(
    start_server, capsys, tmp_path, monkeypatch, command
):
    url = start_server().url
    monkeypatch.chdir(tmp_path)
    with SyncQueue("orders", redis_url=url) as queue:
        queue.add("import", {})
    assert entry(["pipeline", command, "ordres", "--redis-url", url]) == 1
    assert capsys.readouterr().err == (
        "chasqui: nothing is known of ordres: there are orders; check the name, or give "
        "--may-be-new if its first job is still to come\n"
    )
    assert not list(tmp_path.iterdir())


def test_a_look_that_did_not_see_all_keys_does_not_say_that_there_are_no_queues(
    start_server, capsys, monkeypatch
):
    url = start_server().url
    monkeypatch.setattr(unknown, "_MOST_KEYS", 0)
    assert entry(["pipeline", "run", "ordres", "--redis-url", url]) == 1
    told = capsys.readouterr().err
    assert told.startswith("chasqui: nothing is known of ordres: see chasqui queues; check the")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["stream", "q", "--every", "often"], "'often' is no interval: write '10 seconds'"),
        (["triage", "q", "--export", "dead.xlsx"], "let it end in .parquet, .csv"),
        (["triage", "q", "--replay"], "--replay needs --fingerprint or --where"),
        (["triage", "q", "--replay", "--discard"], "--replay and --discard are both given"),
        (["run", "q", "--conf", "nonsense"], "--conf is 'nonsense': use KEY=VALUE"),
        (["run", "q", "--format", "orc"], "'orc' is not one of 'parquet', 'delta'"),
        (["run", "q", "--slo-target", "99"], "99.0 is not in the range 0<x<1"),
        (["report", "--from", "31.1.2026"], "'31.1.2026' is not a day: use one such as 2030-01-31"),
        (["rebuild", "--from", "2026-02-01", "--to", "2026-01-31"], "is before --from 2026-02-01"),
        (["backfill", "a.csv"], "Missing option '--queue'"),
        (["backfill", "a.csv", "--queue", "q", "--option", "x"], "--option is 'x': use KEY=VALUE"),
        (["backfill", "a.csv", "--queue", "q", "--rate", "0"], "0 is not in the range x>=1"),
        (["backfill", "a.csv", "--queue", "a{b"], "queue name 'a{b'"),
        (["report", "--path", ".", "--out", "no/x.html"], "--out is 'no/x.html', and there is no"),
        (["backfill", "a.csv", "--queue", "q"], "a.csv cannot be read: there is no such file"),
        (["backfill", "file:///no/a.csv", "--queue", "q"], "/no/a.csv cannot be read: there is no"),
        (
            ["backfill", "a.csv", "--queue", "q", "--sink-option", "chunks=1"],
            "option 'chunks' is not known: use",
        ),
        (
            ["backfill", "a.csv", "--queue", "q", "--sink-option", "runId=r"],
            "option 'runId' of the sink is chosen by the backfill",
        ),
    ],
)
def test_a_mistake_is_told_before_spark_is_started(capsys, arguments, problem):
    assert entry(["pipeline", *arguments]) == 2
    told = capsys.readouterr().err
    assert problem in told
    assert "starting Spark" not in told


def test_the_formats_of_the_command_are_those_of_the_tables():
    assert command_line.FORMATS == lake.FORMATS


@pytest.mark.parametrize("command", ["report", "rebuild", "compact"])
def test_a_folder_that_is_not_there_is_told_before_spark_is_started(capsys, command):
    assert entry(["pipeline", command, "--path", "no/such/folder"]) == 1
    told = capsys.readouterr().err
    assert told.startswith("chasqui: there is no folder no/such/folder, so")
