"""`chasquimq_events` in a batch: every event is a row, typed, from any number of queues."""

from datetime import UTC, datetime

import pytest
from pyspark.errors import AnalysisException

from chasquimq import SyncQueue
from chasquimq.wire.keys import QueueKeys
from tests.support.spark import SPARK_MARKS

pytestmark = SPARK_MARKS


def tell(server, queue_name, *events):
    """Write events as they are, with ids of the test's choosing."""
    key = QueueKeys(queue_name).events
    for entry_id, fields in events:
        server.client().xadd(key, fields, id=entry_id)


def test_an_event_is_a_row_with_every_field_typed(server, queue_name, read):
    fields = {
        "e": "failed", "id": "j1", "ts": 1_700_000_000_005, "n": "mail", "attempt": 2, "wait_ms": 7,
        "created_at_ms": 1_700_000_000_001, "duration_us": 250, "backoff_ms": 100, "delay_ms": 50,
        "reason": "no route", "progress": 40, "prev": "active", "new": "?",
    }  # fmt: skip
    broken = {"e": "active", "id": b"\xff", "attempt": "many", "ts": "soon", "n": ""}
    tell(server, queue_name, ("1700000000009-3", fields), ("1700000000009-4", broken))

    whole, odd = [
        row.asDict()
        for row in read("chasquimq_events", includeHeaders="true").orderBy("entry_seq").collect()
    ]

    assert whole == {
        "queue": queue_name,
        "entry_id": "1700000000009-3",
        "entry_at": at(1_700_000_000_009),
        "entry_seq": 3,
        "event": "failed",
        "event_at": at(1_700_000_000_005),
        "job_id": "j1",
        "name": "mail",
        "attempt": 2,
        "wait_ms": 7,
        "created_at": at(1_700_000_000_001),
        "duration_us": 250,
        "backoff_ms": 100,
        "delay_ms": 50,
        "reason": "no route",
        "progress": 40,
        "prev": "active",
        "lost": None,
        "headers": {"new": "?"},
    }
    assert (odd["event"], odd["job_id"], odd["headers"]) == ("active", "\ufffd", {})
    assert [odd[name] for name in ("attempt", "event_at", "name", "wait_ms")] == [None] * 4


def at(ms):
    """What `collect` makes of an instant: it knows no zone but that of this machine."""
    return datetime.fromtimestamp(ms / 1_000, UTC).astimezone().replace(tzinfo=None)


def test_queues_are_read_together_in_ranges_that_leave_out_and_repeat_nothing(
    server, queue_name, read
):
    second = f"{queue_name}-second"
    tell(server, queue_name, *((f"{1_000 + at}-0", {"e": "waiting"}) for at in range(900)))
    tell(server, second, *((f"1000-{at + 1}", {"e": "waiting"}) for at in range(100)))

    both = read(
        "chasquimq_events", queue=f"{queue_name}, {second}", minPartitions="5", fetchCount="70"
    )
    rows = [(row.queue, row.entry_id) for row in both.select("queue", "entry_id").collect()]

    assert both.rdd.getNumPartitions() >= 4
    assert sorted(rows) == sorted(
        [(queue_name, f"{1_000 + at}-0") for at in range(900)]
        + [(second, f"1000-{at + 1}") for at in range(100)]
    )


@pytest.mark.parametrize(
    ("start", "end", "seen"),
    [
        ("earliest", "latest", [1, 2, 3, 4]),
        ("2000-0", "4000-0", [2, 3]),
        ("1970-01-01T00:00:02Z", "1970-01-01T00:00:03.001", [2, 3]),
        ("2000", "latest", [2, 3, 4]),
        ("latest", "earliest", []),
        ('{"QUEUE": "3000-0"}', '{"QUEUE": "latest"}', [3, 4]),
        ("4000-0", "4000-0", []),
    ],
)
def test_a_batch_goes_from_one_place_up_to_another(server, queue_name, read, start, end, seen):
    tell(server, queue_name, *((f"{at}000-0", {"e": "waiting", "ts": at}) for at in (1, 2, 3, 4)))

    frame = read(
        "chasquimq_events",
        startingOffsets=start.replace("QUEUE", queue_name),
        endingOffsets=end.replace("QUEUE", queue_name),
    )

    assert sorted(int(row.entry_id[0]) for row in frame.select("entry_id").collect()) == seen


def test_a_schema_of_fewer_columns_reads_only_those(server, queue_name, read):
    tell(server, queue_name, ("1-1", {"e": "waiting", "id": "j1"}))
    frame = read("chasquimq_events", schema="event string, job_id string")
    assert [tuple(row) for row in frame.collect()] == [("waiting", "j1")]


def test_a_frame_gives_every_query_over_it_all_its_rows(server, queue_name, read):
    """With push-down on, as here, Spark would read the second query from the plan of the first."""
    tell(server, queue_name, *((f"{at}000-0", {"e": "waiting"}) for at in range(1, 9)))
    frame = read("chasquimq_events", minPartitions="8")

    assert frame.where("entry_at > timestamp'1970-01-01 00:00:05Z'").count() == 3
    assert frame.count() == 8


def test_a_queue_that_was_never_used_is_an_empty_table(read):
    assert read("chasquimq_events").count() == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"startingOffset": "latest"},
            r"option 'startingoffset' is not known: use redis_url, queue,",
        ),
        (
            {"startingOffsets": "first"},
            r"option 'startingOffsets' is 'first': use earliest, latest",
        ),
        ({"minPartitions": "0"}, r"option 'minPartitions' is '0': use a whole number, 1 or more"),
        ({"failOnDataLoss": "no"}, r"option 'failOnDataLoss' is 'no': use true or false"),
        ({"queue": "a,,b"}, r"option 'queue' is 'a,,b' \(queue name '' is blank"),
        ({"redis_url": "redis://:hush@h:1/x"}, r"redis_url: "),
        ({"redis_url": "embedded://"}, r"private to one process"),
        ({"maxOffsetsPerTrigger": "5"}, r"'maxOffsetsPerTrigger' is for a stream only"),
        (
            {"startingOffsets": "4000-0", "endingOffsets": "1970-01-01T00:00:02Z"},
            r"'endingOffsets' is 2000-0 for queue '.*', which is before option 'starting",
        ),
        ({"pushFilters": "true"}, r"option 'pushfilters' is not known"),
    ],
)
def test_an_option_that_will_not_do_is_named_when_the_query_is_planned(read, options, words):
    with pytest.raises(AnalysisException, match=words) as refused:
        read("chasquimq_events", **options).count()
    assert "hush" not in str(refused.value)


def test_events_of_real_jobs_are_read(queue, read):
    queue.add("mail", {"to": "ada"})
    queue.add("mail", {"to": "bob"}, delay_ms=60_000)
    rows = read("chasquimq_events").select("event", "name", "delay_ms").collect()
    assert [(row.event, row.name) for row in rows] == [("waiting", "mail"), ("delayed", "mail")]
    assert rows[1].delay_ms == 60_000


def test_a_second_queue_is_unharmed_by_reading(server, queue_name, read):
    with SyncQueue(queue_name, redis_url=server.url) as queue:
        queue.add("mail", 1)
        before = queue.counts()
        read("chasquimq_events").count()
        assert queue.counts() == before
