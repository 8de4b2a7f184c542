"""Recurring jobs stored by one package and fired by the other, or by both at the same time."""

import pytest

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


def test_schedulers_of_both_fire_every_window_once(ours, theirs, queue_name):
    for party in (ours, theirs):
        party.work(queue_name, scheduler_tick_ms=50)
    upsert(ours, queue_name, "mine", SECOND, limit=3)
    upsert(theirs, queue_name, "theirs", SECOND | {"interval_ms": 1_001}, limit=3)
    ours.until(lambda: len(ours.ended) + len(theirs.ended) >= 6)
    ours.until(lambda: ours.ask("recurring", queue=queue_name) == [])
    names = sorted(run.name for party in (ours, theirs) for run in party.ended)
    assert names == ["mine"] * 3 + ["theirs"] * 3
