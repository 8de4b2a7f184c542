"""Upkeep and clearing as steps: what happens between two of them, and after an interruption."""

import pytest

from chasquimq.broker import delayed
from chasquimq.broker.blocking import BlockingConnection
from chasquimq.broker.options import ConnectionOptions
from chasquimq.broker.seek import Pace, Pages, find_entry
from chasquimq.broker.url import parse_url
from chasquimq.config import ProducerConfig
from chasquimq.engine.producing import Producing
from chasquimq.wire.envelope import decode
from chasquimq.wire.keys import QueueKeys
from tests.support import driving
from tests.support.broker_builders import a_member, an_entry, an_envelope
from tests.support.raw_queue import RawQueue


@pytest.fixture
def raw(server, queue_name):
    return RawQueue(server.client(), QueueKeys(queue_name))


@pytest.fixture
def run(server, raw):
    connection = BlockingConnection(
        parse_url(server.url), ConnectionOptions(), slot_key=raw.keys.tag
    )
    yield connection.run
    connection.close()


@pytest.fixture
def producing(queue_name):
    return Producing(ProducerConfig(queue_name=queue_name))


def interrupted(run, steps, calls):
    """Carry out so many calls, then stop as a killed process does; whether there were more."""
    answer = None
    for _ in range(calls):
        try:
            call = steps.send(answer)
        except StopIteration:
            return False
        answer = run(call)
    steps.close()
    return True


def promote(run, keys):
    run(
        delayed.promote(
            keys, holder="h", lock_ttl_s=5, batch=100, capacity=100, events_cap=0, dlq_cap=10
        )
    )


@pytest.mark.parametrize("change", ["remove", "update_data"])
@pytest.mark.parametrize("before_call", range(5))
def test_a_job_that_is_promoted_while_it_is_looked_for_is_found(
    run, raw, producing, change, before_call
):
    """Without an index, so that it is looked for in the stream, then in the set."""
    raw.client.zadd(raw.keys.delayed, {a_member("a"): 1})
    raw.waiting(an_entry("b"))
    arguments = ("a",) if change == "remove" else ("a", b"\x05")
    calls = iter(range(100))

    def run_after_promotion(call):
        if next(calls) == before_call:
            promote(run, raw.keys)
        return run(call)

    steps = getattr(producing.upkeep, change)(*arguments)
    assert driving.drive(run_after_promotion, steps) is True
    jobs = {decode(entry["d"]).id: decode(entry["d"]) for entry in raw.stream()}
    jobs |= {decode(member[8:]).id: decode(member[8:]) for member, _ in raw.delayed()}
    if change == "remove":
        assert set(jobs) == {"b"}
    else:
        assert jobs["a"].payload == b"\x05"


@pytest.fixture
def crowded(raw):
    """A queue of many pages: 700 jobs that wait, 700 that are delayed, 700 dead, 700 done."""
    pipeline = raw.client.pipeline()
    raw.waiting(an_entry("first"))
    for n in range(700):
        pipeline.xadd(raw.keys.stream, an_entry(f"w{n}"))
        pipeline.set(raw.keys.dedup_marker(f"w{n}"), "1", ex=60)
        pipeline.zadd(raw.keys.delayed, {a_member(f"d{n}"): n})
        pipeline.xadd(raw.keys.dlq, {"d": an_envelope(f"f{n}"), "reason": "unrecoverable"})
        pipeline.set(raw.keys.outcome(f"c{n}"), b"v5", ex=60)
    pipeline.execute()


@pytest.mark.parametrize("calls", [2, 3, 5])
@pytest.mark.parametrize(
    ("make", "left"),
    [
        (lambda p: p.clearing.drain(delayed_too=True, dry_run=False), {"stream", "delayed"}),
        (
            lambda p: p.clearing.clean("waiting", grace_ms=0, limit=9_999, dry_run=False),
            {"stream"},
        ),
        (
            lambda p: p.clearing.clean("delayed", grace_ms=0, limit=9_999, dry_run=False),
            {"delayed"},
        ),
        (lambda p: p.clearing.clean("failed", grace_ms=0, limit=9_999, dry_run=False), {"dlq"}),
        (
            lambda p: p.clearing.clean("completed", grace_ms=0, limit=9_999, dry_run=False),
            {"outcome"},
        ),
        (lambda p: p.clearing.obliterate(force=False, dry_run=False), {"stream", "outcome", "dlq"}),
    ],
    ids=["drain", "waiting", "delayed", "failed", "completed", "obliterate"],
)
def test_what_was_interrupted_leaves_a_smaller_queue_and_is_finished_by_another_call(
    run, raw, producing, crowded, make, left, calls
):
    def count(kind):
        return sum(
            len(value) if isinstance(value, list) else 1
            for name, value in raw.everything().items()
            if name.partition(":")[0] == kind
        )

    before = {kind: count(kind) for kind in left}
    was_cut = interrupted(run, make(producing), calls)
    middle = {kind: count(kind) for kind in left}
    assert all(middle[kind] <= before[kind] for kind in left)
    assert was_cut
    driving.drive(run, make(producing))
    assert {kind: count(kind) for kind in left} == dict.fromkeys(left, 0)
    # A job's marker goes with the job: none is left that would keep an id taken for nothing.
    markers = {name[5:] for name in raw.everything() if name.startswith("dlid:")}
    assert markers == {decode(entry["d"]).id for entry in raw.stream()} - {"first"}


def test_a_drain_leaves_what_was_added_after_it_began(run, raw, producing, crowded):
    calls = iter(range(1_000))

    def run_beside_a_producer(call):
        raw.waiting(an_entry(f"new{next(calls)}"))
        return run(call)

    drained = driving.drive(
        run_beside_a_producer, producing.clearing.drain(delayed_too=False, dry_run=False)
    )
    assert drained == 701 + 1  # one came before the newest was looked for
    assert all(decode(entry["d"]).id.startswith("new") for entry in raw.stream())


# --- pages


def test_pages_grow_with_small_records_and_shrink_with_large_ones():
    pace = Pace()
    assert pace.count == 100
    pace.heed(100, 100 * 50)
    assert pace.count == 500
    pace.heed(500, 500 * 50)
    pace.heed(1_000, 1_000 * 50)
    assert pace.count == 1_000
    pace.heed(1_000, 1_000 << 20)
    assert pace.count == 4
    pace.heed(0, 0)
    assert pace.count == 4
    pace.heed(4, 4 << 30)
    assert pace.count == 1


def test_a_pace_asks_for_as_many_as_it_was_told_and_for_no_more_than_is_wanted():
    asked = []

    def ask(count):
        asked.append(count)
        return count

    pace = Pace(5_000, 5_000)
    for most in (None, 20, None):
        driving.drive(lambda count: count, pace.page(ask, most))
    assert asked == [5_000, 20, 5_000]


@pytest.mark.parametrize("backwards", [False, True])
def test_a_stream_is_walked_whole_in_both_directions(run, raw, backwards):
    entry_ids = raw.waiting(*(an_entry(f"j{n}") for n in range(250)))
    pages = Pages(raw.keys.stream, backwards=backwards)
    seen = []
    while not pages.is_over:
        seen += [row[0] for row in driving.drive(run, pages.next())]
    assert seen == (entry_ids[::-1] if backwards else entry_ids)
    assert driving.drive(run, pages.next()) == []


def test_an_entry_is_looked_for_behind_another_only(run, raw):
    first, second = raw.waiting(an_entry("a"), an_entry("b"))
    found = driving.drive(run, find_entry(raw.keys, "b", after=first))
    assert (found.entry_id, found.name, found.envelope.id) == (second, "mail", "b")
    assert driving.drive(run, find_entry(raw.keys, "a", after=first)) is None
