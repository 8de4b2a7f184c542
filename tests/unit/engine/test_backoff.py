# ruff: noqa: S311 -- jitter, not secrets

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chasquimq.config import RetryConfig
from chasquimq.engine.backoff import backoff_ms
from chasquimq.wire.retry import U64_MAX, BackoffSpec

CALM = RetryConfig(jitter_ms=0)


class Lowest(random.Random):
    """Chance that always falls on the lower end."""

    def randint(self, a, b):
        return a


class Highest(random.Random):
    """Chance that always falls on the upper end."""

    def randint(self, a, b):
        return b


def delays(curve, override=None, *, failures=5):
    chance = random.Random(1)
    return [backoff_ms(failure, curve, override, chance) for failure in range(1, failures + 1)]


@pytest.mark.parametrize(
    ("curve", "expected"),
    [
        (
            RetryConfig(initial_backoff_ms=100, max_backoff_ms=1_000, multiplier=2.0, jitter_ms=0),
            [100, 200, 400, 800, 1_000],
        ),
        (
            RetryConfig(initial_backoff_ms=100, max_backoff_ms=5_000, multiplier=3.0, jitter_ms=0),
            [100, 300, 900, 2_700, 5_000],
        ),
        (RetryConfig(jitter_ms=0), [100, 200, 400, 800, 1_600]),
    ],
)
def test_the_queues_curve_grows_by_its_multiplier_up_to_its_cap(curve, expected):
    assert delays(curve) == expected


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        (BackoffSpec.exponential(100, multiplier=2.0, max_ms=1_000), [100, 200, 400, 800, 1_000]),
        (BackoffSpec.exponential(100, multiplier=3.0, max_ms=5_000), [100, 300, 900, 2_700, 5_000]),
        (BackoffSpec.exponential(10, multiplier=1.5), [10, 15, 22, 33, 50]),
        (BackoffSpec.fixed(70), [70, 70, 70, 70, 70]),
        (BackoffSpec("fixed", 70, multiplier=9.0), [70, 70, 70, 70, 70]),
        (BackoffSpec("fixed", 70, max_delay_ms=50), [50, 50, 50, 50, 50]),
        (BackoffSpec("fixed", 0), [0, 0, 0, 0, 0]),
        (BackoffSpec("exponential", 100, multiplier=0.5), [100, 50, 25, 12, 6]),
        (BackoffSpec("exponential", 100, multiplier=0.0), [100, 0, 0, 0, 0]),
    ],
)
def test_a_jobs_own_rules_go_before_the_queues(override, expected):
    assert delays(CALM, override) == expected


def test_a_kind_that_we_do_not_know_counts_as_exponential():
    assert delays(CALM, BackoffSpec("fibonacci", 100)) == [100, 200, 400, 800, 1_600]


def test_what_a_jobs_rules_leave_open_comes_from_the_queues_curve():
    curve = RetryConfig(initial_backoff_ms=7, max_backoff_ms=250, multiplier=3.0, jitter_ms=20)
    open_rules = BackoffSpec("exponential", 10)
    assert [backoff_ms(n, curve, open_rules, Highest()) for n in (1, 2, 3, 4)] == [30, 50, 110, 250]
    assert [backoff_ms(n, curve, open_rules, Lowest()) for n in (1, 2, 3, 4)] == [0, 10, 70, 230]


def test_jitter_is_symmetric_and_added_after_the_cap_but_never_leads_past_it():
    curve = RetryConfig(initial_backoff_ms=400, max_backoff_ms=1_000, multiplier=2.0, jitter_ms=50)
    assert [backoff_ms(n, curve, None, Lowest()) for n in (1, 2, 3)] == [350, 750, 950]
    assert [backoff_ms(n, curve, None, Highest()) for n in (1, 2, 3)] == [450, 850, 1_000]


def test_jitter_never_makes_a_delay_negative():
    curve = RetryConfig(initial_backoff_ms=10, jitter_ms=500)
    assert backoff_ms(1, curve, None, Lowest()) == 0


def test_jitter_reaches_both_sides_of_the_base():
    curve = RetryConfig(initial_backoff_ms=1_000, jitter_ms=100)
    chance = random.Random(7)
    seen = {backoff_ms(1, curve, None, chance) for _ in range(2_000)}
    assert min(seen) == 900
    assert max(seen) == 1_100
    assert len(seen) == 201


def test_a_job_may_turn_the_queues_jitter_off():
    curve = RetryConfig(jitter_ms=100)
    assert backoff_ms(1, curve, BackoffSpec.fixed(500, jitter_ms=0), Highest()) == 500
    assert backoff_ms(1, curve, BackoffSpec.fixed(500), Highest()) == 600


@pytest.mark.parametrize("failures", [1_100, 1_000_000, 2**32 - 1])
def test_however_often_a_job_fails_its_delay_is_the_cap_and_not_an_overflow(failures):
    assert backoff_ms(failures, CALM, None, Highest()) == 30_000


@pytest.mark.parametrize("failures", [1, 2, 1_100, 2**32 - 1])
def test_a_delay_that_starts_at_nothing_stays_nothing(failures):
    assert backoff_ms(failures, CALM, BackoffSpec.exponential(0), Highest()) == 0


sizes = st.integers(0, U64_MAX)
specs = st.builds(
    BackoffSpec,
    kind=st.sampled_from(["fixed", "exponential", "new"]),
    delay_ms=sizes,
    max_delay_ms=st.none() | sizes,
    multiplier=st.none() | st.floats(0, 1e300),
    jitter_ms=st.none() | sizes,
)


@given(failures=st.integers(1, 2**32 - 1), spec=specs, seed=st.integers(0, 99))
def test_whatever_the_rules_a_delay_is_a_whole_number_between_0_and_the_cap(failures, spec, seed):
    curve = RetryConfig()
    delay = backoff_ms(failures, curve, spec, random.Random(seed))
    cap = curve.max_backoff_ms if spec.max_delay_ms is None else spec.max_delay_ms
    assert type(delay) is int
    assert 0 <= delay <= cap
