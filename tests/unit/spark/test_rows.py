"""Rows become jobs whose ids stay the same; user data takes the type it is asked for."""

import dataclasses
import re
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from chasquimq.broker.runs import RunJob
from chasquimq.errors import ConfigError
from chasquimq.spark import schemas
from chasquimq.spark.batches import arrow_schema, batch
from chasquimq.spark.data import as_json, shaped
from chasquimq.spark.event_rows import event_columns, loss_columns
from chasquimq.spark.job_rows import job_row
from chasquimq.spark.jobs_source import JobsReader
from chasquimq.spark.offsets import Loss
from chasquimq.spark.options import JobsOptions, SinkOptions, read_options
from chasquimq.spark.sink_rows import JobMaker, layout
from chasquimq.wire.codec import unpack
from chasquimq.wire.envelope import decode, encode_job
from chasquimq.wire.ids import StreamId, ulid_time_ms

OPTIONS = read_options(SinkOptions, {"queue": "q", "redis_url": "redis://h:1"})
SCHEMA = StructType([StructField("name", StringType()), StructField("n", LongType())])


def ids_of(rows, *, run_id="r", partition=0):
    maker = JobMaker(layout(SCHEMA, OPTIONS), OPTIONS, run_id, partition)
    batch = pa.RecordBatch.from_pylist([{"name": name, "n": n} for name, n in rows])
    return [job.id for job in maker.jobs(batch, 1_700_000_000_000)]


ROWS = [("mail", number % 40) for number in range(100)] + [(None, 1)]


def test_ids_are_the_same_in_any_order_and_none_is_twice():
    mixed = Random(7).sample(ROWS, len(ROWS))  # noqa: S311 -- any order will do
    assert Counter(ids_of(ROWS)) == Counter(ids_of(mixed))
    assert len(set(ids_of(ROWS))) == len(ROWS)


@pytest.mark.parametrize("backoff", ["soon", '{"kind":' * 1_000])
def test_a_backoff_that_is_none_is_told_with_its_column(backoff):
    schema = StructType([StructField("backoff", StringType())])
    maker = JobMaker(layout(schema, OPTIONS), OPTIONS, "r", 0)
    batch = pa.RecordBatch.from_pylist([{"backoff": backoff}])
    [unfit] = maker.jobs(batch, 1_700_000_000_000)
    assert re.match(r"column 'backoff' of a row is '.{4,83}': it must be ms", unfit.problem)


def test_equal_rows_of_other_runs_and_partitions_are_other_jobs():
    one, other, elsewhere = ids_of(ROWS), ids_of(ROWS, run_id="s"), ids_of(ROWS, partition=1)
    assert len({*one, *other, *elsewhere}) == 3 * len(ROWS)


def test_with_an_origin_ids_are_made_of_places_wherever_the_task_runs():
    """Two files are read by one task, or by two: the jobs are the same, and equal rows are two."""
    options = dataclasses.replace(OPTIONS, origin_column="from")
    schema = StructType([StructField("from", StringType()), StructField("n", LongType())])
    rows = [{"from": name, "n": 1} for name in "aabbb"]

    def ids(rows, partition, run_id="r"):
        maker = JobMaker(layout(schema, options), options, run_id, partition)
        made = list(maker.jobs(pa.RecordBatch.from_pylist(rows), 1_700_000_000_000))
        assert {unpack(decode(job.envelope).packed_data)["n"] for job in made} == {1}
        return [job.id for job in made]

    assert ids(rows, 0) == ids(rows[:2], 0) + ids(rows[2:], 1)
    assert len({*ids(rows, 0), *ids(rows, 0, "s")}) == 2 * len(rows)


def test_a_row_that_cannot_be_a_job_is_named_by_its_place_and_the_others_go_on():
    options = dataclasses.replace(OPTIONS, origin_column="from")
    schema = StructType([StructField("from", StringType()), StructField("attempts", LongType())])
    rows = [{"from": "f.csv", "attempts": number} for number in (1, 0, 2)]
    maker = JobMaker(layout(schema, options), options, "r", 0)
    first, second, third = maker.jobs(pa.RecordBatch.from_pylist(rows), 1_700_000_000_000)
    assert (type(first), type(third)) == (RunJob, RunJob)
    assert str(second) == (
        "column 'attempts' of a row is 0: it must be 1 or more: it counts the first run too, "
        "row 2 of f.csv"
    )


def test_a_row_without_its_origin_cannot_be_a_job():
    options = dataclasses.replace(OPTIONS, origin_column="name")
    maker = JobMaker(layout(SCHEMA, options), options, "r", 0)
    [unfit] = maker.jobs(pa.RecordBatch.from_pylist([{"name": None, "n": 1}]), 1_700_000_000_000)
    assert str(unfit).startswith("column 'name' of a row is None: it must be text")


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"job_id": "x" * 1_025}, "column 'job_id' of a row is 'xxx"),
        ({"delay_ms": 2**63 - 1}, "column 'delay_ms' of a row is 9223372036854775807: it must be "),
        ({"run_at": 1_700_000_000_000_000}, "column 'run_at' of a row is 1700000000000000: it mus"),
    ],
)
def test_what_a_queue_would_refuse_cannot_be_a_job(row, told):
    kinds = {"job_id": StringType(), "delay_ms": LongType(), "run_at": LongType()}
    schema = StructType([StructField(name, kinds[name]) for name in row])
    maker = JobMaker(layout(schema, OPTIONS), OPTIONS, "r", 0)
    [unfit] = maker.jobs(pa.RecordBatch.from_pylist([row]), 1_700_000_000_000)
    assert str(unfit).startswith(told)


@pytest.mark.parametrize("name", ["nowhere", "n"])
def test_an_origin_must_be_a_column_of_text(name):
    options = dataclasses.replace(OPTIONS, origin_column=name)
    with pytest.raises(ConfigError, match=f"option 'originColumn' is '{name}': use a column of te"):
        layout(SCHEMA, options)


def test_an_id_is_not_taken_for_one_that_holds_a_time():
    assert {ulid_time_ms(each) for each in ids_of(ROWS)} == {None}


@pytest.mark.parametrize(
    ("value", "kind", "as_type"),
    [
        (5, IntegerType(), 5),
        (5.0, IntegerType(), 5),
        (5.5, IntegerType(), None),
        (1 << 31, IntegerType(), None),
        (1 << 31, LongType(), 1 << 31),
        ("5", IntegerType(), None),
        (5, DoubleType(), 5.0),
        ("many", DoubleType(), None),
        (True, BooleanType(), True),
        (1, BooleanType(), None),
        (b"x", BinaryType(), b"x"),
        ({"a": 1}, StringType(), '{"a": 1}'),
        ("text", StringType(), "text"),
        ("1.005", DecimalType(5, 2), Decimal("1.00")),
        ("123456", DecimalType(5, 2), None),
        ("2026-05-01", DateType(), date(2026, 5, 1)),
        ("soon", DateType(), None),
        ("2026-05-01T00:00:00+00:00", TimestampType(), datetime(2026, 5, 1, tzinfo=UTC)),
        ([1, "x"], ArrayType(LongType()), [1, None]),
        (7, ArrayType(LongType()), None),
        ({"a": 1}, MapType(StringType(), LongType()), [("a", 1)]),
        ({"n": "x"}, SCHEMA, {"name": None, "n": None}),
        (None, SCHEMA, None),
    ],
)
def test_a_value_takes_the_type_asked_for_or_is_null_there(value, kind, as_type):
    assert shaped(value, kind) == as_type


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [1, None, "é"]}, '{"a": [1, null, "é"]}'),
        (b"\x00\xff", '"AP8="'),
        ({1: 2, (3, 4): b""}, '{"1": 2, "[3, 4]": ""}'),
        (datetime(2026, 5, 1, tzinfo=UTC), '"2026-05-01T00:00:00+00:00"'),
    ],
)
def test_anything_a_payload_can_hold_is_json(value, text):
    assert as_json(value) == text


@pytest.mark.parametrize(
    ("wanted", "is_unpacked"),
    [("job_id", False), ("job_id payload", True), ("job_id problem", True), ("raw", True)],
)
def test_a_payload_is_unpacked_only_for_columns_that_tell_of_it(wanted, is_unpacked):
    columns = tuple(each for each in schemas.JOBS if each.name in wanted.split())
    options = read_options(JobsOptions, {"queue": "q", "redis_url": "redis://h:1"})
    reader = JobsReader(options, schemas.struct(columns))
    entry = (b"1-0", [b"d", encode_job("a", b"\xc1", 0)])
    row = job_row("q", entry, None, reader.shape())
    assert row["job_id"] == "a"
    assert ("problem" in row) is is_unpacked


def test_events_with_numbers_beyond_every_column_are_still_rows():
    huge = str((1 << 64) - 1).encode()
    fields = [b"e", b"x", b"ts", huge, b"attempt", str(1 << 40).encode(), b"wait_ms", huge]
    page = [[b"5-1", [b"e", b"y", b"ts", b"7", b"attempt", b"2"]], [huge + b"-" + huge, fields]]
    schema = arrow_schema(schemas.struct(schemas.EVENTS))
    even, odd = batch(schema, event_columns("q", page, frozenset(schema.names))).to_pylist()
    assert [odd[name] for name in ("entry_at", "entry_seq", "event_at", "attempt", "wait_ms")] == [
        None
    ] * 5
    assert (even["event_at"], even["attempt"]) == (datetime.fromtimestamp(0.007, UTC), 2)
    [gap] = batch(schema, loss_columns("q", Loss(StreamId.MAX, "gone"))).to_pylist()
    assert (gap["event"], gap["entry_at"]) == ("data-loss", None)


@pytest.mark.parametrize(
    "ids",
    [
        [(5, 1), (7, 2)],
        [(999_999_999_999, 3), (1_000_000_000_000, 0)],
        [(1_767_225_600_000, 0), (1_767_225_600_000, 12), (1_767_225_600_001, 0)],
        [(1_767_225_600_000, 0), (10_000_000_000_000, 4)],
        [(10_000_000_000_000, 123), (10_000_000_000_000, 124)],
    ],
)
def test_an_entry_id_of_any_length_gives_its_time_and_its_place(ids):
    page = [[b"%d-%d" % each, [b"e", b"x"]] for each in ids]
    wanted = frozenset(("entry_id", "entry_at", "entry_seq"))
    found = event_columns("q", page, wanted)
    assert found["entry_id"].to_pylist() == [f"{ms}-{seq}" for ms, seq in ids]
    assert found["entry_at"].to_pylist() == [ms for ms, _ in ids]
    assert found["entry_seq"].to_pylist() == [seq for _, seq in ids]


def test_the_first_of_equal_fields_counts_and_an_empty_one_is_none():
    fields = [b"e", b"x", b"e", b"y", b"n", b"", b"zone", b"a", b"zone", b"b", b"hop", b"1"]
    found = event_columns("q", [[b"5-1", fields]], frozenset(("event", "name", "headers")))
    assert found["event"].to_pylist() == ["x"]
    assert found["name"].to_pylist() == [None]
    assert found["headers"] == [[("zone", "a"), ("hop", "1")]]
