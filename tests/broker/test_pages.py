"""Whole structures are read page by page, and nothing changes by it."""

import pytest

from chasquimq.broker import pages
from chasquimq.broker.pages import NO_STREAM, Held, StreamHead
from chasquimq.broker.results import Kept
from chasquimq.wire.ids import StreamId
from tests.support.broker_builders import a_member, an_entry


def test_the_head_of_a_stream_counts_what_came_and_what_went(run, raw, keys):
    assert run(pages.head(keys.events)) == NO_STREAM
    for number in range(1, 6):
        raw.client.xadd(keys.events, {"e": "x"}, id=f"{number}-0")
    raw.client.xtrim(keys.events, maxlen=2, approximate=False)

    head = run(pages.head(keys.events))

    counts = head.added is not None
    assert head == StreamHead(2, StreamId(4, 0), StreamId(5, 0), 5 if counts else None)
    assert head.removed == (3 if counts else None)
    raw.client.xtrim(keys.events, maxlen=0, approximate=False)
    assert run(pages.head(keys.events)).first is None


def test_only_servers_before_redis_7_do_not_count(run, raw, keys, server):
    raw.client.xadd(keys.events, {"e": "x"})
    is_old = server.name.startswith("redis-6")
    assert (run(pages.head(keys.events)).added is None) == is_old


def test_entries_come_in_pages_between_two_ids(run, raw, keys):
    for number in range(1, 6):
        raw.client.xadd(keys.events, {"e": str(number)}, id=f"{number}-0")
    page = run(pages.entries(keys.events, "(2-0", "5-0", 2))
    assert page == [[b"3-0", [b"e", b"3"]], [b"4-0", [b"e", b"4"]]]


def test_what_is_in_flight_is_known_with_who_has_it(run, raw, keys):
    assert run(pages.held(keys, "default", "-", "+", 10)) == {}
    [first] = raw.delivered("c1", an_entry("a"))
    [second] = raw.waiting(an_entry("b"))
    held = run(pages.held(keys, "default", "-", "+", 10))
    assert list(held) == [first]
    assert (held[first].consumer, held[first].deliveries) == ("c1", 1)
    assert isinstance(held[first], Held)
    assert run(pages.held(keys, "default", second.decode(), "+", 10)) == {}
    assert run(pages.held(keys, "another", "-", "+", 10)) == {}


def test_a_scan_of_the_delayed_set_finds_every_member(run, raw, keys):
    members = {a_member(f"j{number}"): 1_700_000_000_000 + number for number in range(500)}
    raw.client.zadd(keys.delayed, members)
    found, cursor = {}, pages.FROM_START
    while True:
        cursor, page = run(pages.delayed(keys, cursor, 50))
        found.update(page)
        if cursor == pages.FROM_START:
            break
    assert found == members


@pytest.mark.parametrize("more", ["", "*[a]?"])
def test_a_scan_of_results_finds_those_of_this_queue_alone(run, raw, queue_name, more):
    keys = type(raw.keys)(queue_name + more)
    others = type(raw.keys)(queue_name + "-a")
    raw.client.set(keys.result("j1"), b"\x01", ex=60)
    raw.client.set(keys.outcome("j2"), b"n", ex=60)
    raw.client.set(keys.dedup_marker("j3"), b"1", ex=60)
    raw.client.set(others.result("j4"), b"\x01", ex=60)
    found, cursor = [], pages.FROM_START
    while True:
        cursor, page = run(pages.results(keys, cursor, 100))
        found += page
        if cursor == pages.FROM_START:
            break
    assert sorted(set(found)) == ["j1", "j2"]


def test_what_is_kept_is_known_with_the_time_it_has_left(run, raw, keys):
    raw.client.set(keys.result("j1"), b"\x01", px=60_000)
    kept = run(pages.expiring(keys, "j1"))
    assert kept.kept == Kept(b"\x01", None)
    assert 50_000 < kept.ttl_ms <= 60_000
    assert run(pages.expiring(keys, "j2")).ttl_ms is None
