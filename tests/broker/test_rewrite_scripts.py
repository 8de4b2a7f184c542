"""`rewrite_waiting.lua`, `rewrite_delayed.lua`: a job gets another envelope where it waits."""

import pytest

from chasquimq.broker import delayed, seek, upkeep
from chasquimq.errors import ServerReplyError
from tests.support.broker_builders import (
    SILENT,
    a_delayed_job,
    a_member,
    a_ticket,
    an_entry,
    an_envelope,
)

NEW = an_envelope("a", data=b"\xa3new")


@pytest.fixture
def rewrite(run, drive, keys):
    def rewrite_waiting(found):
        return run(upkeep.rewrite_waiting(keys, found, NEW))

    return rewrite_waiting


@pytest.fixture
def found(drive, keys):
    return lambda: drive(seek.find_entry(keys, "a"))


@pytest.fixture
def rewrite_delayed(run, keys):
    def change(member, name="mail"):
        return run(upkeep.rewrite_delayed(keys, "a", member, name=name, envelope=NEW))

    return change


def test_a_job_that_waits_gets_another_envelope_at_the_tail(raw, rewrite, found):
    raw.waiting(an_entry("a"), an_entry("b", ""))
    assert rewrite(found()) is True
    assert raw.stream() == [an_entry("b", ""), {"d": NEW, "n": b"mail"}]


def test_a_job_without_a_name_stays_without_one(raw, rewrite, found):
    raw.waiting(an_entry("a", ""))
    assert rewrite(found()) is True
    assert raw.stream() == [{"d": NEW}]


def test_a_job_waits_even_if_no_worker_ever_started(raw, keys, rewrite, found):
    raw.client.xadd(keys.stream, an_entry("a"))
    assert rewrite(found()) is True


def test_a_job_in_flight_or_gone_is_not_rewritten(raw, keys, rewrite, found):
    (entry_id,) = raw.waiting(an_entry("a"))
    seen = found()
    raw.read("c1")
    before = raw.everything()
    assert rewrite(seen) is False
    assert raw.everything() == before

    raw.client.xack(keys.stream, "default", entry_id)
    raw.client.xdel(keys.stream, entry_id)
    assert rewrite(seen) is False
    assert raw.stream() == []
    raw.client.delete(keys.stream)
    assert rewrite(seen) is False
    assert raw.everything() == {"held": []}


def test_a_server_without_memory_keeps_the_job_as_it_was(raw, rewrite, found, without_memory):
    raw.waiting(an_entry("a"))
    seen = found()
    with without_memory(), pytest.raises(ServerReplyError, match="OOM"):
        rewrite(seen)
    assert raw.stream() == [an_entry("a")]


def test_a_delayed_job_stays_due_when_it_was_and_can_be_cancelled(
    run, drive, raw, keys, rewrite_delayed
):
    jobs = [a_delayed_job("a", run_at_ms=9_000_000_000_000, is_unique=True)]
    run(delayed.schedule(keys, jobs, ticket=a_ticket(), telling=SILENT, grace_s=3_600))
    lives_s = raw.client.ttl(keys.delayed_index("a"))

    assert rewrite_delayed(a_member("a")) is True
    changed = a_member("a", envelope=NEW)
    assert raw.delayed() == [(changed, 9_000_000_000_000)]
    assert raw.client.get(keys.delayed_index("a")) == changed
    assert lives_s - 5 <= raw.client.ttl(keys.delayed_index("a")) <= lives_s
    assert drive(delayed.cancel(keys, "a")) is True


def test_a_delayed_job_without_an_index_gets_none(raw, keys, rewrite_delayed):
    raw.client.zadd(keys.delayed, {a_member("a"): 7})
    assert rewrite_delayed(a_member("a")) is True
    assert raw.everything() == {"held": [], "delayed": [(a_member("a", envelope=NEW), 7)]}


def test_the_same_envelope_again_is_no_loss(raw, keys, rewrite_delayed):
    member = a_member("a", envelope=NEW)
    raw.client.zadd(keys.delayed, {member: 7})
    assert rewrite_delayed(member) is True
    assert raw.delayed() == [(member, 7)]


def test_a_job_that_is_not_delayed_any_more_is_not_brought_back(raw, rewrite_delayed):
    assert rewrite_delayed(a_member("a")) is False
    assert raw.everything() == {"held": []}
