"""`take.lua` and `hold.lua`: entries within the queue's rate limit, each for a token."""

import pytest

from chasquimq.broker import limits
from chasquimq.broker.limits import Limit
from chasquimq.errors import ServerReplyError
from tests.support.broker_builders import an_entry, an_envelope
from tests.support.raw_queue import GROUP, Held

LEASE_MS = 30_000
SLOW = Limit(3, 3_600_000)


@pytest.fixture
def claiming(run, connect):
    connection = connect()
    connection.ready()
    return "read" if connection.server.has_claim else "look"


@pytest.fixture
def take(run, keys, claiming):
    def take(count=10, *, limit=SLOW, consumer="c1", claiming=claiming):
        return run(
            limits.take(
                keys,
                GROUP,
                consumer,
                limit=limit,
                count=count,
                min_idle_ms=LEASE_MS,
                claiming=claiming,
            )
        )

    return take


@pytest.fixture
def tokens(raw, keys):
    def tokens():
        kept = raw.client.hget(keys.limiter, "t")
        return None if kept is None else round(float(kept), 2)

    return tokens


def entries(count):
    return [an_entry(f"j{n}") for n in range(count)]


def test_a_fresh_bucket_is_full_and_gives_no_more_than_it_holds(raw, take, tokens):
    entry_ids = raw.waiting(*entries(5))

    taken = take()

    assert [each.entry_id for each in taken.deliveries] == entry_ids[:3]
    assert [each.deliveries for each in taken.deliveries] == [0, 0, 0]
    assert (taken.is_paused, taken.wait_ms, taken.ran_dry, taken.newest) == (False, 0, False, b"")
    assert raw.held() == [Held(entry_id, "c1", 1) for entry_id in entry_ids[:3]]
    assert tokens() == 0


def test_an_empty_bucket_gives_nothing_and_says_how_long(raw, take):
    raw.waiting(*entries(5))
    take()
    before = raw.everything()

    taken = take(consumer="c2")

    assert taken.deliveries == []
    assert 3_600_000 / 3 - 10_000 < taken.wait_ms <= 3_600_000 / 3
    assert raw.everything() == before


def test_no_more_is_taken_than_was_asked_for(raw, take, tokens):
    entry_ids = raw.waiting(*entries(5))
    assert [each.entry_id for each in take(1).deliveries] == entry_ids[:1]
    assert tokens() == 2


def test_tokens_for_what_was_not_there_are_not_spent(raw, take, tokens):
    raw.waiting(*entries(1))

    taken = take()

    assert (len(taken.deliveries), taken.ran_dry) == (1, True)
    assert tokens() == 2


def test_nothing_there_spends_nothing_and_says_where_the_next_entry_will_be(raw, take, tokens):
    (last,) = raw.delivered("c2", an_entry("j1"))

    taken = take()

    assert (taken.deliveries, taken.ran_dry, taken.newest) == ([], True, last)
    assert tokens() in (None, 3)


def test_the_bucket_refills_evenly_by_the_servers_clock(raw, keys, take):
    raw.waiting(*entries(5))
    raw.client.hset(keys.limiter, mapping={"t": "0.5", "ts": raw.now_ms() - 1_800_000})

    assert len(take().deliveries) == 2


def test_the_bucket_never_holds_more_than_its_size(raw, keys, take):
    raw.waiting(*entries(5))
    raw.client.hset(keys.limiter, mapping={"t": "99", "ts": raw.now_ms() - 86_400_000})

    assert len(take().deliveries) == 3


def test_a_clock_that_went_back_does_not_shut_the_bucket(raw, keys, take):
    raw.waiting(*entries(5))
    raw.client.hset(keys.limiter, mapping={"t": "1", "ts": raw.now_ms() + 86_400_000})

    assert len(take().deliveries) == 1


def test_the_bucket_expires_when_it_would_be_full_again(raw, keys, take):
    raw.waiting(*entries(1))
    take(limit=Limit(3, 5_000))
    assert 0 < raw.client.pttl(keys.limiter) <= 10_000


def test_nothing_is_taken_from_a_paused_queue(raw, keys, take):
    raw.waiting(*entries(1))
    raw.client.set(keys.paused, "by hand")
    before = raw.everything()

    taken = take()

    assert (taken.is_paused, taken.deliveries) == (True, [])
    assert raw.everything() == before


def test_an_expired_lease_costs_a_token_and_comes_before_what_is_new(raw, take, tokens):
    (old,) = raw.delivered("c2", an_entry("old"))
    raw.silent_for(2 * LEASE_MS, consumer="c2", entry_id=old, deliveries=2)
    (new,) = raw.waiting(an_entry("new"))

    taken = take()

    assert [(each.entry_id, each.deliveries) for each in taken.deliveries] == [(old, 2), (new, 0)]
    assert taken.deliveries[0].data == an_envelope("old")
    assert tokens() == 1
    assert raw.held() == [Held(old, "c1", 3), Held(new, "c1", 1)]


def test_expired_leases_are_left_where_nobody_looks_for_them(raw, take):
    (old,) = raw.delivered("c2", an_entry("old"))
    raw.silent_for(2 * LEASE_MS, consumer="c2", entry_id=old)

    assert take(claiming="").deliveries == []
    assert raw.held() == [Held(old, "c2", 1)]


def test_without_a_group_nothing_is_taken_and_the_refusal_says_so(raw, take):
    with pytest.raises(ServerReplyError) as refused:
        take()
    assert refused.value.kind == "NOGROUP"


@pytest.mark.parametrize("kind", ["NOGROUP", "WRONGTYPE"])
@pytest.mark.parametrize("claims", [True, False])
def test_a_read_that_is_refused_spends_no_token(raw, keys, take, tokens, claiming, kind, claims):
    """A destroyed group must not cost a queue of one job an hour that hour."""
    raw.waiting(*entries(5))
    take(1)
    raw.client.delete(keys.stream)
    if kind == "WRONGTYPE":
        raw.client.set(keys.stream, "no stream")
    for _ in range(3):
        with pytest.raises(ServerReplyError) as refused:
            take(claiming=claiming if claims else "")
        assert refused.value.kind == kind
    assert tokens() == 2
    assert 0 < raw.client.pttl(keys.limiter) <= 2 * SLOW.duration_ms


def test_without_memory_nothing_is_taken(raw, take, without_memory):
    """It fails closed: who cannot count takes nothing."""
    raw.waiting(*entries(1))
    before = raw.everything()
    with without_memory(), pytest.raises(ServerReplyError) as refused:
        take()
    assert refused.value.kind == "OOM"
    assert raw.everything() == before
    assert len(take().deliveries) == 1


# --- hold


def test_a_hold_lets_nobody_take_and_leaves_an_empty_bucket(run, raw, keys, take):
    raw.waiting(*entries(5))

    assert run(limits.hold(keys, SLOW, hold_ms=60_000)) == 60_000

    taken = take()
    assert (taken.deliveries, 0 < taken.wait_ms <= 60_000) == ([], True)
    over = raw.now_ms() - 1
    raw.client.hset(keys.limiter, mapping={"ts": over, "until": over})
    assert take().deliveries == []


def test_a_shorter_hold_does_not_end_a_longer_one(run, keys, raw):
    run(limits.hold(keys, SLOW, hold_ms=60_000))
    assert 50_000 < run(limits.hold(keys, SLOW, hold_ms=1)) <= 60_000


def test_a_hold_outlives_the_bucket_and_then_expires(run, keys, raw):
    run(limits.hold(keys, Limit(1, 10), hold_ms=60_000))
    assert 59_000 < raw.client.pttl(keys.limiter) <= 60_020
