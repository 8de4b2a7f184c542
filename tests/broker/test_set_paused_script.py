"""`set_paused.lua`: a pause is a key that stays, and is told once."""

import pytest

from chasquimq.broker import pause, upkeep
from tests.support.broker_builders import SILENT, TELLING, TOLD_MS


@pytest.fixture
def set_paused(run, keys):
    def change(*, paused, telling=TELLING):
        return run(upkeep.set_paused(keys, paused=paused, telling=telling))

    return change


def test_a_pause_stays_and_is_told_once(run, raw, keys, set_paused):
    assert set_paused(paused=True) is True
    assert set_paused(paused=True) is False

    assert run(pause.is_paused(keys)) is True
    assert raw.client.get(keys.paused) == b"%d" % TOLD_MS
    assert raw.client.ttl(keys.paused) == -1
    assert raw.events() == [f"e=paused id= ts={TOLD_MS}"]


def test_a_queue_goes_on_and_that_is_told_once(run, raw, keys, set_paused):
    set_paused(paused=True, telling=SILENT)
    assert set_paused(paused=False) is True
    assert set_paused(paused=False) is False

    assert run(pause.is_paused(keys)) is False
    assert raw.events() == [f"e=resumed id= ts={TOLD_MS}"]


def test_a_pause_that_somebody_else_wrote_counts_whatever_it_says(run, raw, keys, set_paused):
    raw.client.set(keys.paused, b"")
    assert run(pause.is_paused(keys)) is True
    assert set_paused(paused=True) is False
    assert set_paused(paused=False, telling=SILENT) is True
    assert sorted(raw.everything()) == ["held", "resumed"]


def test_readers_that_block_on_the_bell_hear_every_resume(raw, keys, set_paused):
    set_paused(paused=True)
    assert raw.client.exists(keys.resumed) == 0
    heard = b"0-0"
    for _ in range(2):  # the second time the pause was lifted by hand
        set_paused(paused=False)
        [(_, [(rung, _)])] = raw.client.xread({keys.resumed: heard})
        assert rung > heard
        heard = rung
        assert 0 < raw.client.ttl(keys.resumed) <= 10
