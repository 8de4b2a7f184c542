"""What people type, as values."""

import click
import pytest

from chasquimq.cli.values import spark_interval


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("10 seconds", "10 seconds"),
        ("1 Minute 30 seconds", "1 Minute 30 seconds"),
        ("5m", "300000 milliseconds"),
        ("1.5s", "1500 milliseconds"),
    ],
)
def test_an_interval_is_written_as_spark_does_or_as_a_duration(typed, meant):
    assert spark_interval(typed) == meant


@pytest.mark.parametrize(
    "typed", ["", "often", "10 fortnights", "-5 seconds", "1 month", "5x", "10", "0s"]
)
def test_what_is_no_interval_is_refused_with_one_that_is(typed):
    with pytest.raises(click.BadParameter, match="is no interval: write '10 seconds'"):
        spark_interval(typed)
