"""`promote.lua`: the leader moves due jobs to the stream; nothing is lost and nothing stops it."""

import pytest

from chasquimq.broker import delayed, dlq, stream
from chasquimq.broker.delayed import Promotion
from chasquimq.errors import ServerReplyError
from chasquimq.wire.ids import StreamId
from tests.support.broker_builders import (
    TELLING,
    a_delayed_job,
    a_job,
    a_member,
    a_ticket,
    an_entry,
    an_envelope,
)
from tests.support.eventually import eventually_sync

LONG_AGO = 1_000


@pytest.fixture
def promote(keys):
    def call(holder="h1", *, batch=100, capacity=1_000, events_cap=1_000, dlq_cap=1_000):
        return delayed.promote(
            keys,
            holder=holder,
            lock_ttl_s=5,
            batch=batch,
            capacity=capacity,
            events_cap=events_cap,
            dlq_cap=dlq_cap,
        )

    return call


@pytest.fixture
def delay(raw, keys):
    """Put members in the set as any producer does, with the instant each is due."""

    def put(**members_and_scores):
        raw.client.zadd(
            keys.delayed, {a_member(job_id): at for job_id, at in members_and_scores.items()}
        )

    return put


def nothing_done(*, is_leader):
    return Promotion(is_leader, 0, 0, 0, 0, 0, None, b"", StreamId.MIN, [])


def test_due_jobs_move_to_the_stream_in_the_order_they_were_due_and_are_told(
    run, raw, keys, promote
):
    raw.client.zadd(
        keys.delayed,
        {a_member("second", "bill"): LONG_AGO + 1, a_member("first", ""): LONG_AGO},
    )
    earliest = raw.now_ms()
    answer = run(promote())
    latest = raw.now_ms()

    assert answer == Promotion(
        is_leader=True,
        promoted=2,
        set_aside=0,
        put_off=0,
        depth=0,
        lag_ms=0,
        next_due_in_ms=None,
        next_due_at=b"",
        last=StreamId.parse(raw.client.xrevrange(keys.stream, count=1)[0][0]),
        job_ids=[b"first", b"second"],
    )
    assert sorted(raw.everything()) == ["events", "held", "promoter:lock", "stream"]
    assert raw.stream() == [{"d": an_envelope("first")}, an_entry("second", "bill")]
    told = [dict(part.split("=") for part in line.split()) for line in raw.events()]
    stamps = [int(event.pop("ts")) for event in told]
    assert told == [{"e": "waiting", "id": "first"}, {"e": "waiting", "id": "second", "n": "bill"}]
    assert all(earliest <= ts <= latest for ts in stamps)
    names = [[part.split("=")[0] for part in line.split()] for line in raw.events()]
    assert names == [["e", "id", "ts"], ["e", "id", "ts", "n"]]


def test_jobs_that_are_not_due_by_the_servers_clock_stay(run, raw, promote, delay):
    delay(due=LONG_AGO, later=raw.now_ms() + 60_000)
    later = raw.delayed()[1]

    answer = run(promote())

    assert answer.promoted == 1
    assert answer.depth == 1
    assert answer.lag_ms == 0
    assert 55_000 < answer.next_due_in_ms <= 60_000
    assert raw.delayed() == [later]


def test_an_empty_set_is_nothing_to_do(run, raw, promote):
    assert run(promote()) == nothing_done(is_leader=True)
    assert sorted(raw.everything()) == ["held", "promoter:lock"]


def test_the_lock_is_taken_with_its_time_to_live_and_renewed(run, raw, keys, promote):
    run(promote("h1"))
    assert raw.client.get(keys.promoter_lock) == b"h1"
    assert raw.client.ttl(keys.promoter_lock) == 5
    raw.client.expire(keys.promoter_lock, 1)

    run(promote("h1"))
    assert raw.client.ttl(keys.promoter_lock) == 5


def test_nothing_is_promoted_while_another_holds_the_lock(run, raw, keys, promote, delay):
    delay(due=LONG_AGO)
    raw.client.set(keys.promoter_lock, "h2", ex=3)
    before = raw.everything()

    assert run(promote("h1")) == nothing_done(is_leader=False)
    assert raw.everything() == before
    assert 0 < raw.client.ttl(keys.promoter_lock) <= 3


def test_the_lead_passes_on_when_the_lock_has_expired(run, raw, keys, promote, delay):
    delay(due=LONG_AGO)
    run(promote("h1"))
    delay(another=LONG_AGO)
    raw.client.pexpire(keys.promoter_lock, 0)

    assert run(promote("h2")).promoted == 1
    assert raw.client.get(keys.promoter_lock) == b"h2"


def test_a_batch_is_not_exceeded_and_the_lag_of_the_rest_is_told(run, raw, promote, delay):
    now_ms = raw.now_ms()
    delay(a=now_ms - 9_000, b=now_ms - 8_000, c=now_ms - 7_000)

    answer = run(promote(batch=2))

    assert answer.job_ids == [b"a", b"b"]
    assert answer.depth == 1
    assert 7_000 <= answer.lag_ms < 8_000
    assert answer.next_due_in_ms == 0
    assert [member for member, _ in raw.delayed()] == [a_member("c")]


def test_a_batch_of_many_thousands_is_answered_in_full(run, raw, keys, promote):
    raw.client.zadd(keys.delayed, {a_member(f"{n:04}"): n for n in range(9_000)})

    answer = run(promote(batch=10_000, capacity=10_000, events_cap=0))

    assert answer.promoted == 9_000
    assert answer.job_ids == [f"{n:04}".encode() for n in range(9_000)]
    assert raw.client.xlen(keys.stream) == 9_000


@pytest.mark.parametrize(("room", "promoted"), [(1, [b"a"]), (2, [b"a", b"b"])])
def test_only_as_many_are_promoted_as_the_stream_has_room_for(
    run, raw, promote, delay, room, promoted
):
    raw.waiting(an_entry("old"))
    delay(a=LONG_AGO, b=LONG_AGO + 1, c=LONG_AGO + 2)

    answer = run(promote(capacity=1 + room))

    assert answer.job_ids == promoted
    assert (answer.depth, answer.next_due_in_ms) == (3 - room, 0)
    assert raw.stream() == [an_entry("old"), *(an_entry(each.decode()) for each in promoted)]


def test_a_full_stream_holds_the_jobs_back_and_drops_none(run, raw, promote, delay):
    raw.waiting(an_entry("old"), an_entry("older"))
    delay(a=LONG_AGO)
    before = raw.everything()

    answer = run(promote(capacity=1))

    assert (answer.is_leader, answer.promoted, answer.depth) == (True, 0, 1)
    assert answer.lag_ms > 0
    assert raw.everything() == before | {"promoter:lock": b"h1"}


def test_with_events_off_nothing_is_told(run, raw, promote, delay):
    delay(a=LONG_AGO)

    assert run(promote(events_cap=0)).promoted == 1
    assert raw.events() == []


POISON = {
    "empty": b"",
    "shorter than a length": b"\x01",
    "three bytes that start like an envelope": b"\x94\xa1x",
    "a length beyond its end": b"\xff\xff\xff\x00" + an_envelope(),
    "a name and nothing after it": b"\x04\x00\x00\x00mail",
}


@pytest.mark.parametrize("member", POISON.values(), ids=POISON)
def test_what_is_no_member_goes_to_the_dlq_and_does_not_stop_the_others(
    run, raw, keys, promote, delay, member
):
    raw.client.zadd(keys.delayed, {member: LONG_AGO})
    delay(behind=LONG_AGO + 1)
    earliest = raw.now_ms()

    answer = run(promote())

    assert (answer.promoted, answer.set_aside, answer.depth) == (1, 1, 0)
    assert answer.job_ids == [b"behind"]
    assert raw.stream() == [an_entry("behind")]
    assert len(raw.events()) == 1
    (letter,) = raw.dlq()
    assert earliest <= int(letter.pop("failed_at")) <= raw.now_ms()
    assert letter == {
        "d": member,
        "source_id": b"0-0",
        "reason": b"malformed",
        "detail": b"not a delayed member",
    }
    assert run(dlq.peek(keys, limit=10))[0].payload == member


@pytest.mark.parametrize("kind", ["string", "list"])
def test_where_the_dlq_takes_nothing_what_is_no_member_is_put_off_and_the_others_go_on(
    run, raw, keys, promote, delay, kind
):
    raw.client.zadd(keys.delayed, {b"": LONG_AGO, b"\x01": LONG_AGO + 1})
    delay(behind=LONG_AGO + 2)
    raw.client.set(keys.dlq, "text") if kind == "string" else raw.client.rpush(keys.dlq, "text")
    earliest = raw.now_ms()

    answer = run(promote())

    assert (answer.promoted, answer.set_aside, answer.put_off) == (1, 0, 2)
    assert (answer.depth, answer.lag_ms, answer.job_ids) == (2, 0, [b"behind"])
    assert 9_000 < answer.next_due_in_ms <= 10_000
    assert raw.stream() == [an_entry("behind")]
    members, times = zip(*raw.delayed(), strict=True)
    assert set(members) == {b"", b"\x01"}
    assert all(earliest + 10_000 <= at <= raw.now_ms() + 10_000 for at in times)

    raw.client.delete(keys.dlq)
    raw.client.zadd(keys.delayed, dict.fromkeys(members, LONG_AGO))
    answer = run(promote())
    assert (answer.set_aside, answer.put_off, answer.depth) == (2, 0, 0)
    assert [letter["d"] for letter in raw.dlq()] == [b"", b"\x01"]


def test_a_batch_that_the_dlq_does_not_take_makes_way_for_the_next(run, raw, keys, promote, delay):
    raw.client.zadd(keys.delayed, {b"%03d" % n: n for n in range(10)})
    delay(behind=LONG_AGO)
    raw.client.set(keys.dlq, "text")

    answers = [run(promote(batch=10)) for _ in range(2)]

    assert [(answer.promoted, answer.put_off) for answer in answers] == [(0, 10), (1, 0)]
    assert raw.client.zcard(keys.delayed) == 10


def test_a_bare_envelope_of_an_old_release_is_promoted_without_a_name(run, raw, keys, promote):
    raw.client.zadd(keys.delayed, {an_envelope("old"): LONG_AGO})

    answer = run(promote())

    assert (answer.promoted, answer.set_aside, answer.job_ids) == (1, 0, [b"old"])
    assert raw.stream() == [{"d": an_envelope("old")}]
    assert raw.dlq() == []


def test_what_may_or_may_not_be_a_job_is_promoted_and_left_to_the_reader(run, raw, keys, promote):
    """Only the reader decodes envelopes; it has the reasons and the dead letters for them."""
    raw.client.zadd(keys.delayed, {bytes(4) + b"\xc1": LONG_AGO})

    answer = run(promote())

    assert (answer.promoted, answer.job_ids) == (1, [b""])
    assert raw.stream() == [{"d": b"\xc1"}]


@pytest.mark.parametrize("length", [1, 31, 32, 255, 256, 1_000])
def test_ids_of_any_length_are_read_from_the_envelope(run, raw, keys, promote, length):
    job_id = "x" * length
    raw.client.zadd(keys.delayed, {a_member(job_id): LONG_AGO})

    assert run(promote()).job_ids == [job_id.encode()]
    assert raw.events()[0].split()[:2] == ["e=waiting", f"id={job_id}"]


def test_names_of_any_length_are_split_off(run, raw, keys, promote):
    names = ["n", "é" * 128, "x" * 300]
    raw.client.zadd(keys.delayed, {a_member(f"j{at}", name): at for at, name in enumerate(names)})

    run(promote())
    assert [fields["n"].decode() for fields in raw.stream()] == names


def test_the_dlq_is_kept_at_its_cap(run, raw, keys, promote):
    raw.client.zadd(keys.delayed, {b"%03d" % n: n for n in range(350)})

    assert run(promote(batch=400, dlq_cap=100)).set_aside == 350
    assert 100 <= raw.client.xlen(keys.dlq) < 350


def test_indexes_of_promoted_jobs_are_dropped_by_the_ids_that_were_answered(
    run, raw, keys, promote, delay
):
    delay(a=LONG_AGO, b=LONG_AGO)
    for job_id in ("a", "b", "c"):
        raw.client.set(keys.delayed_index(job_id), b"member", ex=60)

    answer = run(promote())

    assert run(delayed.forget_indexes(keys, [*answer.job_ids, b""])) == 2
    assert [name for name in raw.everything() if name.startswith("didx")] == ["didx:c"]


def test_forgetting_no_index_asks_nothing_of_the_server(run, keys):
    call = delayed.forget_indexes(keys, [b""])

    assert call.requests == ()
    assert run(call) == 0


def test_a_server_without_memory_promotes_and_tells_nobody(
    run, raw, keys, promote, delay, without_memory
):
    delay(a=LONG_AGO)
    raw.client.zadd(keys.delayed, {b"\x01": LONG_AGO})
    with without_memory():
        first = run(promote())
        again = run(promote())
    assert (first.is_leader, first.promoted, first.set_aside, first.depth) == (True, 1, 1, 0)
    assert (again.is_leader, again.promoted) == (True, 0)
    assert (len(raw.stream()), len(raw.dlq()), raw.delayed(), raw.events()) == (1, 1, [], [])
    assert raw.client.get(keys.promoter_lock) == b"h1"
    assert raw.client.ttl(keys.promoter_lock) > 0


def test_a_lock_that_may_not_be_written_is_an_error_and_nothing_moves(
    raw, keys, promote, delay, connect_as
):
    delay(a=LONG_AGO)
    before = raw.everything()
    with pytest.raises(ServerReplyError, match=r"permission|can't run"):
        connect_as("+@all", "-set").run(promote())
    assert raw.everything() == before


def test_events_that_cannot_be_written_hold_nothing_up(run, keys, raw, server, promote):
    """Between the job's move and its event nothing may fail: it would be promoted for ever."""
    server.client().set(keys.events, "not a stream", ex=60)
    run(delayed.schedule(keys, [a_delayed_job("a", delay_ms=1)], ticket=a_ticket(),
                         telling=TELLING, grace_s=60))  # fmt: skip
    run(stream.add(keys, [*a_job("b")], ticket=a_ticket(2), capacity=stream.Capacity(10),
                   telling=TELLING, whole=True))  # fmt: skip
    eventually_sync(lambda: raw.delayed()[0][1] <= raw.now_ms())
    assert run(promote()).promoted == 1
    assert raw.delayed() == []
    assert [entry["d"] for entry in raw.stream()] == [an_envelope("b"), an_envelope("a")]
