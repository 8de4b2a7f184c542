"""Recurring jobs stored by one package and fired by the other, or by both at the same time."""

import time

import pytest

from chasquimq.wire.keys import QueueKeys
from chasquimq.wire.repeat import window_of
from tests.support.eventually import eventually_sync
from tests.support.party import packed

pytestmark = pytest.mark.servers("redis-8.6")

SECOND = {"kind": "every", "interval_ms": 1_000}


def upsert(party, queue, name, repeat, **options):
    order = {"name": name, "data": packed({"n": name}), "repeat": repeat, "options": options}
    return party.ask("upsert", queue=queue, **order)


@pytest.mark.parametrize(
    "repeat",
    [
        {"kind": "every", "interval_ms": 60_000},
        {"kind": "cron", "expression": "0 2 * * *", "tz": "America/New_York"},
        {"kind": "cron", "expression": "30 0 9 * * MON-FRI"},
    ],
    ids=["every", "cron-tz", "cron-seconds"],
)
def test_a_spec_of_one_is_listed_and_removed_by_the_other(pair, queue_name, repeat):
    writer, reader = pair
    key = upsert(writer, queue_name, "digest", repeat, limit=5)
    seen_by = [party.ask("recurring", queue=queue_name) for party in (writer, reader)]
    assert seen_by[0] == seen_by[1]
    assert seen_by[0][0][:2] == [key, "digest"]
    assert reader.ask("remove_recurring", queue=queue_name, key=key)
    assert not writer.ask("remove_recurring", queue=queue_name, key=key)


def test_a_spec_of_one_is_fired_by_the_other(pair, queue_name):
    writer, worker = pair
    upsert(writer, queue_name, "tick", SECOND, limit=2)
    worker.work(queue_name, scheduler_tick_ms=50)
    worker.until(lambda: len(worker.ended) == 2)
    assert [run.name for run in worker.ended] == ["tick", "tick"]
    assert [run.data for run in worker.ended] == [{"n": "tick"}] * 2
    worker.until(lambda: worker.ask("recurring", queue=queue_name) == [])


@pytest.mark.parametrize("expression", ["@midnight", "0 0 * * 7L"])
def test_the_reference_keeps_and_fires_what_only_we_can_say(
    ours, theirs, queue_name, server, expression
):
    key = upsert(ours, queue_name, "nightly", {"kind": "cron", "expression": expression})
    make_due(server, queue_name, key)
    theirs.work(queue_name, scheduler_tick_ms=50)
    theirs.until(lambda: len(theirs.ended) == 1)
    theirs.until(lambda: next_ms(server, queue_name, key) > time.time() * 1_000)
    assert [listed[0] for listed in theirs.ask("recurring", queue=queue_name)] == [key]


@pytest.mark.parametrize(
    "expression", ["0 0 * * 5#L", "0 0 * * FRI#L", "0 0 * * FRIL", "1,,2 0 * * *"]
)
def test_ours_keeps_and_fires_what_only_the_reference_can_say(
    ours, theirs, queue_name, server, expression
):
    key = upsert(theirs, queue_name, "nightly", {"kind": "cron", "expression": expression})
    following_ms = next_ms(server, queue_name, key)
    make_due(server, queue_name, key)
    ours.work(queue_name, scheduler_tick_ms=50)
    ours.until(lambda: len(ours.ended) == 1)
    # The reference carries the milliseconds of the upsert along.
    assert next_ms(server, queue_name, key) == following_ms // 1_000 * 1_000


def test_schedulers_of_both_fire_every_window_once(ours, theirs, queue_name, server):
    both = (ours, theirs)
    keys = [
        upsert(party, queue_name, party.name, {"kind": "every", "interval_ms": 500}, fire_all=100)
        for party in both
    ]
    first = [next_ms(server, queue_name, key) for key in keys]
    for party in both:
        party.work(queue_name, scheduler_tick_ms=20)

    def runs():
        return [run for party in both for run in party.ended]

    def is_ours(run):
        return window_of(run.id) is not None

    # The lock is gone again and again, and whoever is quicker leads. Only between windows: the
    # reference does not look whether a window that it saw is still there.
    give_up = time.monotonic() + 20
    while min(sum(map(is_ours, runs())), sum(not is_ours(run) for run in runs())) < 4:
        assert time.monotonic() < give_up, "one of the two never led"
        between_windows(server, queue_name, keys)
        server.client().delete(QueueKeys(queue_name).scheduler_lock)
        seen = len(runs())
        eventually_sync(lambda seen=seen: len(runs()) > seen)

    between_windows(server, queue_name, keys)
    last = [next_ms(server, queue_name, key) for key in keys]
    for key in keys:
        assert ours.ask("remove_recurring", queue=queue_name, key=key)
    eventually_sync(lambda: server.client().xlen(QueueKeys(queue_name).stream) == 0)
    windows = [[*range(begin, end, 500)] for begin, end in zip(first, last, strict=True)]
    eventually_sync(lambda: len(runs()) >= sum(map(len, windows)))
    for party, its_windows in zip(both, windows, strict=True):
        fired = [run for run in runs() if run.name == party.name]
        assert len(fired) == len(its_windows)
        told = [run.created_at_ms for run in fired if is_ours(run)]
        assert len(told) == len(set(told))
        assert set(told) <= set(its_windows)


def make_due(server, queue, key):
    server.client().zadd(QueueKeys(queue).repeat, {key: int(time.time() * 1_000)}, xx=True)


def next_ms(server, queue, key):
    return int(server.client().zscore(QueueKeys(queue).repeat, key))


def between_windows(server, queue, keys):
    """Wait until no window is near, and none that has come is left to be fired."""

    def is_far():
        away = [next_ms(server, queue, key) - time.time() * 1_000 for key in keys]
        return min(away) > 150

    eventually_sync(is_far)
