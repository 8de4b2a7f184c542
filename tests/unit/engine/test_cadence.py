import re

import pytest

from chasquimq.engine.cadence import Plan, first_fire, plan, preview
from chasquimq.wire.repeat import MissedFiresPolicy, RepeatableSpec, RepeatPattern

MINUTE = 60_000
NOON = 1_794_744_000_000  # 2026-11-15T12:00:00Z


def a_spec(pattern=None, **fields) -> RepeatableSpec:
    return RepeatableSpec("key", "name", pattern or RepeatPattern.every(MINUTE), b"\xc0", **fields)


POLICIES = {
    "skip": MissedFiresPolicy.skip(),
    "once": MissedFiresPolicy.fire_once(),
    "all": MissedFiresPolicy.fire_all(3),
    "plenty": MissedFiresPolicy.fire_all(100),
}


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
@pytest.mark.parametrize("late_ms", [0, 1, MINUTE - 1])
def test_before_the_following_window_the_due_one_fires_under_every_policy(policy, late_ms):
    spec = a_spec(missed_fires=policy)
    assert plan(spec, NOON, NOON + late_ms) == Plan((NOON,), NOON + MINUTE)


@pytest.mark.parametrize(
    ("policy", "windows"),
    [
        ("skip", []),
        ("once", [0]),
        ("all", [0, 1, 2]),
        ("plenty", [*range(61)]),
    ],
)
def test_after_an_hour_away_the_policy_decides(policy, windows):
    spec = a_spec(missed_fires=POLICIES[policy])
    back = NOON + 60 * MINUTE + 5
    expected = tuple(NOON + n * MINUTE for n in windows)
    assert plan(spec, NOON, back) == Plan(expected, NOON + 61 * MINUTE)


def test_more_missed_windows_than_a_step_fires_go_on_in_the_next():
    spec = a_spec(missed_fires=MissedFiresPolicy.fire_all(1_500))
    back = NOON + 1_600 * MINUTE
    first = plan(spec, NOON, back)
    assert first == Plan(
        tuple(NOON + n * MINUTE for n in range(1_000)), NOON + 1_000 * MINUTE, left=500
    )
    second = plan(spec, first.next_ms, back, left=first.left)
    assert second == Plan(
        tuple(NOON + n * MINUTE for n in range(1_000, 1_500)), NOON + 1_601 * MINUTE
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_cron_goes_on_with_the_first_window_after_now(policy):
    spec = a_spec(RepeatPattern.cron("*/10 * * * *"), missed_fires=POLICIES[policy])
    assert plan(spec, NOON, NOON + 25 * MINUTE).next_ms == NOON + 30 * MINUTE


def test_windows_beyond_the_end_do_not_fire_and_end_the_spec():
    spec = a_spec(end_before_ms=NOON + 2 * MINUTE, missed_fires=MissedFiresPolicy.fire_all(100))
    late = plan(spec, NOON, NOON + 60 * MINUTE)
    assert late == Plan((NOON, NOON + MINUTE, NOON + 2 * MINUTE), None)


def test_a_pattern_without_more_windows_ends_the_spec():
    spec = a_spec(RepeatPattern.cron("0 0 12 15 11 * 2026"))
    assert plan(spec, NOON, NOON + 5) == Plan((NOON,), None)


def test_an_interval_starts_one_interval_from_now_and_cron_at_its_next_match():
    assert first_fire(a_spec(), NOON + 5) == NOON + 5 + MINUTE
    assert first_fire(a_spec(RepeatPattern.cron("0 * * * *")), NOON + 5) == NOON + 60 * MINUTE


def test_a_start_is_the_floor():
    assert first_fire(a_spec(RepeatPattern.every(100), start_after_ms=5_000), 1_000) == 5_100
    later = a_spec(RepeatPattern.cron("0 * * * *"), start_after_ms=NOON + 30 * MINUTE)
    assert first_fire(later, NOON) == NOON + 60 * MINUTE


@pytest.mark.parametrize(
    ("spec", "part"),
    [
        (a_spec(RepeatPattern.every(99)), "shortest interval is 100 ms"),
        (a_spec(end_before_ms=NOON + 1), "before the first fire"),
        (a_spec(RepeatPattern.cron("0 0 0 1 1 * 2020")), "no future fires"),
        (a_spec(RepeatPattern.cron("61 * * * *")), "'61' is not a valid minute"),
        (a_spec(RepeatPattern.cron("* * * * *", tz="Nowhere")), "'Nowhere' is unknown"),
    ],
)
def test_a_spec_that_can_never_fire_is_refused(spec, part):
    with pytest.raises(ValueError, match=re.escape(part)):
        first_fire(spec, NOON)


def test_the_next_windows_can_be_previewed():
    assert preview(RepeatPattern.every(MINUTE), NOON, 3) == [NOON + n * MINUTE for n in (1, 2, 3)]
