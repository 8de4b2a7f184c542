"""`wipe.lua`: what a queue has once goes in one step, unless jobs are in flight."""

import pytest

from chasquimq.broker import upkeep
from chasquimq.wire.keys import once_a_queue
from tests.support.broker_builders import a_member, an_entry


@pytest.fixture
def wipe(run, keys):
    return lambda force=False, dry_run=False: run(upkeep.wipe(keys, force=force, dry_run=dry_run))


@pytest.fixture
def full(raw, keys):
    raw.waiting(an_entry("a"))
    raw.client.zadd(keys.delayed, {a_member("b"): 1})
    raw.client.set(keys.paused, "1")
    raw.client.set(keys.result("c"), "1", ex=60)


def test_what_a_queue_has_once_is_deleted_and_counted(raw, wipe, full):
    assert wipe() == 3
    assert raw.everything() == {"held": [], "result:c": b"1"}
    assert wipe() == 0


def test_nothing_is_deleted_while_jobs_are_in_flight(raw, wipe, full):
    raw.read("c1")
    before = raw.everything()
    assert wipe() == -1
    assert wipe(dry_run=True) == -1
    assert raw.everything() == before


def test_by_force_jobs_in_flight_are_dropped(raw, wipe, full):
    raw.read("c1")
    assert wipe(force=True) == 3
    assert raw.everything() == {"held": [], "result:c": b"1"}


def test_a_dry_run_counts_and_changes_nothing(raw, wipe, full):
    before = raw.everything()
    assert wipe(dry_run=True) == 3
    assert raw.everything() == before


def test_bells_and_locks_go_uncounted_for_they_would_go_by_themselves(raw, keys, wipe, full):
    raw.client.lpush(keys.wake, "1")
    raw.client.pexpire(keys.wake, 10_000)
    raw.client.set(keys.promoter_lock, "h1", ex=5)
    assert wipe(dry_run=True) == 3
    assert raw.client.exists(keys.wake, keys.promoter_lock) == 2
    assert wipe() == 3
    assert raw.everything() == {"held": [], "result:c": b"1"}


def test_every_key_that_a_queue_has_once_is_among_them(raw, keys, wipe):
    for key in once_a_queue(keys):
        raw.client.set(key, "x", ex=60)
    assert wipe() == len(once_a_queue(keys)) >= 11
    assert raw.everything() == {"held": []}
