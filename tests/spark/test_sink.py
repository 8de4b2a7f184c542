"""`chasquimq`: rows become jobs, each once, whatever happens to the tasks that write them."""

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark import TaskContext
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException

from chasquimq import Counts
from chasquimq.errors import RowError
from chasquimq.pipeline.problems import ours
from chasquimq.spark.queue_sink import AFTERWARDS_S
from chasquimq.wire.codec import unpack
from chasquimq.wire.entry import parse_job_fields
from chasquimq.wire.envelope import decode
from chasquimq.wire.keys import QueueKeys
from chasquimq.wire.member import decode_member
from chasquimq.wire.retry import BackoffSpec, RetryOverride
from tests.support.access import PROBES, SINK_RULES, make_users
from tests.support.spark import SPARK_MARKS

pytestmark = SPARK_MARKS


@pytest.fixture
def jobs(server, queue_name):
    """The jobs that wait: name and envelope, in order."""

    def found():
        entries = server.client().xrange(QueueKeys(queue_name).stream)
        flat = ([part for pair in fields.items() for part in pair] for _, fields in entries)
        return [(name, decode(data)) for data, name in map(parse_job_fields, flat)]

    return found


@pytest.fixture
def remembered(server, queue_name):
    """The runs that may come again; what is over is remembered for another hour, no longer."""
    prefix, client = QueueKeys(queue_name).seen(""), server.client()
    return lambda: [
        key.removeprefix(prefix).decode()
        for key in client.scan_iter(prefix + b"*")
        if client.ttl(key) > AFTERWARDS_S
    ]


def test_columns_that_mean_something_are_lifted_out_and_the_rest_is_the_payload(
    spark, write, jobs, remembered
):
    backoff = json.dumps({"kind": "exponential", "delay_ms": 100})
    frame = spark.createDataFrame(
        [("mail", "invoice-1", 5, backoff, "ada", 1.5, [1, 2], {"k": 1})],
        "name string, job_id string, attempts int, backoff string, to string, amount double,"
        " items array<int>, more map<string,int>",
    )
    write(frame)

    [(name, envelope)] = jobs()
    assert (name, envelope.id) == ("mail", "invoice-1")
    assert envelope.retry == RetryOverride(5, BackoffSpec("exponential", 100))
    assert unpack(envelope.payload) == {
        "to": "ada", "amount": 1.5, "items": [1, 2], "more": {"k": 1},
    }  # fmt: skip
    assert remembered() == []


def test_one_column_can_be_the_whole_payload(spark, write, jobs):
    frame = spark.createDataFrame([({"to": "ada"},)], "data struct<to: string>")
    write(frame, payloadColumn="data", jobName="mail")
    [(name, envelope)] = jobs()
    assert (name, unpack(envelope.payload)) == ("mail", {"to": "ada"})


def test_rows_with_a_time_wait_for_it_and_those_whose_time_is_past_do_not(
    spark, server, queue_name, queue, write, read
):
    later = datetime.now(UTC) + timedelta(hours=1)
    rows = [(1, later), (2, later - timedelta(hours=2)), (3, None)]
    write(spark.createDataFrame(rows, "n int, run_at timestamp").coalesce(1))
    write(spark.createDataFrame([(4, 60_000), (5, 0)], "n int, delay_ms long"))

    assert queue.counts() == Counts(waiting=3, active=0, delayed=2, dead=0)
    members = server.client().zrange(QueueKeys(queue_name).delayed, 0, -1, withscores=True)
    due = {
        unpack(decode(decode_member(member)[1]).payload)["n"]: score for member, score in members
    }
    assert due[1] == int(later.timestamp() * 1_000)
    assert {row.event for row in read("chasquimq_events").collect()} == {"waiting", "delayed"}


def test_a_task_that_fails_and_is_tried_again_adds_each_row_once(
    spark, write, queue, tmp_path, jobs
):
    """The first attempt of each task adds half and dies; the next has its rows reversed."""
    fallen = str(tmp_path)

    def stumbling(rows):
        mark = Path(fallen) / str(TaskContext.get().partitionId())
        found = list(rows)
        if mark.exists():
            yield from reversed(found)
            return
        mark.touch()
        yield from found[: len(found) // 2]
        msg = "the power went"
        raise RuntimeError(msg)

    numbers = [(number % 1_000, "mail") for number in range(4_000)]
    unsteady = spark.sparkContext.parallelize(numbers, 2).mapPartitions(stumbling)
    write(spark.createDataFrame(unsteady, "id long, name string"), chunkRows="50")

    assert len(list(tmp_path.iterdir())) == 2
    added = [unpack(envelope.payload)["id"] for _, envelope in jobs()]
    assert Counter(added) == dict.fromkeys(range(1_000), 4)
    assert queue.counts().waiting == 4_000


def test_a_second_write_with_the_same_run_id_adds_only_what_is_new(
    spark, tmp_path, write, queue, remembered
):
    path = str(tmp_path / "in")
    spark.range(300).selectExpr("id", "'mail' as name").coalesce(1).write.parquet(path)
    write(spark.read.parquet(path), runId="import-7")
    write(spark.read.parquet(path), runId="import-7")
    assert queue.counts().waiting == 300
    assert remembered() == ["import-7"]

    write(spark.read.parquet(path))
    assert queue.counts().waiting == 600


@pytest.mark.parametrize(("columns", "twice"), [(["_c0"], True), (["_c0", "_c0 as job_id"], False)])
def test_rows_of_files_that_are_cut_otherwise_are_added_again_unless_they_have_an_id(
    spark, write, queue, tmp_path, columns, twice
):
    """Cut as on a machine with other cores, or under other settings of `spark.sql.files`."""
    path = tmp_path / "numbers.csv"
    path.write_text("".join(f"{number:08}\n" for number in range(20)))
    try:
        for most_bytes in ("200", "90"):
            spark.conf.set("spark.sql.files.maxPartitionBytes", most_bytes)
            write(spark.read.csv(str(path)).selectExpr(*columns), runId="r")
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
    assert (queue.counts().waiting > 20) is twice


def test_an_id_that_another_producer_took_is_not_added(spark, queue, write):
    queue.add("mail", 1, job_id="invoice-1")
    write(spark.createDataFrame([("invoice-1",), ("invoice-2",)], "job_id string"))
    assert queue.counts().waiting == 2
    assert queue.add("mail", 1, job_id="invoice-2").deduplicated


def test_a_queue_that_stays_full_ends_the_write_and_the_next_goes_on_where_it_was(
    spark, queue, write, server, queue_name
):
    frame = spark.range(30).coalesce(1)
    with pytest.raises(PythonException, match=r"holds maxStreamLen, 10 jobs.*\[CMQ-006\]"):
        write(frame, maxStreamLen="10", overflowTimeoutSecs="0", runId="r")
    assert queue.counts().waiting == 10
    server.client().delete(QueueKeys(queue_name).stream)
    with pytest.raises(PythonException, match="CMQ-006"):
        write(frame, maxStreamLen="10", overflowTimeoutSecs="0", runId="r")
    server.client().delete(QueueKeys(queue_name).stream)
    write(frame, maxStreamLen="10", overflowTimeoutSecs="0", runId="r")
    assert queue.counts().waiting == 10


@pytest.fixture
def to_queue(spark, server, queue_name, tmp_path):
    """Run a stream of files into the queue until it has caught up."""

    def run():
        frame = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1)
        query = (
            frame.parquet(str(tmp_path / "in"))
            .writeStream.format("chasquimq")
            .options(redis_url=server.url, queue=queue_name)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return query

    return run


def test_a_batch_of_a_stream_that_comes_again_adds_nothing(
    spark, tmp_path, to_queue, queue, remembered, forget_last_commit
):
    for number in range(3):
        rows = spark.range(number * 100, number * 100 + 100)
        rows.coalesce(1).write.mode("append").parquet(str(tmp_path / "in"))
    query = to_queue()
    assert queue.counts().waiting == 300
    assert remembered() == [f"{query.id}:2"]

    forget_last_commit()
    to_queue()
    assert queue.counts().waiting == 300

    spark.range(300, 400).coalesce(1).write.mode("append").parquet(str(tmp_path / "in"))
    to_queue()
    assert queue.counts().waiting == 400
    assert remembered() == [f"{query.id}:3"]


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ("1 as attempts, 'x' as delay_ms", {}, "column 'delay_ms' is string: it must be a whole"),
        ("1L as delay_ms, 1L as run_at", {}, "columns 'delay_ms' and 'run_at' are both there"),
        ("1 as a, 2 as b", {"payloadColumn": "a"}, "columns b are neither the payload 'a' nor"),
        ("1 as a", {"payloadColumn": "b"}, "option 'payloadColumn' is 'b': use one of a"),
        ("1 as a", {"queue": "one,two"}, "a sink has one queue"),
        ("1 as a", {"runid": " "}, "option 'runId' is ' ': use text"),
        ("1 as a", {"trim": "yes"}, "option 'trim' is not known: use redis_url, queue, runId"),
    ],
)
def test_a_table_or_option_that_will_not_do_is_refused_before_anything_is_written(
    spark, write, queue, columns, options, words
):
    with pytest.raises(AnalysisException, match=words):
        write(spark.range(1).selectExpr(*columns.split(", ")), **options)
    assert queue.counts().waiting == 0


def test_a_queue_cannot_be_overwritten_and_a_stream_has_no_run_id(
    spark, server, queue_name, tmp_path
):
    options = {"redis_url": server.url, "queue": queue_name}
    with pytest.raises(AnalysisException, match="use mode"):
        spark.range(1).write.format("chasquimq").options(**options).mode("overwrite").save()
    with pytest.raises(
        (AnalysisException, StreamingQueryException), match="'runId' is for a batch"
    ):
        (
            spark.readStream.format("rate").load()
            .writeStream.format("chasquimq").options(**options, runId="r")
            .option("checkpointLocation", str(tmp_path)).start().awaitTermination(60)
        )  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("'' as job_id", "column 'job_id' of a row is ''"),
        ("0 as attempts", "column 'attempts' of a row is 0"),
        ("-1 as delay_ms", "column 'delay_ms' of a row is -1"),
        ("'soon' as backoff", "column 'backoff' of a row is 'soon'"),
        ("repeat('x', 300) as name", "at most 256 bytes"),
    ],
)
def test_a_row_that_will_not_do_names_its_column(spark, write, columns, words):
    with pytest.raises(PythonException, match=words):
        write(spark.range(1).selectExpr(columns))


def test_a_bad_row_is_told_by_its_place_and_chunks_before_its_own_stay(spark, write, jobs):
    frame = spark.range(7).selectExpr(
        "concat('order-', id) as job_id", "IF(id = 5, 0, 1) as attempts"
    )
    with pytest.raises(PythonException) as told:
        write(frame.coalesce(1), chunkRows="2")
    error = ours(told.value)
    assert type(error) is RowError
    assert error.message == (
        "column 'attempts' of a row is 0: it must be 1 or more: it counts the first run too; "
        "row 6 of partition 0, job_id 'order-5'; earlier chunks stay added"
    )
    assert [envelope.id for _, envelope in jobs()] == [f"order-{number}" for number in range(4)]


def test_the_sink_needs_no_more_than_a_producer_and_what_the_page_adds(
    spark, start_server, write, queue_name
):
    server = start_server("valkey")
    make_users(server, *SINK_RULES)
    client, url = server.client(), server.url.replace("//", "//adds:secret@")
    client.acl_log_reset()
    client.config_resetstat()
    frame = spark.range(3).selectExpr("id", "CAST(id AS STRING) AS job_id", "id % 2 AS delay_ms")
    for _ in range(2):
        write(frame, redis_url=url, runId="once")
    assert client.xlen(QueueKeys(queue_name).stream) == 2
    assert client.zcard(QueueKeys(queue_name).delayed) == 1
    assert {entry["object"] for entry in client.acl_log()} <= PROBES
    stats = client.info("commandstats")
    called = {name.removeprefix("cmdstat_") for name in stats}
    assert [rule for rule in SINK_RULES if rule.removeprefix("+") not in called] == []
