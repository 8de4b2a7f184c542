"""Jobs that together are more than one reply may hold, as a batch: no run is counted twice."""

import pytest

from chasquimq.broker import access
from chasquimq.broker.blocking import BlockingConnection
from chasquimq.broker.options import ConnectionOptions
from chasquimq.broker.url import parse_url
from chasquimq.clock import SYSTEM_CLOCK
from chasquimq.config import ConsumerConfig
from chasquimq.engine.leases import Leases
from chasquimq.errors import ReplyTooLargeError
from chasquimq.spark.batch_hand import Hand
from chasquimq.spark.jobs_source import JobsSource
from chasquimq.wire.keys import QueueKeys
from tests.support.broker_builders import an_entry
from tests.support.raw_queue import GROUP, Held, RawQueue

JOBS, BYTES = 100, 32_768


@pytest.fixture
def raw(server, queue_name, monkeypatch):
    # Of life's size it would be jobs of 32 MB, and a limit of one GiB.
    monkeypatch.setattr(access, "MOST_REPLY_BYTES", 1 << 20)
    return RawQueue(server.client(), QueueKeys(queue_name))


@pytest.fixture
def hand(server, queue_name):
    keys, options = QueueKeys(queue_name), ConnectionOptions()
    config = ConsumerConfig(queue_name=queue_name, consumer_id="batch", group=GROUP)
    connections = [
        BlockingConnection(parse_url(server.url), options, slot_key=keys.tag) for _ in range(2)
    ]
    leases = Leases(
        connections[1], keys, group=GROUP, consumer="batch", lease_ms=30_000, clock=SYSTEM_CLOCK
    )
    yield Hand(connections[0], keys, config, leases)
    for each in connections:
        each.close()


def large(count, size=BYTES):
    """Jobs with a field that nobody reads and every reply has."""
    return [an_entry(f"j{n}") | {"filler": bytes(size)} for n in range(count)]


def test_a_backlog_that_no_reply_can_hold_is_taken_whole_each_job_for_one_run(raw, hand):
    entry_ids = raw.waiting(*large(JOBS))
    runs = hand.take(JOBS)
    assert [each.delivery.entry_id for each in runs] == entry_ids
    assert [each.delivery.deliveries for each in runs] == [0] * JOBS
    assert raw.held() == [Held(entry_id, "batch", 1) for entry_id in entry_ids]


def test_jobs_of_a_dead_worker_that_no_reply_can_hold_count_its_runs_and_one_more(raw, hand):
    entry_ids = raw.waiting(*large(JOBS))
    stream = raw.keys.stream
    for at in range(0, JOBS, 10):
        raw.client.xreadgroup(GROUP, "dead", {stream: ">"}, count=10)
        some = entry_ids[at : at + 10]
        raw.client.xclaim(stream, GROUP, "dead", 0, some, idle=60_000, justid=True)
    runs = hand.take(JOBS)
    assert [each.delivery.deliveries for each in runs] == [1] * JOBS
    assert raw.held() == [Held(entry_id, "batch", 2) for entry_id in entry_ids]


def test_jobs_before_one_that_no_reply_can_hold_are_taken_and_it_counts_no_run(raw, hand):
    entry_ids = raw.waiting(*large(3), *large(1, 2 << 20))
    assert len(hand.take(JOBS)) == 3
    with pytest.raises(ReplyTooLargeError):
        hand.take(JOBS)
    assert raw.held() == [Held(entry_id, "batch", 1) for entry_id in entry_ids[:3]]


@pytest.mark.parametrize("minimum", ["1", "3"])
def test_a_table_of_jobs_that_no_reply_can_hold_has_them_all(raw, server, queue_name, minimum):
    raw.waiting(*large(JOBS))
    options = {"queue": queue_name, "redis_url": server.url, "minPartitions": minimum}
    source = JobsSource(options)
    reader = source.reader(source.schema())
    rows = sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part))
    assert rows == JOBS
