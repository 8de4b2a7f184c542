"""What callers give, and the one form it comes out in."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from chasquimq import ConfigError, given
from chasquimq.config import ConsumerConfig, ProducerConfig, RetryConfig
from chasquimq.engine import BackoffSpec, RepeatPattern


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        (0, 0),
        (1.9, 1),
        (timedelta(seconds=1.001), 1_001),
        (timedelta(microseconds=1_999), 1),
        (timedelta(days=400), 400 * 86_400_000),
    ],
)
def test_a_duration_is_whole_milliseconds(value, ms):
    assert given.duration_ms("delay", value) == ms


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        (datetime(2026, 5, 1, tzinfo=UTC), 1_777_593_600_000),
        (datetime(2026, 5, 1), 1_777_593_600_000),  # noqa: DTZ001 -- naive on purpose
        (datetime(2026, 5, 1, 2, tzinfo=timezone(timedelta(hours=2))), 1_777_593_600_000),
        (datetime(1960, 1, 1, tzinfo=UTC), 0),
        (17, 17),
    ],
)
def test_an_instant_is_epoch_milliseconds_and_a_naive_one_is_utc(value, ms):
    assert given.instant_ms("run_at", value) == ms


@pytest.mark.parametrize(
    ("value", "kind"),
    [("1", TypeError), (True, TypeError), (None, TypeError), (-1, ValueError)],
)
def test_what_is_neither_is_refused_by_its_name(value, kind):
    with pytest.raises(kind, match="delay"):
        given.duration_ms("delay", value)
    with pytest.raises(kind, match="run_at"):
        given.instant_ms("run_at", value)


def test_a_config_keeps_a_timedelta_in_the_unit_of_the_field_rounded_up():
    config = ConsumerConfig(
        block_ms=timedelta(seconds=2, microseconds=1),
        result_ttl_secs=timedelta(milliseconds=1),
        shutdown_deadline_secs=timedelta(milliseconds=1_500),
        retry=RetryConfig(initial_backoff_ms=timedelta(seconds=1)),
    )
    assert (config.block_ms, config.result_ttl_secs) == (2_001, 1)
    assert config.shutdown_deadline_secs == 1.5
    assert config.retry.initial_backoff_ms == 1_000
    assert ProducerConfig(max_delay_secs=timedelta(days=1)).max_delay_secs == 86_400
    assert config == ConsumerConfig(
        consumer_id=config.consumer_id,
        scheduler=config.scheduler,
        block_ms=2_001,
        result_ttl_secs=1,
        shutdown_deadline_secs=1.5,
        retry=RetryConfig(initial_backoff_ms=1_000),
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("block_ms", timedelta(seconds=-1)),
        ("claim_min_idle_ms", timedelta(0)),
        ("shutdown_deadline_secs", timedelta(seconds=-1)),
        ("batch", timedelta(seconds=1)),
        ("block_ms", 1.5),
    ],
)
def test_a_config_refuses_a_time_that_cannot_work_and_one_that_is_no_time(field, value):
    with pytest.raises(ConfigError, match=field):
        ConsumerConfig(**{field: value})


def test_patterns_and_backoffs_take_a_timedelta():
    second = timedelta(seconds=1)
    assert RepeatPattern.every(second) == RepeatPattern.every(1_000)
    assert BackoffSpec.fixed(second, second) == BackoffSpec.fixed(1_000, 1_000)
    assert BackoffSpec.exponential(
        second, max_ms=10 * second, jitter_ms=second
    ) == BackoffSpec.exponential(1_000, max_ms=10_000, jitter_ms=1_000)


def test_the_signature_of_a_pattern_is_what_keys_are_derived_from():
    assert RepeatPattern.every(500).signature() == "every:500"
    assert RepeatPattern.cron("0 2 * * *").signature() == "cron:0 2 * * *:UTC"
    assert RepeatPattern.cron("@daily", tz="+05:30").signature() == "cron:@daily:+05:30"
