"""`Backfill`: rows of files and tables become jobs, each once, or it is said why not."""

import json
from collections import Counter

import pytest

from chasquimq.errors import BackfillError, ConfigError, QueueFullError
from chasquimq.pipeline import Backfill, Columns
from chasquimq.wire.codec import unpack
from chasquimq.wire.entry import parse_job_fields
from chasquimq.wire.envelope import decode
from chasquimq.wire.keys import QueueKeys
from tests.support.spark import SPARK_MARKS

pytestmark = SPARK_MARKS

FULL = {"maxStreamLen": "10", "overflowTimeoutSecs": "0"}


@pytest.fixture
def backfill(spark, server, queue_name):
    """`backfill(source, ...)` for the test's queue."""
    return lambda source, **given: Backfill(
        source, queue_name, spark=spark, redis_url=server.url, **given
    )


@pytest.fixture
def entries(server, queue_name):
    """What waits, as the server has it."""
    return lambda: server.client().xrange(QueueKeys(queue_name).stream)


@pytest.fixture
def jobs(entries):
    """What waits: name and data of each job, in order."""

    def found():
        flat = ([part for pair in fields.items() for part in pair] for _, fields in entries())
        return [(name, unpack(decode(data).payload)) for data, name in map(parse_job_fields, flat)]

    return found


def a_csv(folder, count=20, name="orders.csv"):
    path = folder / name
    path.write_text("id,who\n" + "".join(f"{number},ada\n" for number in range(count)))
    return path


def test_a_file_becomes_jobs_in_its_order_and_the_same_again_adds_nothing_unless_anew(
    backfill, tmp_path, monkeypatch, jobs
):
    path = a_csv(tmp_path)
    monkeypatch.chdir(tmp_path)  # and Java stays where it is
    done = backfill("orders.csv", name="import").run()
    assert (done.rows, done.added, done.before, done.taken) == (20, 20, 0, 0)
    assert jobs() == [("import", {"id": str(number), "who": "ada"}) for number in range(20)]

    again = backfill(str(path), name="import").run()
    assert (again.run_id, again.added, again.before) == (done.run_id, 0, 20)
    assert backfill("orders.csv", name="import").run(anew=True).added == 20
    assert len(jobs()) == 40

    a_csv(tmp_path, 21)
    with pytest.raises(
        BackfillError, match=r"changed since run '.*' ended: .*had 137 bytes"
    ) as told:
        backfill("orders.csv", name="import").run()
    assert "start the run anew, or give another run id" in str(told.value)
    assert len(jobs()) == 40


def test_columns_say_how_a_job_runs_and_types_come_from_the_file(
    spark, backfill, tmp_path, queue, jobs
):
    rows = [("a", 7, 5, {"to": "ada"}), ("b", 8, None, {"to": "bob"}), (None, 7, None, None)]
    path = str(tmp_path / "mails.parquet")
    frame = spark.createDataFrame(
        rows, "kind string, number int, tries int, body struct<to:string>"
    )
    frame.coalesce(1).write.parquet(path)
    columns = Columns(name="kind", job_id="number", attempts="tries", payload="body")
    filling = backfill(path, columns=columns, name="other")

    seen = filling.preview()
    assert (seen.rows, seen.unfit, seen.problems) == (3, 0, ())
    assert [(job.name, job.job_id, job.attempts, job.data) for job in seen.jobs] == [
        ("a", "7", 5, {"to": "ada"}), ("b", "8", None, {"to": "bob"}), ("other", "7", None, None),
    ]  # fmt: skip
    assert queue.counts().waiting == 0

    done = filling.run()
    assert (done.rows, done.added, done.taken) == (3, 2, 1)
    assert jobs() == [("a", {"to": "ada"}), ("b", {"to": "bob"})]


def test_rows_that_cannot_be_jobs_are_all_found_before_anything_is_added(backfill, tmp_path, queue):
    path = tmp_path / "bad.csv"
    path.write_text(
        "kind,wait,attempts,text\n"
        "a,5,1,fine\n"
        "b,soon,1,x\n"
        ",5,1,x\n"
        "d,5,1,x,more\n"
        "e,5,0,x\n"
        f"f,5,1,{'x' * 200}\n"
    )
    columns = Columns(name="kind", delay_ms="wait")
    filling = backfill(str(path), columns=columns, sink={"maxPayloadBytes": "150"})
    found = filling.preview()
    assert (found.rows, found.unfit) == (6, 5)
    assert [job.name for job in found.jobs] == ["a"]
    for row, (problem, told) in enumerate(
        zip(
            [
                "column 'wait' is 'soon': it must be a whole number of milliseconds",
                "column 'kind' is null and names no job: fill it, or give a name",
                "it does not fit the columns: 'd,5,1,x,more'",
                "column 'attempts' of a row is 0: it must be 1 or more",
                "it must be at most maxPayloadBytes, 150",
            ],
            found.problems,
            strict=True,
        ),
        2,
    ):
        assert problem in told
        assert told.endswith(f", row {row} of file:{path}")
    with pytest.raises(BackfillError, match="5 of 6 rows cannot be jobs, so nothing was added"):
        filling.run()
    assert queue.counts().delayed == queue.counts().waiting == 0


def test_files_whose_columns_stand_in_another_order_are_not_taken_for_the_same(
    backfill, tmp_path, queue
):
    (tmp_path / "a.csv").write_text("id,who\n1,ada\n")
    (tmp_path / "b.csv").write_text("who,id\nbob,2\n")
    with pytest.raises(BackfillError, match=r"CSV header does not conform.*b\.csv"):
        backfill(str(tmp_path)).run()
    assert queue.counts().waiting == 0


def test_rows_that_are_from_no_file_are_known_by_what_they_hold(
    spark, backfill, server, queue_name, jobs
):
    """The first attempt breaks off; in the next rows come in another order and other parts."""
    rows = spark.range(30).selectExpr("id % 10 as n")
    with pytest.raises(QueueFullError, match="holds maxStreamLen, 10 jobs"):
        backfill(rows.repartition(3), run_id="r", sink=FULL).run()
    assert len(jobs()) == 10
    done = backfill(rows.orderBy("n").coalesce(1), run_id="r").run()
    assert (done.rows, done.added, done.before) == (30, 20, 10)
    assert Counter(data["n"] for _, data in jobs()) == dict.fromkeys(range(10), 3)

    client, keys = server.client(), QueueKeys(queue_name)
    assert client.ttl(keys.seen("r")) <= 3_600
    _, _, note = client.get(keys.run("r")).decode().partition(" ")
    client.set(keys.run("r"), "2 " + json.dumps(json.loads(note) | {"is_done": False}), ex=60)
    client.delete(keys.seen("r"))
    with pytest.raises(BackfillError, match="broke off after 30 of 30 rows, too long ago"):
        backfill(rows, run_id="r").run()


def test_a_frame_that_was_read_from_files_and_shuffled_loses_no_row(
    spark, backfill, tmp_path, jobs
):
    """It still tells the file of a row, but no longer its place there."""
    path = str(tmp_path / "rows")
    spark.range(40).coalesce(1).write.parquet(path)
    done = backfill(spark.read.parquet(path).repartition(4), run_id="r").run()
    assert (done.rows, done.added) == (40, 40)
    assert sorted(data["id"] for _, data in jobs()) == list(range(40))


def test_a_file_that_is_named_twice_is_refused(backfill, tmp_path, jobs):
    path = a_csv(tmp_path, 3)
    with pytest.raises(ConfigError, match="is named twice: its rows would be read twice"):
        backfill([str(path), str(tmp_path / "*.csv")]).run()
    assert jobs() == []


def test_a_rate_holds_for_all_tasks_together_and_progress_is_told(backfill, tmp_path, entries):
    for name in ("one.csv", "two.csv"):
        a_csv(tmp_path, 150, name)
    told = []
    done = backfill([str(tmp_path / "one.csv"), str(tmp_path / "two.csv")], rate=100).run(
        on_progress=told.append
    )
    assert done.added == 300
    times = [int(entry.split(b"-")[0]) for entry, _ in entries()]
    # Each of the two tasks adds a chunk of ten before it asks.
    assert times[-1] - times[0] >= 2_700
    busiest = max(sum(1 for other in times if at <= other < at + 1_000) for at in times)
    assert busiest <= 100 + 2 * 10
    assert {each.total for each in told} == {300}
    assert [each.done for each in told] == sorted(each.done for each in told)
    assert told[-1].eta_s < 10


def test_a_table_of_the_catalog_is_a_source(spark, backfill, jobs):
    spark.range(3).createOrReplaceTempView("numbers_to_fill")
    assert backfill("numbers_to_fill", name="n").run().added == 3
    assert sorted(data["id"] for _, data in jobs()) == [0, 1, 2]


@pytest.mark.parametrize(
    ("source", "given", "words"),
    [
        ("nothing.csv", {}, "nothing.csv cannot be read: Path does not exist: file:"),
        ("what", {}, "format of 'what' cannot be told from its ending, and there is no table"),
        ("b.json", {}, "no line of json .*b.json is an object of JSON: .*multiLine=true"),
        (["a.csv", "b.json"], {}, "files of several formats, csv, json"),
        ([], {}, "name a file, a folder, a glob or a table"),
        (
            "a.csv",
            {"schema": "id nonsense("},
            "cannot be read: Syntax error .* Look at path, format",
        ),
        (
            "a.csv",
            {"columns": Columns(job_id="no")},
            "no column 'no' for job_id: .* 'id', 'run_at'",
        ),
        ("a.csv", {"columns": Columns(delay_ms="id")}, "'id' and 'run_at' both say when a job is"),
        ("a.csv", {"sink": {"runId": "x"}}, "option 'runId' of the sink is chosen by the backfill"),
        ("a.csv", {"sink": {"trim": "x"}}, "option 'trim' is not known"),
        ("a.csv", {"rate": 0}, "option 'maxJobsPerSec' is '0'"),
    ],
)
def test_what_will_not_do_is_refused_before_a_row_is_read(
    backfill, tmp_path, monkeypatch, source, given, words
):
    (tmp_path / "a.csv").write_text("id,run_at\n1,2\n")
    (tmp_path / "b.json").write_text('[\n{\n"id":\n1\n}\n]\n')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=words):
        backfill(source, **given)


def test_a_frame_needs_a_run_id(spark, backfill):
    with pytest.raises(
        ConfigError, match="the source is a frame, which has no name: give a run_id"
    ):
        backfill(spark.range(1))
