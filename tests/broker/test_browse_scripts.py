"""`browse_waiting.lua`, `browse_delayed.lua`: pages that go on at the same place."""

import base64

import pytest

from chasquimq.broker import browse
from chasquimq.broker.inspect import JobState
from chasquimq.wire.envelope import decode
from chasquimq.wire.keys import QueueKeys
from chasquimq.wire.member import decode_member
from tests.support.broker_builders import a_member, an_entry, an_envelope
from tests.support.raw_queue import GROUP


@pytest.fixture
def page(drive, keys):
    """The ids on a page, and the place after it."""

    def turn(state, place=None, limit=100, *, backwards=False):
        steps = browse.page(keys, GROUP, state, place, limit, backwards=backwards)
        got = drive(steps)
        assert all(found.state is state for found in got.found)
        return [found.envelope.id for found in got.found], got.place

    return turn


@pytest.fixture
def walk(page):
    """All ids of a state, page by page; `between` is called after each."""

    def turn_all(state, limit, between=lambda: None, *, backwards=False):
        ids, place = page(state, None, limit, backwards=backwards)
        between()
        while place is not None:
            assert browse.check_place(state, place) == place
            more, place = page(state, place, limit, backwards=backwards)
            ids += more
            between()
        return ids

    return turn_all


ALL = [f"j{n:03}" for n in range(25)]


@pytest.mark.parametrize("state", JobState)
def test_a_queue_that_was_never_used_has_one_empty_page(raw, page, state):
    if state is not JobState.UNKNOWN:
        assert page(state) == ([], None)
    assert raw.everything() == {"held": []}


@pytest.mark.parametrize("limit", [1, 4, 25, 26])
@pytest.mark.parametrize("backwards", [False, True])
def test_entries_in_flight_are_left_out_of_those_that_wait(raw, walk, limit, backwards):
    entry_ids = raw.waiting(*map(an_entry, ALL))
    raw.read("c1")
    done = [entry_id for n, entry_id in enumerate(entry_ids) if n % 3]
    for entry_id in done:
        raw.client.xack(raw.keys.stream, GROUP, entry_id)
    in_flight = ALL[::3]
    expected = [job_id for job_id in ALL if job_id not in in_flight]
    wanted = expected[::-1] if backwards else expected
    assert walk(JobState.WAITING, limit, backwards=backwards) == wanted
    assert walk(JobState.ACTIVE, limit, backwards=backwards) == (
        in_flight[::-1] if backwards else in_flight
    )


@pytest.mark.parametrize("limit", [1, 3, 100])
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("spread", [0, 1, 5], ids=["at once", "one by one", "in groups"])
def test_delayed_jobs_come_by_due_time_however_many_are_due_at_once(
    raw, keys, walk, limit, backwards, spread
):
    score = {0: lambda n: 5, 1: lambda n: n, 5: lambda n: n // 5}[spread]
    raw.client.zadd(keys.delayed, {a_member(job_id): score(n) for n, job_id in enumerate(ALL)})
    ids = walk(JobState.DELAYED, limit, backwards=backwards)
    assert ids == (ALL[::-1] if backwards else ALL)


@pytest.mark.parametrize("backwards", [False, True])
def test_jobs_that_stay_are_on_one_page_each_while_others_come_and_go(raw, keys, walk, backwards):
    """A promoter takes the earliest away and others are scheduled, all at the same time of day."""
    stay = {a_member(f"stay-{n:03}"): 100 for n in range(40)}
    go = [a_member(f"go-{n:03}") for n in range(40)]
    raw.client.zadd(keys.delayed, stay | dict.fromkeys(go, 100))
    count = iter(range(1_000))

    def between():
        number = next(count)
        for member in go[3 * number : 3 * number + 3]:
            raw.client.zrem(keys.delayed, member)
        if number < 50:
            come = {a_member(f"new-{number}"): 100, a_member(f"sooner-{number}"): 1}
            raw.client.zadd(keys.delayed, come)

    ids = walk(JobState.DELAYED, 7, between, backwards=backwards)
    seen = [job_id for job_id in ids if job_id.startswith("stay")]
    assert sorted(seen) == [f"stay-{n:03}" for n in range(40)]
    assert len(set(ids)) == len(ids)


def test_bytes_are_compared_as_the_server_orders_them(raw, keys, walk):
    """Not by a locale: names in capitals, accents and bytes beyond ASCII."""
    names = ["B", "a", "b", "A", "é", "z", "\x7f", "日本", "_", "-"]
    raw.client.zadd(keys.delayed, {a_member(name, name): 1 for name in names})
    in_order = [decode(decode_member(member)[1]).id for member, _ in raw.delayed()]
    assert walk(JobState.DELAYED, 1) == in_order
    assert sorted(in_order) == sorted(names)


def test_large_jobs_come_in_small_pages_and_are_told_apart(raw, keys, walk):
    size = 1 << 20
    members = {
        a_member(
            "x", envelope=an_envelope(f"j{n}", data=b"\xc6" + size.to_bytes(4) + bytes(size))
        ): 1
        for n in range(8)
    }
    raw.client.zadd(keys.delayed, members)
    assert walk(JobState.DELAYED, 3) == [f"j{n}" for n in range(8)]


def test_what_is_no_job_is_passed_over(raw, keys, walk):
    raw.client.zadd(keys.delayed, {b"\x01": 1, a_member("a"): 2})
    raw.waiting({"x": b"1"}, {"d": b"\xc1"}, an_entry("b"))
    raw.client.xadd(keys.dlq, {"d": b"", "reason": "malformed"})
    raw.client.xadd(keys.dlq, {"d": an_envelope("c"), "reason": "unrecoverable"})
    assert walk(JobState.DELAYED, 1) == ["a"]
    assert walk(JobState.WAITING, 1) == ["b"]
    assert walk(JobState.FAILED, 1) == ["c"]


def test_completed_jobs_are_named_once_and_failed_ones_are_not(raw, keys, walk):
    for n in range(300):
        raw.client.set(keys.outcome(f"both-{n}"), b"v5", ex=60)
        raw.client.set(keys.result(f"both-{n}"), b"\x01", ex=60)
    raw.client.set(keys.outcome("nothing"), b"n5", ex=60)
    raw.client.set(keys.result("reference"), b"\x01", ex=60)
    raw.client.set(keys.outcome("failed"), b"f\x92", ex=60)
    raw.client.zadd(keys.repeat, {"spec": 1})
    expected = {f"both-{n}" for n in range(300)} | {"nothing", "reference"}
    assert set(walk(JobState.COMPLETED, 50)) == expected


@pytest.mark.parametrize(
    ("state", "place"),
    [
        (JobState.WAITING, "x"),
        (JobState.ACTIVE, ""),
        (JobState.FAILED, "-"),
        (JobState.DELAYED, "1/!"),
        (JobState.DELAYED, "x/" + base64.urlsafe_b64encode(b"m").decode()),
        (JobState.COMPLETED, "1-1"),
    ],
)
def test_a_place_that_is_none_is_refused(state, place):
    with pytest.raises(ValueError, match="is no place"):
        browse.check_place(state, place)


# --- completed: the server's own batches are of any size


DONE = [f"d{n:04}" for n in range(300)]


@pytest.fixture
def completed(raw, keys):
    """Write what workers leave of completed jobs, among keys of others."""

    def write(ids):
        pipeline = raw.client.pipeline()
        for job_id in ids:
            pipeline.set(keys.result(job_id), b"\x01", ex=60)
            pipeline.set(QueueKeys(f"{keys.name}-other").result(job_id), b"", ex=60)
        pipeline.execute()

    return write


@pytest.mark.parametrize("limit", [1, 2, 7, 100, 299, 300, 1_000])
def test_pages_of_completed_jobs_hold_no_more_than_asked_for_and_lose_none(completed, page, limit):
    completed(DONE)
    ids, place = page(JobState.COMPLETED, None, limit)
    while place is not None:
        assert browse.check_place(JobState.COMPLETED, place) == place
        assert len(place) < 200
        more, place = page(JobState.COMPLETED, place, limit)
        assert len(more) <= limit
        ids += more
    assert sorted(ids) == DONE


def test_completed_jobs_that_stay_are_on_a_page_while_others_come_and_go(
    completed, walk, raw, keys
):
    completed(DONE)
    goes = iter(DONE[::2])
    comes = iter(range(10_000))

    def between():
        gone = next(goes, None)
        if gone is not None:
            raw.client.delete(keys.result(gone))
        completed([f"new{next(comes)}"])

    ids = walk(JobState.COMPLETED, 3, between)
    assert set(DONE[1::2]) <= set(ids)


def test_all_completed_jobs_are_listed_whole(completed, drive, keys):
    completed(DONE)
    listed = drive(browse.jobs(keys, GROUP, [JobState.COMPLETED], 0, -1, asc=True))
    assert sorted(found.envelope.id for found in listed) == DONE
    some = drive(browse.jobs(keys, GROUP, [JobState.COMPLETED], 10, 19, asc=True))
    assert len(some) == 10
