"""`pace.lua`: all who add for a run share one rate, by the server's clock."""

import pytest

from chasquimq.broker import runs


@pytest.fixture
def pace(run, keys):
    return lambda count, per_s=100, run_id="r1": run(runs.pace(keys, run_id, count, per_s))


def test_whoever_added_waits_as_long_as_it_lasts_at_the_rate(pace):
    assert 490 <= pace(50) <= 500


def test_the_next_one_waits_for_those_before_too(pace):
    pace(50)
    assert 900 <= pace(50) <= 1_000
    assert 1_900 <= pace(100) <= 2_000


def test_runs_have_rates_of_their_own(pace):
    pace(100)
    assert pace(1, per_s=1_000, run_id="r2") <= 1


def test_a_hand_that_has_fallen_behind_is_set_to_now_so_that_nothing_is_made_up_for(
    pace, raw, keys
):
    raw.client.set(keys.pace("r1"), raw.now_ms() - 60_000, px=60_000)
    assert 490 <= pace(50) <= 500


def test_it_is_forgotten_soon_after(pace, raw, keys):
    pace(50)
    assert 1_000 < raw.client.pttl(keys.pace("r1")) <= 1_500
