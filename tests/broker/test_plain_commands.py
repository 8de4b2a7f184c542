"""The calls that need no script: read, look, tell, and the direct add of new servers."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from chasquimq.broker import dlq, events, results, stream
from chasquimq.broker.results import Kept
from chasquimq.broker.stream import Added
from chasquimq.errors import ServerReplyError
from chasquimq.wire.event import QueueEvent, event_fields
from tests.support.broker_builders import (
    SILENT,
    TELLING,
    TOLD_MS,
    a_job,
    an_entry,
    an_envelope,
)
from tests.support.eventually import eventually_sync
from tests.support.raw_queue import GROUP, Held


@pytest.fixture
def read(keys):
    def call(consumer="c1", *, count=10, block_ms=0, claim_min_idle_ms=None):
        return stream.read(
            keys,
            GROUP,
            consumer,
            count=count,
            block_ms=block_ms,
            claim_min_idle_ms=claim_min_idle_ms,
        )

    return call


# --- the main stream


def test_new_entries_are_read_in_order_up_to_the_count(run, raw, read):
    entry_ids = raw.waiting(an_entry("j1", "mail"), an_entry("j2", ""), an_entry("j3"))

    first, second = run(read(count=2))

    assert (first.entry_id, first.data, first.name) == (entry_ids[0], an_envelope("j1"), "mail")
    assert (second.entry_id, second.data, second.name) == (entry_ids[1], an_envelope("j2"), "")
    assert (first.idle_ms, first.deliveries, first.fields_missing) == (0, 0, False)
    assert raw.held() == [Held(entry_ids[0], "c1", 1), Held(entry_ids[1], "c1", 1)]


def test_an_empty_stream_gives_nothing_at_once_or_after_the_block(run, raw, read):
    raw.waiting()

    assert run(read()) == []
    assert run(read(block_ms=1)) == []


def test_a_read_without_a_group_says_so(run, read):
    with pytest.raises(ServerReplyError) as refused:
        run(read())
    assert refused.value.kind == "NOGROUP"


def test_a_blocked_read_ends_when_it_is_told_to(run, connect, raw, server, read):
    raw.waiting()
    reader = connect()
    client_id = reader.ready().client_id
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(reader.run, read(block_ms=20_000))
        eventually_sync(lambda: server.client().info("clients")["blocked_clients"] >= 1)
        assert run(stream.unblock(client_id)) is True
        assert reading.result(timeout=10) == []

    assert run(stream.unblock(client_id)) is False


def test_the_book_tells_what_a_consumer_holds_and_how_often_before(run, raw, keys):
    (first, _, third) = raw.delivered("c1", an_entry("a"), an_entry("b"), an_entry("c"))
    raw.claimed("c2", [first, third])
    raw.silent_for(40_000, consumer="c2", entry_id=first, deliveries=0)

    held = run(stream.pending(keys, GROUP, "c2"))

    assert [(each.entry_id, each.deliveries, each.data) for each in held] == [
        (first, 0, None),
        (third, 1, None),
    ]
    assert held[0].idle_ms >= 40_000


def test_the_depth_counts_waiting_and_in_flight(run, raw, keys):
    assert run(stream.depth(keys)) == 0
    raw.delivered("c1", an_entry("a"))
    raw.waiting(an_entry("b"))

    assert run(stream.depth(keys)) == 2


def add_directly(keys, job, *, telling, counting=True):
    """The call of a single add."""
    return stream.add_one(keys, job, producer_id="p1", telling=telling, counting=counting)


@pytest.mark.servers("redis-8.6")
def test_a_job_is_added_directly_and_told(run, raw, keys):
    answer = run(add_directly(keys, a_job("j1"), telling=TELLING))

    assert answer == Added(count=1, depth=1)
    assert sorted(raw.everything()) == ["events", "held", "stream"]
    assert raw.stream() == [an_entry("j1")]
    assert raw.events() == [f"e=waiting id=j1 ts={TOLD_MS} n=mail"]


@pytest.mark.servers("redis-8.6")
def test_a_direct_add_that_is_sent_again_adds_nothing(run, raw, keys):
    call = add_directly(keys, a_job("j1", ""), telling=SILENT)
    assert run(call) == Added(count=1, depth=1)

    assert run(call) == Added(count=1, depth=1)
    assert raw.stream() == [an_entry("j1", "")]
    assert raw.events() == []


@pytest.mark.servers("redis-8.6")
def test_a_direct_add_need_not_ask_for_the_depth(run, raw, keys):
    call = add_directly(keys, a_job("j1", ""), telling=TELLING, counting=False)
    assert len(call.requests) == 2

    assert run(call) is None
    assert raw.stream() == [an_entry("j1", "")]
    assert raw.events() == [f"e=waiting id=j1 ts={TOLD_MS}"]


# --- the dead-letter stream


def test_dead_letters_are_seen_oldest_first_and_page_by_page(run, raw, keys):
    ids = [raw.client.xadd(keys.dlq, {"d": b"%d" % n, "reason": "malformed"}) for n in range(3)]

    first, second = run(dlq.peek(keys, limit=2))
    assert (first.dlq_id, first.payload, first.reason) == (ids[0].decode(), b"0", "malformed")
    (third,) = run(dlq.peek(keys, limit=2, after=f"({second.dlq_id}"))
    assert third.dlq_id == ids[2].decode()
    assert len(raw.dlq()) == 3


def test_an_empty_dlq_shows_nothing(run, keys):
    assert run(dlq.peek(keys, limit=10)) == []


def test_discarded_letters_are_gone_and_counted(run, raw, keys):
    first, second = (raw.client.xadd(keys.dlq, {"d": b"x"}).decode() for _ in range(2))

    assert run(dlq.discard(keys, [first, "1-1"])) == 1
    assert [letter.dlq_id for letter in run(dlq.peek(keys, limit=10))] == [second]


# --- results


def test_what_is_kept_is_told_in_the_order_asked(run, raw, keys):
    raw.client.set(keys.result("a"), b"\x2a", ex=60)
    raw.client.set(keys.outcome("a"), b"v", ex=60)
    raw.client.set(keys.outcome("b"), b"n", ex=60)

    assert run(results.read(keys, ["b", "nobody", "a"])) == [
        Kept(None, b"n"),
        Kept(None, None),
        Kept(b"\x2a", b"v"),
    ]


def test_a_result_key_of_another_kind_is_an_error_and_not_a_result(run, raw, keys):
    raw.client.lpush(keys.result("a"), "x")
    raw.client.expire(keys.result("a"), 60)

    with pytest.raises(ServerReplyError) as refused:
        run(results.read(keys, ["a"]))
    assert refused.value.kind == "WRONGTYPE"


# --- events


def test_events_are_written_in_order_and_read_back(run, raw, keys):
    batch = [
        event_fields("active", "j1", 5, "mail", {"attempt": 1}),
        event_fields("drained", "", 6, ""),
    ]
    run(events.append(keys, batch, cap=100))

    assert raw.events() == ["e=active id=j1 ts=5 n=mail attempt=1", "e=drained id= ts=6"]
    found = run(events.read(keys, after="0-0", count=10, block_ms=1))
    assert found == [
        QueueEvent("active", "j1", "mail", {"ts": 5, "attempt": 1}),
        QueueEvent("drained", None, "", {"ts": 6}),
    ]
    assert run(events.read(keys, after=found[0].event_id, count=10, block_ms=1)) == found[1:]


def test_events_are_never_sent_twice_by_themselves(keys):
    assert events.append(keys, [event_fields("drained", "", 6, "")], cap=1).repeatable is False


def test_the_events_stream_is_kept_at_its_cap(run, raw, keys):
    batch = [event_fields("active", f"j{n}", 5, "") for n in range(350)]
    run(events.append(keys, batch, cap=100))

    assert 100 <= raw.client.xlen(keys.events) < 350


def test_the_newest_event_is_a_place_to_read_on_from(run, keys):
    assert run(events.last_id(keys)) == "0-0"
    run(events.append(keys, [event_fields("drained", "", ts, "") for ts in (1, 2)], cap=100))
    after = run(events.last_id(keys))
    run(events.append(keys, [event_fields("drained", "", 3, "")], cap=100))

    found = run(events.read(keys, after=after, count=10, block_ms=1))
    assert [event.fields["ts"] for event in found] == [3]


def test_a_wait_for_events_ends_with_the_block(run, keys):
    assert run(events.read(keys, after="0-0", count=10, block_ms=1)) == []
