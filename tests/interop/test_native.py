"""The engine-level classes under the names of the native ones: the same calls, the same answers.

Both parties run the same program, so each test is also a test that code written for the native
classes of the reference package runs on ours as it is.
"""

import pytest

from tests.support.party import packed, unpacked

pytestmark = pytest.mark.servers("redis-8.6")

QUICK = {"kind": "fixed", "delay_ms": 20, "jitter_ms": 0}


def bits(value):
    """A payload: the packed value, on its way to a native method."""
    return {"hex": packed(value)}


def call(party, queue, method, *arguments):
    return party.ask("native", queue=queue, method=method, arguments=arguments)


def consume(party, queue, plan=None, **options):
    defaults = {"concurrency": 10, "read_block_ms": 100}
    party.ask("consume", queue=queue, plan=plan or {}, options=defaults | options)


def test_every_way_of_adding_reaches_the_others_consumer(pair, queue_name):
    producer, consumer = pair
    named = {"name": "named", "retry": {"max_attempts": 4, "backoff": QUICK}}
    ids = [
        call(producer, queue_name, "add", bits(0)),
        call(producer, queue_name, "add_with_options", bits(1), named | {"id": "mine"}),
        *call(producer, queue_name, "add_bulk", [bits(2), bits(3)]),
        *call(producer, queue_name, "add_bulk_with_options", [bits(4), bits(5)], named),
        *call(producer, queue_name, "add_bulk_named", [["a", bits(6)], ["", bits(7)]]),
        call(producer, queue_name, "add_in", 30, bits(8)),
        call(producer, queue_name, "add_in_with_options", 30, bits(9), named | {"id": "later"}),
        call(producer, queue_name, "add_at", 1, bits(10)),
        call(producer, queue_name, "add_at_with_options", 1, bits(11), named),
        *call(producer, queue_name, "add_in_bulk", 30, [bits(12), bits(13)]),
    ]
    consume(consumer, queue_name)
    runs = {run.id: (run.name, run.data, run.number) for run in consumer.has_run(*ids)}
    names = ["", "named", "", "", "named", "named", "a", "", "", "named", "", "named", "", ""]
    assert runs == {
        job_id: (name, number, 1)
        for number, (job_id, name) in enumerate(zip(ids, names, strict=True))
    }
    assert (ids[1], ids[9]) == ("mine", "later")


def test_failures_are_retried_then_dead_and_replayed_by_the_other(pair, queue_name):
    producer, consumer = pair
    producer.watch(queue_name)
    options = {"name": "bad", "retry": {"max_attempts": 2, "backoff": QUICK}}
    bad = call(producer, queue_name, "add_with_options", bits("x"), options)
    hopeless = call(producer, queue_name, "add_with_options", bits("y"), {"name": "hard"})
    consume(consumer, queue_name, {"failures": {"bad": 9}, "hopeless": ["hard"]})
    producer.has_seen("dlq", bad, hopeless)
    letters = call(producer, queue_name, "peek_dlq", 10)
    found = {letter["name"]: (letter["reason"], letter["detail"]) for letter in letters}
    assert found == {"bad": ("retries_exhausted", None), "hard": ("unrecoverable", None)}
    consumer.ask("stop")
    assert call(producer, queue_name, "replay_dlq", 10) == 2
    assert call(producer, queue_name, "peek_dlq", 10) == []


def test_results_of_one_are_read_by_the_other(pair, queue_name):
    producer, consumer = pair
    ids = call(producer, queue_name, "add_bulk_named", [["sum", bits(0)], ["none", bits(1)]])
    plan = {"returns": {"sum": packed({"total": 5})}}
    consume(consumer, queue_name, plan, store_results=True)
    consumer.has_run(*ids)
    consumer.ask("stop")
    stored, nothing, unknown = call(producer, queue_name, "get_result_bulk", [*ids, "unknown"])
    assert unpacked(stored) == {"total": 5}
    assert (nothing, unknown) == (None, None)
    assert call(producer, queue_name, "get_result", ids[0]) == stored


def test_delayed_jobs_of_one_are_cancelled_by_the_other(pair, queue_name):
    adder, canceller = pair
    ids = [
        call(adder, queue_name, "add_in_with_options", 60_000, bits(0), {"id": f"later-{number}"})
        for number in range(3)
    ]
    assert call(canceller, queue_name, "cancel_delayed", ids[0]) is True
    answers = call(canceller, queue_name, "cancel_delayed_bulk", [ids[1], ids[0], "unknown"])
    assert answers == [True, False, False]
    assert call(adder, queue_name, "cancel_delayed_bulk", ids) == [False, False, True]


def test_specs_of_one_are_listed_fired_and_removed_by_the_other(pair, queue_name):
    writer, reader = pair
    tick = {
        "key": "mine",
        "job_name": "tick",
        "pattern": {"kind": "every", "interval_ms": 1_000},
        "payload": bits({"n": 1}),
        "limit": 2,
    }
    nightly = {
        "job_name": "nightly",
        "pattern": {"kind": "cron", "expression": "0 2 * * *", "tz": "Europe/London"},
        "payload": bits(None),
        "missed_fires": {"kind": "fire-all", "max_catchup": 3},
    }
    assert call(writer, queue_name, "upsert_repeatable", tick) == "mine"
    key = call(writer, queue_name, "upsert_repeatable", nightly)
    assert key == "nightly::cron:0 2 * * *:Europe/London"
    listed = [without_nones(call(each, queue_name, "list_repeatable", 10)) for each in pair]
    for meta in (each for found in listed for each in found):
        # Ours alone tells these too.
        assert (meta.pop("paused", False), meta.pop("fired", 0)) == (False, 0)
    assert listed[0] == listed[1]
    assert [meta["key"] for meta in listed[0]] == ["mine", key]
    assert listed[0][1]["missed_fires"] == {"kind": "fire-all", "max_catchup": 3}
    assert call(reader, queue_name, "remove_repeatable_by_key", key) is True

    reader.ask("schedule", queue=queue_name, options={"tick_interval_ms": 50, "holder_id": "me"})
    consume(writer, queue_name, run_scheduler=False)
    writer.until(lambda: len(writer.ended) == 2)
    assert [(run.name, run.data) for run in writer.ended] == [("tick", {"n": 1})] * 2


def test_both_name_the_same_keys(ours, theirs, queue_name):
    for method in ("stream_key", "delayed_key", "dlq_key"):
        assert call(ours, queue_name, method, *[]) == call(theirs, queue_name, method, *[])


def without_nones(value):
    """One package leaves out what the other says is None."""
    if isinstance(value, dict):
        return {name: without_nones(each) for name, each in value.items() if each is not None}
    return [without_nones(each) for each in value] if isinstance(value, list) else value
