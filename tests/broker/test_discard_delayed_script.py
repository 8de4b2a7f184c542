"""`discard_delayed.lua`: delayed jobs go with their keys, unless somebody was quicker."""

import threading

import pytest

from chasquimq.broker import delayed, upkeep
from chasquimq.wire.envelope import decode
from tests.support.broker_builders import SILENT, a_delayed_job, a_member, a_ticket


@pytest.fixture
def schedule(run, keys):
    def schedule_jobs(*jobs):
        return run(delayed.schedule(keys, jobs, ticket=a_ticket(), telling=SILENT, grace_s=3_600))

    return schedule_jobs


@pytest.fixture
def discard(run, keys):
    def discard_members(*members, dry_run=False):
        return run(upkeep.discard_delayed(keys, members, dry_run=dry_run))

    return discard_members


def test_a_discarded_job_leaves_nothing_and_its_id_is_free(raw, keys, schedule, discard):
    schedule(a_delayed_job("a", is_unique=True), a_delayed_job("b", is_unique=True))
    assert discard((a_member("a"), "a")) == [True]
    assert [member for member, _ in raw.delayed()] == [a_member("b")]
    assert {"didx:b", "dlid:b"} < set(raw.everything())
    assert not {"didx:a", "dlid:a"} & set(raw.everything())

    raw.client.delete(keys.sent("p1"))
    assert schedule(a_delayed_job("a", is_unique=True)) == "1"


def test_a_member_that_is_gone_takes_no_keys_along(raw, schedule, discard):
    schedule(a_delayed_job("a", is_unique=True))
    before = raw.everything()
    assert discard((a_member("a", "older name"), "a")) == [False]
    assert raw.everything() == before


def test_what_is_no_job_is_discarded_too(raw, keys, discard):
    raw.client.zadd(keys.delayed, {b"\x01": 1})
    assert discard((b"\x01", "")) == [True]
    assert raw.everything() == {"held": []}


def test_a_dry_run_says_the_same_and_changes_nothing(raw, schedule, discard):
    schedule(a_delayed_job("a", is_unique=True))
    before = raw.everything()
    members = [(a_member("a"), "a"), (a_member("b"), "b")]
    assert discard(*members, dry_run=True) == [True, False]
    assert raw.everything() == before
    assert discard(*members) == [True, False]


def test_every_job_is_either_discarded_or_promoted_when_both_are_tried_at_once(
    raw, keys, schedule, connect
):
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
    discarder = connect()
    discarder.ready()
    promoter.start()
    start.wait()
    discarded = set()
    for job_id in reversed(job_ids):
        members = [(a_member(job_id), job_id)]
        if discarder.run(upkeep.discard_delayed(keys, members, dry_run=False)) == [True]:
            discarded.add(job_id)
    promoter.join()

    promoted = {decode(fields["d"]).id for fields in raw.stream()}
    assert discarded | promoted == set(job_ids)
    assert discarded & promoted == set()
    assert raw.delayed() == []
