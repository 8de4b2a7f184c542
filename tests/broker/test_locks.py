"""`lead.lua` and `release.lua`: one holder leads, until it lets go or falls silent."""

import pytest

from chasquimq.broker import locks


@pytest.fixture
def lock(keys):
    return keys.promoter_lock


def test_a_free_lock_is_taken_with_its_time_to_live(run, raw, lock):
    assert run(locks.lead(lock, "h1", 5)) is True

    assert raw.everything() == {"held": [], "promoter:lock": b"h1"}
    assert raw.client.ttl(lock) == 5


def test_the_holder_renews_its_lock(run, raw, lock):
    run(locks.lead(lock, "h1", 5))

    assert run(locks.lead(lock, "h1", 50)) is True
    assert raw.client.ttl(lock) == 50


def test_another_holder_keeps_its_lock_and_its_time_to_live(run, raw, lock):
    run(locks.lead(lock, "h1", 5))

    assert run(locks.lead(lock, "h2", 50)) is False
    assert raw.client.get(lock) == b"h1"
    assert raw.client.ttl(lock) <= 5


def test_a_lock_that_expired_goes_to_whoever_asks_next(run, raw, lock):
    run(locks.lead(lock, "h1", 5))
    raw.client.pexpire(lock, 0)

    assert run(locks.lead(lock, "h2", 5)) is True
    assert run(locks.lead(lock, "h1", 5)) is False


def test_the_holder_releases_its_lock(run, raw, lock):
    run(locks.lead(lock, "h1", 5))

    assert run(locks.release(lock, "h1")) is True
    assert raw.everything() == {"held": []}


def test_the_lock_of_another_is_not_released(run, raw, lock):
    run(locks.lead(lock, "h1", 5))
    before = raw.everything()

    assert run(locks.release(lock, "h2")) is False
    assert raw.everything() == before


def test_a_lock_that_nobody_holds_is_not_released(run, raw, lock):
    assert run(locks.release(lock, "h1")) is False
    assert raw.everything() == {"held": []}
