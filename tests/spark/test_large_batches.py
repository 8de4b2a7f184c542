"""Jobs that together are more than one reply may hold, as a batch: no run is counted twice."""

import pytest

from chasquimq import SyncQueue
from chasquimq.broker import access, stream
from chasquimq.broker.blocking import BlockingConnection
from chasquimq.broker.options import ConnectionOptions
from chasquimq.broker.url import parse_url
from chasquimq.clock import SYSTEM_CLOCK
from chasquimq.config import ConsumerConfig
from chasquimq.engine.leases import Leases
from chasquimq.spark.batch_hand import Hand
from chasquimq.spark.delayed_source import DelayedSource
from chasquimq.spark.jobs_source import ChosenJobs, ChosenReader, JobsSource
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


def all_taken(hand, most=JOBS):
    """Every run that the hand takes, table after table."""
    return [run for runs in iter(lambda: hand.take(most), []) for run in runs]


def ids_of(runs):
    return sorted(each.delivery.entry_id for each in runs)


def left_by_the_dead(raw, consumer, many=JOBS):
    """Entries that a worker of this name was given once, a lease ago, and then died."""
    entry_ids, key = raw.waiting(*large(many)), raw.keys.stream
    for at in range(0, many, 10):
        raw.client.xreadgroup(GROUP, consumer, {key: ">"}, count=10)
        some = entry_ids[at : at + 10]
        raw.client.xclaim(key, GROUP, consumer, 0, some, idle=60_000, justid=True)
    return entry_ids


def assert_each_counts_one_run_and_this(raw, runs, entry_ids):
    assert ids_of(runs) == sorted(entry_ids)
    assert [each.delivery.deliveries for each in runs] == [1] * len(entry_ids)
    assert raw.held() == [Held(entry_id, "batch", 2) for entry_id in entry_ids]


def test_a_backlog_that_no_reply_can_hold_is_taken_whole_each_job_for_one_run(raw, hand):
    entry_ids = raw.waiting(*large(JOBS))
    runs = all_taken(hand)
    assert ids_of(runs) == sorted(entry_ids)
    assert [each.delivery.deliveries for each in runs] == [0] * JOBS
    assert raw.held() == [Held(entry_id, "batch", 1) for entry_id in entry_ids]


def test_jobs_of_a_dead_worker_that_no_reply_can_hold_count_its_runs_and_one_more(raw, hand):
    entry_ids = left_by_the_dead(raw, "dead")
    assert_each_counts_one_run_and_this(raw, all_taken(hand), entry_ids)


def test_what_our_own_name_held_before_us_keeps_its_count_though_a_first_page_was_too_large(
    raw, hand
):
    """More than one claim asks for: those behind it were seen by who died, and not by us."""
    entry_ids = left_by_the_dead(raw, "batch", 600)
    assert_each_counts_one_run_and_this(raw, all_taken(hand), entry_ids)


def test_jobs_around_one_that_no_reply_can_hold_are_taken_and_it_waits_for_its_lease(
    raw, hand, caplog
):
    entry_ids = raw.waiting(*large(3), *large(1, 2 << 20), *large(3))
    giant = entry_ids.pop(3)
    with caplog.at_level("WARNING", "chasquimq.spark"):
        assert ids_of(all_taken(hand)) == sorted(entry_ids)
    assert f"entry {giant.decode()} of queue" in caplog.text
    assert all(held.deliveries == 1 for held in raw.held())
    assert hand.take(JOBS) == []


def test_a_table_has_what_is_in_hand_and_nothing_that_a_lost_reply_held(
    raw, hand, server, queue_name, monkeypatch
):
    """Another worker reads while ours learns that its reply was too large."""
    entry_ids = raw.waiting(*large(JOBS))
    pending, others = stream.pending, []

    def with_another_worker(*args, **options):
        reply = raw.client.xreadgroup(GROUP, "other", {raw.keys.stream: ">"}, count=1)
        others.extend(entry_id for _, rows in reply for entry_id, _ in rows)
        return pending(*args, **options)

    monkeypatch.setattr(stream, "pending", with_another_worker)
    raw.client.xadd(raw.keys.stream, an_entry("late"))
    seen = []
    while runs := hand.take(JOBS // 2):
        assert len(runs) <= JOBS // 2
        ours = [each.delivery.entry_id for each in runs]
        assert table_of(server, queue_name, ours) == ours
        seen += ours
    assert others
    assert sorted(seen + others) == sorted(raw.entry_ids())
    assert set(entry_ids) <= set(seen + others)


def table_of(server, queue_name, entry_ids, **options):
    """The entry ids in a table of some entries, as tasks would read it."""

    class Chosen(ChosenJobs):
        pass

    Chosen.entry_ids = tuple(entry_ids)
    source = Chosen({"queue": queue_name, "redis_url": server.url} | options)
    reader = source.reader(source.schema())
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return [each.encode() for batch in batches for each in batch["entry_id"].to_pylist()]


def test_a_table_of_chosen_jobs_has_those_that_are_there_in_parts(raw, server, queue_name):
    entry_ids = raw.waiting(*large(JOBS))
    raw.client.xdel(raw.keys.stream, entry_ids[7])
    wanted = [*entry_ids[::2], entry_ids[7]]
    for minimum in ("1", "3"):
        assert table_of(server, queue_name, wanted, minPartitions=minimum) == entry_ids[::2]


def test_a_page_of_chosen_jobs_is_no_larger_than_it_need_be(raw, server, queue_name):
    """Each comes in a reply of its own, and none of these is too large."""
    entry_ids = raw.waiting(*large(1_000))
    source = ChosenJobs({"queue": queue_name, "redis_url": server.url})
    reader = ChosenReader(source.typed, source.schema(), tuple(entry_ids))
    [part] = reader.partitions()
    sizes = [batch.num_rows for batch in reader.read(part)]
    assert (sum(sizes), sizes[0]) == (1_000, 100)
    assert max(sizes[1:]) * BYTES <= 4 << 20


def test_after_large_jobs_many_small_ones_are_asked_for_at_once_again(raw, hand):
    raw.waiting(*large(2, 700_000))
    for at in range(3):
        raw.waiting(*[an_entry(f"s{at}-{n}") for n in range(500)])
    asked = reads(raw)
    assert len(all_taken(hand, 2_000)) == 1_502
    assert reads(raw) - asked < 20


def reads(raw):
    return raw.client.info("commandstats").get("cmdstat_xreadgroup", {"calls": 0})["calls"]


def test_a_table_of_delayed_jobs_that_no_reply_can_hold_has_them_all(raw, server, queue_name):
    with SyncQueue(queue_name, redis_url=server.url) as queue:
        queue.add_bulk([{"name": "n", "data": bytes(BYTES), "delay_ms": 60_000}] * JOBS)
    source = DelayedSource({"queue": queue_name, "redis_url": server.url})
    reader = source.reader(source.schema())
    rows = sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part))
    assert rows == JOBS


@pytest.mark.parametrize("minimum", ["1", "3"])
def test_a_table_of_jobs_that_no_reply_can_hold_has_them_all(raw, server, queue_name, minimum):
    raw.waiting(*large(JOBS))
    options = {"queue": queue_name, "redis_url": server.url, "minPartitions": minimum}
    source = JobsSource(options)
    reader = source.reader(source.schema())
    rows = sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part))
    assert rows == JOBS
