"""`upsert_spec.lua`, `remove_spec.lua`, `fire.lua`: recurring jobs are stored, and fire once."""

import pytest

from chasquimq.broker import bells, locks, repeats
from chasquimq.broker.repeats import Fired, StoredSpec
from chasquimq.errors import ServerReplyError
from chasquimq.wire.repeat import MissedFiresPolicy, RepeatableSpec, RepeatPattern
from chasquimq.wire.retry import BackoffSpec, RetryOverride
from tests.support.broker_builders import SILENT, TELLING, TOLD_MS, a_job, an_entry

DUE_MS = 1_800_000_000_000
NEXT_MS = DUE_MS + 60_000
NOT_OURS = Fired(0, has_ended=False, was_ours=False)


def a_spec(**fields) -> RepeatableSpec:
    return RepeatableSpec("digest", "mail", RepeatPattern.every(60_000), b"\x81\xa1k\x01", **fields)


@pytest.fixture
def upsert(run, keys):
    def store(spec, next_ms=DUE_MS, job_id=None):
        run(repeats.upsert(keys, spec, next_ms=next_ms, job_id=job_id))

    return store


@pytest.fixture
def fire(run, keys):
    run(locks.lead(keys.scheduler_lock, "leader", 5))

    def fire_spec(spec, *jobs, holder="leader", due_ms=DUE_MS, next_ms=NEXT_MS, telling=SILENT):
        stored = StoredSpec(spec.key, due_ms, spec)
        return run(
            repeats.fire(keys, stored, jobs, holder=holder, next_ms=next_ms, telling=telling)
        )

    return fire_spec


def test_a_stored_spec_is_listed_as_it_was_given(upsert, drive, keys):
    spec = a_spec(
        limit=5,
        start_after_ms=1,
        end_before_ms=2,
        missed_fires=MissedFiresPolicy.fire_all(7),
        retry=RetryOverride(4, BackoffSpec.fixed(10)),
    )
    upsert(spec, job_id="nightly")
    assert drive(repeats.listed(keys, 10)) == [StoredSpec("digest", DUE_MS, spec, "nightly")]
    assert drive(repeats.find(keys, "digest")) == StoredSpec("digest", DUE_MS, spec, "nightly")
    assert drive(repeats.find(keys, "other")) is None


def test_a_spec_that_is_stored_rings_once_and_for_a_while(upsert, run, raw, keys):
    upsert(a_spec())
    upsert(a_spec(), next_ms=DUE_MS - 1)
    assert raw.client.lrange(keys.repeat_wake, 0, -1) == [b"1"]
    assert 0 < raw.client.pttl(keys.repeat_wake) <= 10_000
    assert run(bells.wait_for_ring(keys.repeat_wake, 5_000)) is True

    # Also one that is not the next: what is before it may be due and refused by the server.
    later = RepeatableSpec("rare", "mail", RepeatPattern.every(60_000), b"\x81\xa1k\x01")
    upsert(later, next_ms=DUE_MS + 1)
    assert run(bells.wait_for_ring(keys.repeat_wake, 5_000)) is True
    assert run(bells.wait_for_ring(keys.repeat_wake, 1)) is False


def test_a_bell_that_is_something_else_keeps_no_spec_from_being_stored(upsert, raw, drive, keys):
    raw.client.set(keys.repeat_wake, "in the way", ex=60)
    upsert(a_spec())
    assert [each.key for each in drive(repeats.listed(keys, 10))] == ["digest"]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("key", ["repeat", "spec"])
def test_a_spec_is_stored_whole_or_not_at_all_where_something_else_is_in_the_way(
    upsert, raw, keys, key, known
):
    if known:
        upsert(a_spec())
    if key == "spec":
        raw.client.set(keys.repeat_spec("digest"), "in the way")
    else:
        raw.client.set(keys.repeat, "in the way")
    before = raw.everything()
    with pytest.raises(ServerReplyError) as refused:
        upsert(a_spec(limit=9), next_ms=NEXT_MS, job_id="nightly")
    assert refused.value.kind == "WRONGTYPE"
    assert raw.everything() == before


def test_storing_a_spec_anew_replaces_all_of_it_but_the_count(upsert, fire, drive, keys):
    first = a_spec(retry=RetryOverride(4, None))
    upsert(first, job_id="nightly")
    fire(first, a_job())
    upsert(a_spec(limit=9), next_ms=NEXT_MS)
    assert drive(repeats.listed(keys, 10)) == [
        StoredSpec("digest", NEXT_MS, a_spec(limit=9), fired=1)
    ]


def test_only_specs_whose_window_has_come_are_due(upsert, drive, keys):
    upsert(a_spec())
    assert drive(repeats.due(keys, DUE_MS - 1, 10)) == []
    assert [stored.key for stored in drive(repeats.due(keys, DUE_MS, 10))] == ["digest"]


def test_a_removed_spec_leaves_nothing_behind(upsert, run, raw, keys):
    upsert(a_spec())
    assert run(repeats.remove(keys, "digest")) is True
    assert run(repeats.remove(keys, "digest")) is False
    assert raw.everything() == {"held": [], "repeat:wake": [b"1"]}  # for ten seconds


def test_a_spec_that_cannot_be_read_is_listed_with_the_reason(upsert, server, drive, keys):
    upsert(a_spec())
    server.client().hset(keys.repeat_spec("digest"), "spec", b"\xc1")
    server.client().zadd(keys.repeat, {"ghost": DUE_MS})
    digest, ghost = drive(repeats.listed(keys, 10))
    assert digest.spec is None
    assert "MessagePack" in digest.problem
    assert ghost == StoredSpec("ghost", DUE_MS, None, problem="its hash is gone")


def test_a_fire_adds_the_job_and_moves_the_spec(upsert, fire, raw, drive, keys):
    upsert(a_spec())
    assert fire(a_spec(), a_job("j1"), telling=TELLING) == Fired(1, has_ended=False, was_ours=True)
    assert raw.stream() == [an_entry("j1")]
    assert drive(repeats.find(keys, "digest")) == StoredSpec("digest", NEXT_MS, a_spec(), fired=1)
    assert raw.events() == [f"e=waiting id=j1 ts={TOLD_MS} n=mail"]


def test_a_window_is_never_fired_twice(upsert, fire, raw):
    upsert(a_spec())
    fire(a_spec(), a_job("j1"))
    assert fire(a_spec(), a_job("j1")) == NOT_OURS
    assert len(raw.stream()) == 1


def test_one_who_does_not_lead_fires_nothing(upsert, fire, raw):
    upsert(a_spec())
    assert fire(a_spec(), a_job(), holder="another") == NOT_OURS
    assert raw.stream() == []


def test_a_spec_that_is_gone_fires_nothing(fire, raw):
    assert fire(a_spec(), a_job()) == NOT_OURS
    assert raw.stream() == []


def test_a_spec_ends_with_its_last_window(upsert, fire, raw, keys):
    upsert(a_spec())
    assert fire(a_spec(), a_job(), next_ms=None) == Fired(1, has_ended=True, was_ours=True)
    assert raw.everything().keys() == {"held", "stream", "scheduler:lock", "repeat:wake"}


def test_a_limit_cuts_a_catch_up_and_ends_the_spec(upsert, fire, raw):
    spec = a_spec(limit=2)
    upsert(spec)
    fired = fire(spec, a_job("a"), a_job("b"), a_job("c"))
    assert fired == Fired(2, has_ended=True, was_ours=True)
    assert raw.stream() == [an_entry("a"), an_entry("b")]


GARBAGE_COUNTS = [b"abc", b"", b"-1", b"1.5", b" 7", b"9223372036854775807"]


@pytest.mark.parametrize("count", GARBAGE_COUNTS)
def test_a_spec_whose_count_cannot_be_read_is_listed_with_the_reason(
    upsert, server, drive, keys, count
):
    upsert(a_spec())
    server.client().hset(keys.repeat_spec("digest"), "fired", count)
    problem = f"its count of fires is '{count.decode()}'"
    assert drive(repeats.listed(keys, 10)) == [StoredSpec("digest", DUE_MS, None, problem=problem)]


@pytest.mark.parametrize("count", GARBAGE_COUNTS[:-1])
def test_a_spec_whose_count_cannot_be_read_adds_no_job(upsert, fire, raw, server, keys, count):
    upsert(a_spec())
    server.client().hset(keys.repeat_spec("digest"), "fired", count)
    before = raw.everything()
    assert fire(a_spec(), a_job()) == NOT_OURS
    assert raw.everything() == before


@pytest.mark.parametrize("count", [b"9" * 18, b"9223372036854775807", b"9" * 400, b"007"])
def test_no_count_however_long_ends_a_fire_half_way(upsert, fire, raw, server, keys, count):
    upsert(a_spec())
    server.client().hset(keys.repeat_spec("digest"), "fired", count)
    assert fire(a_spec(), a_job("a"), a_job("b")) == Fired(2, has_ended=False, was_ours=True)
    assert server.client().zscore(keys.repeat, "digest") == NEXT_MS
    assert raw.stream() == [an_entry("a"), an_entry("b")]


def test_a_spec_of_another_type_adds_no_job(upsert, fire, raw, server, keys):
    upsert(a_spec())
    server.client().set(keys.repeat_spec("digest"), "text", ex=60)
    before = raw.everything()
    with pytest.raises(ServerReplyError, match="WRONGTYPE"):
        fire(a_spec(), a_job())
    assert raw.everything() == before


@pytest.mark.parametrize("count", GARBAGE_COUNTS)
def test_storing_a_spec_anew_begins_a_count_that_could_not_be_read(
    upsert, server, drive, keys, count
):
    upsert(a_spec())
    server.client().hset(keys.repeat_spec("digest"), "fired", count)
    upsert(a_spec())
    assert drive(repeats.find(keys, "digest")) == StoredSpec("digest", DUE_MS, a_spec())


@pytest.mark.parametrize("score", [DUE_MS + 0.5, DUE_MS - 0.25, 0.5, 2.0**53 + 2])
def test_a_spec_fires_whatever_number_its_window_is(
    upsert, fire, raw, run, drive, server, keys, score
):
    upsert(a_spec())
    server.client().zadd(keys.repeat, {"digest": score})
    stored = drive(repeats.find(keys, "digest"))
    assert stored == StoredSpec("digest", int(score), a_spec())
    fired = repeats.fire(keys, stored, [a_job()], holder="leader", next_ms=NEXT_MS, telling=SILENT)
    assert run(fired) == Fired(1, has_ended=False, was_ours=True)
    assert run(fired) == NOT_OURS
    assert raw.stream() == [an_entry()]


@pytest.mark.parametrize("score", ["-inf", "inf", "-5", "-1e+300", "1e+300"])
def test_a_spec_whose_window_is_no_time_is_listed_with_the_reason(
    upsert, server, drive, keys, score
):
    upsert(a_spec())
    server.client().zadd(keys.repeat, {"digest": float(score)})
    [stored] = drive(repeats.listed(keys, 10))
    assert (stored.due_ms, stored.spec) == (0, None)
    assert stored.problem.startswith("its next window is '")


@pytest.mark.parametrize(
    ("score", "next_ms"),
    [(DUE_MS + 0.5, DUE_MS + 1), (float("-inf"), 0), (-5, 0), (float("inf"), None), (1e300, None)],
)
def test_the_next_window_is_due_at_the_first_whole_ms(run, server, keys, score, next_ms):
    server.client().zadd(keys.repeat, {"digest": score})
    assert run(repeats.next_due(keys)) == next_ms


def test_a_server_without_memory_keeps_the_window_due(
    upsert, fire, raw, drive, keys, without_memory
):
    upsert(a_spec())
    with without_memory(), pytest.raises(Exception, match="OOM"):
        fire(a_spec(), a_job())
    assert drive(repeats.find(keys, "digest")) == StoredSpec("digest", DUE_MS, a_spec())
    assert raw.stream() == []


def test_a_spec_can_be_paused_moved_and_resumed(upsert, run, drive, keys):
    upsert(a_spec())
    assert run(repeats.set_paused(keys, "digest", paused=True)) is True
    assert drive(repeats.find(keys, "digest")).is_paused
    assert run(repeats.move(keys, "digest", NEXT_MS)) is True
    assert run(repeats.move(keys, "ghost", NEXT_MS)) is False
    assert run(repeats.set_paused(keys, "digest", paused=False)) is True
    assert drive(repeats.find(keys, "digest")) == StoredSpec("digest", NEXT_MS, a_spec())
    assert run(repeats.next_due(keys)) == NEXT_MS
