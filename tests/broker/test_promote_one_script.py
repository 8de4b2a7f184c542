"""`promote_one.lua`: a delayed job joins the stream before its time, once."""

import threading

import pytest

from chasquimq.broker import delayed, upkeep
from chasquimq.errors import ServerReplyError
from chasquimq.wire.envelope import decode
from tests.support.broker_builders import (
    SILENT,
    TELLING,
    TOLD_MS,
    a_delayed_job,
    a_member,
    a_ticket,
    an_entry,
    an_envelope,
)


def promoting(keys, job_id="a", name="mail", telling=TELLING):
    member = a_member(job_id, name)
    data = an_envelope(job_id)
    return upkeep.promote_one(keys, member, name=name, data=data, job_id=job_id, telling=telling)


@pytest.fixture
def schedule(run, keys):
    def schedule_jobs(*jobs):
        return run(delayed.schedule(keys, jobs, ticket=a_ticket(), telling=SILENT, grace_s=3_600))

    return schedule_jobs


def test_a_job_joins_the_stream_its_index_goes_and_its_id_stays_taken(run, raw, keys, schedule):
    schedule(a_delayed_job("a", is_unique=True), a_delayed_job("b"))
    assert run(promoting(keys)) is True
    assert raw.stream() == [an_entry("a")]
    assert [member for member, _ in raw.delayed()] == [a_member("b")]
    assert "dlid:a" in raw.everything()
    assert "didx:a" not in raw.everything()
    assert raw.events() == [f"e=waiting id=a ts={TOLD_MS} n=mail"]


def test_a_job_without_a_name_has_none_in_entry_and_event(run, raw, keys, schedule):
    schedule(a_delayed_job("a", ""))
    assert run(promoting(keys, name="")) is True
    assert raw.stream() == [{"d": an_envelope("a")}]
    assert raw.events() == [f"e=waiting id=a ts={TOLD_MS}"]


def test_a_job_that_is_not_delayed_any_more_is_not_added(run, raw, keys):
    assert run(promoting(keys)) is False
    assert raw.everything() == {"held": []}


def test_a_server_without_memory_keeps_the_job_delayed(run, raw, keys, schedule, without_memory):
    schedule(a_delayed_job("a"))
    with without_memory(), pytest.raises(ServerReplyError, match="OOM"):
        run(promoting(keys))
    assert [member for member, _ in raw.delayed()] == [a_member("a")]
    assert raw.stream() == []


def test_every_job_is_moved_once_by_hand_or_by_the_promoter(run, raw, keys, schedule, connect):
    job_ids = [f"j{n}" for n in range(100)]
    schedule(*(a_delayed_job(job_id, run_at_ms=1) for job_id in job_ids))
    start = threading.Barrier(2)

    def promote_all():
        connection = connect()
        connection.ready()
        start.wait()
        step = delayed.promote(
            keys, holder="h", lock_ttl_s=5, batch=3, capacity=1_000, events_cap=0, dlq_cap=100
        )
        while connection.run(step).depth:
            pass

    promoter = threading.Thread(target=promote_all)
    by_hand = connect()
    by_hand.ready()
    promoter.start()
    start.wait()
    for job_id in reversed(job_ids):
        by_hand.run(promoting(keys, job_id, telling=SILENT))
    promoter.join()
    assert sorted(decode(fields["d"]).id for fields in raw.stream()) == sorted(job_ids)
