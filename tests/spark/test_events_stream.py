"""`chasquimq_events` as a stream: nothing lost, nothing twice, and what is missing is said."""

import json

import pytest
from pyspark.errors import StreamingQueryException

from chasquimq.wire.keys import QueueKeys
from tests.support.spark import SPARK_MARKS

pytestmark = SPARK_MARKS


@pytest.fixture
def tell(server, queue_name):
    """`tell(first, last)`: events 1-0 to 1-n, numbered in `attempt`."""
    key = QueueKeys(queue_name).events
    client = server.client()

    def write(first, last):
        pipe = client.pipeline(transaction=False)
        for number in range(first, last + 1):
            pipe.xadd(key, {"e": "active", "attempt": number}, id=f"{1_000 + number}-0")
        pipe.execute()

    return write


@pytest.fixture
def trim(server, queue_name):
    """Drop the oldest events, down to so many."""
    return lambda kept: server.client().xtrim(
        QueueKeys(queue_name).events, maxlen=kept, approximate=False
    )


@pytest.fixture
def lake(spark, tmp_path):
    """The numbers in the lake, and the events."""

    def rows(column="attempt"):
        frame = spark.read.parquet(str(tmp_path / "lake"))
        return sorted(
            row[0] for row in frame.select(column).where(f"{column} is not null").collect()
        )

    return rows


def test_a_stream_ends_when_it_has_caught_up_and_goes_on_from_its_checkpoint(
    tell, stream, to_parquet, lake, queue_name
):
    tell(1, 500)
    first = to_parquet(stream(startingOffsets="earliest", maxOffsetsPerTrigger="200"))
    assert [each["numInputRows"] for each in first.recentProgress] == [200, 200, 100]
    tell(501, 700)
    again = to_parquet(stream(startingOffsets="earliest", maxOffsetsPerTrigger="1000"))

    assert lake() == list(range(1, 701))
    end = json.loads(again.lastProgress["sources"][0]["endOffset"])
    assert end == {queue_name: {"id": "1700-0", "added": 700}}


def test_a_new_stream_begins_with_what_comes_after_it_started(tell, stream, to_parquet, lake):
    tell(1, 5)
    to_parquet(stream())
    tell(6, 9)
    to_parquet(stream())
    assert lake() == [6, 7, 8, 9]


def test_trimming_what_was_read_is_no_loss_and_what_was_not_ends_the_query_or_is_noted(
    spark, tmp_path, tell, trim, stream, to_parquet, lake, queue_name
):
    tell(1, 5)
    to_parquet(stream(startingOffsets="earliest"))
    tell(6, 10)
    trim(5)
    to_parquet(stream(startingOffsets="earliest"))
    assert lake() == list(range(1, 11))

    tell(11, 40)
    trim(5)
    words = rf"queue '{queue_name}': 25 events after 1010-0 are missing, trimmed unread"
    with pytest.raises(StreamingQueryException, match=words):
        to_parquet(stream(startingOffsets="earliest"))

    # A row stands for what is missing if loss is accepted.
    to_parquet(stream(startingOffsets="earliest", failOnDataLoss="false", maxOffsetsPerTrigger="3"))
    assert lake() == [*range(1, 11), *range(36, 41)]
    [gap] = spark.read.parquet(str(tmp_path / "lake")).where("event = 'data-loss'").collect()
    assert (gap.entry_id, gap.lost) == ("1010-0", 25)
    assert "25 events after 1010-0 are missing" in gap.reason


def test_a_stream_that_was_deleted_and_grew_again_is_noticed(
    server, queue_name, tell, stream, to_parquet, lake
):
    tell(1, 10)
    to_parquet(stream(startingOffsets="earliest"))
    server.client().delete(QueueKeys(queue_name).events)
    tell(11, 40)
    with pytest.raises(StreamingQueryException, match="deleted, and has grown again"):
        to_parquet(stream(startingOffsets="earliest"))
    to_parquet(stream(startingOffsets="earliest", failOnDataLoss="false"))
    assert lake() == list(range(1, 41))


def test_a_batch_that_broke_off_is_read_again_and_nothing_of_it_is_twice(
    tell, stream, to_parquet, lake, forget_last_commit
):
    tell(1, 100)
    to_parquet(stream(startingOffsets="earliest", maxOffsetsPerTrigger="50"))
    forget_last_commit()
    tell(101, 120)
    to_parquet(stream(startingOffsets="earliest"))
    assert lake() == list(range(1, 121))


def test_a_limit_is_shared_by_the_queues_that_have_a_backlog(
    server, queue_name, tell, stream, to_parquet
):
    second = f"{queue_name}-second"
    tell(1, 300)
    for number in range(100):
        server.client().xadd(QueueKeys(second).events, {"e": "x"}, id=f"{2_000 + number}-0")
    query = to_parquet(
        stream(
            queue=f"{queue_name},{second}", startingOffsets="earliest", maxOffsetsPerTrigger="200"
        )
    )
    assert [each["numInputRows"] for each in query.recentProgress] == [200, 200]
    ends = json.loads(query.recentProgress[0]["sources"][0]["endOffset"])
    assert [ends[name]["added"] for name in (queue_name, second)] == [150, 50]


def test_an_ending_is_refused_for_a_stream(stream, to_parquet):
    with pytest.raises(StreamingQueryException, match="'endingOffsets' is for a batch only"):
        to_parquet(stream(endingOffsets="latest"))
