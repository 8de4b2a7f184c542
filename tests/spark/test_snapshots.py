"""The state of a queue as tables: jobs, delayed jobs, dead letters, recurring jobs, results."""

import json
from datetime import datetime

import pytest
from pyspark.errors import AnalysisException

from chasquimq.broker.results import OUTCOME_FAILED, OUTCOME_NOTHING, OUTCOME_VALUE
from chasquimq.wire.codec import pack
from chasquimq.wire.entry import DeadLetter, dead_letter_fields
from chasquimq.wire.keys import QueueKeys
from tests.support.broker_builders import BORN_MS, an_envelope
from tests.support.raw_queue import RawQueue
from tests.support.spark import SPARK_MARKS

pytestmark = SPARK_MARKS


@pytest.fixture
def raw(server, queue_name):
    return RawQueue(server.client(), QueueKeys(queue_name))


def born():
    return datetime.fromtimestamp(BORN_MS / 1_000)  # noqa: DTZ006 -- as `collect` gives it


def test_jobs_that_wait_and_jobs_in_flight_are_rows_and_stay_as_they_are(queue, raw, read):
    raw.delivered("worker-1", {"d": an_envelope("running"), "n": b"mail"})
    queue.add("bill", {"to": "ada", "raw": b"\x00"}, attempts=4, backoff=250, job_id="waiting")
    raw.waiting({"d": b"\xc1"}, {"x": b"y"})
    before = raw.everything()

    rows = read("chasquimq_jobs", minPartitions="3", fetchCount="1").orderBy("entry_id").collect()

    running, waiting, broken, empty = rows
    assert (running.state, running.consumer, running.deliveries) == ("active", "worker-1", 1)
    assert (running.job_id, running.name, running.created_at) == ("running", "mail", born())
    assert json.loads(running.payload) == {"k": 1}
    assert (waiting.state, waiting.consumer, waiting.deliveries) == ("waiting", None, 0)
    assert (waiting.max_attempts, json.loads(waiting.backoff)["delay_ms"]) == (4, 250)
    assert json.loads(waiting.payload) == {"to": "ada", "raw": "AA=="}
    assert broken.job_id is None
    assert "not one complete MessagePack value" in broken.problem
    assert (broken.raw, running.raw, empty.raw) == (b"\xc1", None, None)
    assert empty.problem == "the entry holds no job"
    assert raw.everything() == before


def test_a_payload_takes_the_type_a_schema_gives_it_and_what_does_not_fit_is_null(queue, read):
    queue.add("bill", {"to": "ada", "amount": 3, "at": "2026-05-01T10:00:00+00:00", "tags": ["a"]})
    queue.add("bill", {"to": 7, "amount": "much", "more": 1})
    queue.add("bill", [1])
    kind = "to string, amount int, at timestamp, tags array<string>"
    schema = f"payload struct<{kind}>, name string"

    rows = read("chasquimq_jobs", schema=schema).collect()

    assert [row.name for row in rows] == ["bill"] * 3
    first, second, third = (row.payload for row in rows)
    assert (first.to, first.amount, first.tags) == ("ada", 3, ["a"])
    assert first.at.astimezone().isoformat() != ""
    assert first.at.timestamp() == datetime.fromisoformat("2026-05-01T10:00:00Z").timestamp()
    assert (second.to, second.amount, second.at, second.tags) == ("7", None, None, None)
    assert (third.to, third.amount) == (None, None)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("nme string", "the schema names the column 'nme': use queue, entry_id"),
        ("name int", "the schema wants column 'name' as int: it is string"),
    ],
)
def test_a_schema_with_a_column_that_is_not_ours_is_refused(read, schema, words):
    with pytest.raises(AnalysisException, match=words):
        read("chasquimq_jobs", schema=schema).count()


def test_delayed_jobs_are_rows_with_the_time_they_are_due(queue, raw, read):
    for number in range(300):
        queue.add("mail", number, delay_ms=60_000 + number)
    raw.client.zadd(raw.keys.delayed, {b"\x01": 5})

    rows = read("chasquimq_delayed", fetchCount="50").collect()

    assert sorted(int(row.payload) for row in rows if row.payload) == list(range(300))
    assert {row.name for row in rows if row.payload} == {"mail"}
    assert min(row.due_at for row in rows if row.payload) > datetime.now()  # noqa: DTZ005
    [broken] = [row for row in rows if not row.payload]
    assert "too few" in broken.problem


def test_dead_letters_are_rows_with_why_and_where(raw, read):
    letter = DeadLetter(
        "1-1", "retries_exhausted", an_envelope("j1", attempt=2), "mail",
        error="ValueError: no", traceback="line 1", attempts=3, failed_at=BORN_MS, consumer="c",
    )  # fmt: skip
    fields = dead_letter_fields(letter)
    raw.client.xadd(raw.keys.dlq, dict(zip(fields[::2], fields[1::2], strict=True)), id="5-0")
    raw.client.xadd(raw.keys.dlq, {"reason": "malformed", "d": b""}, id="6-0")

    row, broken = read("chasquimq_dlq").orderBy("dlq_id").collect()

    assert (row.dlq_id, row.source_id, row.reason) == ("5-0", "1-1", "retries_exhausted")
    assert (row.job_id, row.name, row.attempts_made, row.attempts) == ("j1", "mail", 2, 3)
    assert (row.error, row.traceback, row.consumer) == ("ValueError: no", "line 1", "c")
    assert row.failed_at == born()
    assert json.loads(row.payload) == {"k": 1}
    assert (broken.reason, broken.problem) == ("malformed", "the entry holds no job")


def test_recurring_jobs_are_rows_with_when_they_fire_next(queue, raw, read):
    queue.add("tidy", {"deep": True}, repeat={"kind": "every", "interval_ms": 60_000}, attempts=2)
    queue.add("report", 1, repeat={"kind": "cron", "expression": "0 2 * * *", "tz": "Europe/Rome"})
    raw.client.zadd(raw.keys.repeat, {"gone": 5})

    rows = {row.key: row for row in read("chasquimq_schedules").collect()}

    every = rows["tidy::every:60000"]
    assert (every.name, every.kind, every.interval_ms) == ("tidy", "every", 60_000)
    assert (every.max_attempts, json.loads(every.payload)) == (2, {"deep": True})
    assert every.next_fire_at > datetime.now()  # noqa: DTZ005
    cron = rows["report::cron:0 2 * * *:Europe/Rome"]
    assert (cron.expression, cron.tz, cron.missed_fires) == ("0 2 * * *", "Europe/Rome", "skip")
    assert (cron.paused, cron.fired) == (False, 0)
    assert rows["gone"].problem == "its hash is gone"


def test_results_are_rows_while_they_are_kept(raw, read):
    keys = raw.keys
    raw.client.set(keys.result("done"), pack({"sum": 3}), px=60_000)
    raw.client.set(keys.outcome("done"), OUTCOME_VALUE, px=90_000)
    raw.client.set(keys.outcome("silent"), OUTCOME_NOTHING, px=90_000)
    raw.client.set(keys.outcome("late"), OUTCOME_VALUE, px=90_000)
    raw.client.set(keys.outcome("dead"), OUTCOME_FAILED + pack(["unrecoverable", "no"]), px=90_000)
    raw.client.set(keys.result("odd"), b"\xc1", px=60_000)

    rows = {row.job_id: row for row in read("chasquimq_results").collect()}

    assert {job_id: row.status for job_id, row in rows.items()} == {
        "done": "ok", "silent": "ok", "late": "expired", "dead": "failed", "odd": "ok",
    }  # fmt: skip
    assert json.loads(rows["done"].value) == {"sum": 3}
    assert (rows["dead"].reason, rows["dead"].error) == ("unrecoverable", "no")
    assert "not one complete" in rows["odd"].problem
    assert rows["done"].expires_at > datetime.now()  # noqa: DTZ005
    typed = read("chasquimq_results", schema="job_id string, value struct<sum: long>").collect()
    assert {row.job_id: row.value and row.value.sum for row in typed}["done"] == 3


@pytest.mark.parametrize("name", ["jobs", "delayed", "dlq", "schedules", "results"])
def test_a_queue_without_any_is_an_empty_table(read, name):
    assert read(f"chasquimq_{name}").count() == 0
