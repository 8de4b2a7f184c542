import re
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest

from chasquimq.engine.cron import parse_cron, parse_zone

NEW_YORK = "America/New_York"
YEAR_MS = 366 * 86_400_000


def ms(text: str, tz: str = "UTC") -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(tz)).timestamp() * 1_000)


def fires(expression: str, tz: str, start_ms: int, count: int) -> list[str]:
    cron = parse_cron(expression, tz)
    return [
        datetime.fromtimestamp(moment / 1_000, ZoneInfo(tz)).isoformat()
        for moment in islice(cron.fires_after(start_ms), count)
    ]


@pytest.mark.parametrize(
    ("expression", "tz", "start_ms", "next_ms"),
    [
        ("* * * * *", None, 1893456030000, 1893456060000),
        ("0 2 * * *", "+05:30", 1768435200000, 1768509000000),
        ("0 2 * * *", "+0530", 1768435200000, 1768509000000),
        ("0 2 * * *", NEW_YORK, 1768435200000, 1768460400000),
        ("0 2 * * *", "US/Eastern", 1768435200000, 1768460400000),
        ("0 2 * * *", NEW_YORK, 1773014400000, 1773036000000),
        ("0 9 * * *", "Europe/London", 1781481600000, 1781510400000),
        ("30 1 * * *", NEW_YORK, 1793505600000, 1793511000000),
    ],
)
def test_the_next_fire_is_the_one_of_the_specification(expression, tz, start_ms, next_ms):
    assert parse_cron(expression, tz).next_after(start_ms) == next_ms


def test_a_fixed_time_in_the_gap_fires_at_its_end():
    before = ms("2026-03-07T12:00:00", NEW_YORK)
    assert fires("30 2 * * *", NEW_YORK, before, 2) == [
        "2026-03-08T03:00:00-04:00",
        "2026-03-09T02:30:00-04:00",
    ]


def test_a_fixed_time_with_seconds_follows_the_same_rules():
    before_gap = ms("2026-03-07T12:00:00", NEW_YORK)
    assert fires("15 30 2 * * *", NEW_YORK, before_gap, 2) == [
        "2026-03-08T03:00:00-04:00",
        "2026-03-09T02:30:15-04:00",
    ]
    before_overlap = ms("2026-10-31T12:00:00", NEW_YORK)
    assert fires("15 30 1 * * *", NEW_YORK, before_overlap, 2) == [
        "2026-11-01T01:30:15-04:00",
        "2026-11-02T01:30:15-05:00",
    ]


def test_a_fixed_time_that_comes_twice_fires_the_first_time_only():
    before = ms("2026-10-31T12:00:00", NEW_YORK)
    assert fires("30 1 * * *", NEW_YORK, before, 2) == [
        "2026-11-01T01:30:00-04:00",
        "2026-11-02T01:30:00-05:00",
    ]


@pytest.mark.parametrize("expression", ["0 * * * *", "@hourly"])
def test_an_hourly_pattern_fires_in_both_passes_of_the_repeated_hour(expression):
    before = ms("2026-11-01T00:50:00", NEW_YORK)
    assert fires(expression, NEW_YORK, before, 3) == [
        "2026-11-01T01:00:00-04:00",
        "2026-11-01T01:00:00-05:00",
        "2026-11-01T02:00:00-05:00",
    ]


@pytest.mark.parametrize("tz", [NEW_YORK, "Europe/London", "Australia/Lord_Howe"])
@pytest.mark.parametrize("expression", ["*/15 * * * *", "*/30 * * * * *"])
def test_an_interval_pattern_keeps_its_distance_through_a_whole_year(expression, tz):
    step_ms = 900_000 if expression.startswith("*/15") else 30_000
    start = ms("2026-01-01T00:00:00")
    count = YEAR_MS // step_ms if step_ms == 900_000 else 20_000
    moments = list(islice(parse_cron(expression, tz).fires_after(start), count))
    assert {later - earlier for earlier, later in pairwise(moments)} == {step_ms}


@pytest.mark.parametrize("tz", [NEW_YORK, "Europe/London", "Australia/Lord_Howe"])
@pytest.mark.parametrize("expression", ["30 2 * * *", "30 1 * * *", "0 12 * * *"])
def test_a_daily_pattern_fires_once_on_every_day_of_the_year(expression, tz):
    start = ms("2025-12-31T23:59:59", tz)
    moments = islice(parse_cron(expression, tz).fires_after(start), 365)
    days = [datetime.fromtimestamp(m / 1_000, ZoneInfo(tz)).date() for m in moments]
    first = datetime(2026, 1, 1, tzinfo=UTC).date()
    assert days == [first + timedelta(days=n) for n in range(365)]


@pytest.mark.parametrize(
    ("expression", "start", "expected"),
    [
        ("0 0 L * *", "2026-02-01T00:00:00", "2026-02-28T00:00:00+00:00"),
        ("0 0 * * 5#2", "2026-11-01T00:00:00", "2026-11-13T00:00:00+00:00"),
        ("0 0 * * 5L", "2026-11-01T00:00:00", "2026-11-27T00:00:00+00:00"),
        ("0 0 * * 7", "2026-11-09T00:00:00", "2026-11-15T00:00:00+00:00"),
        ("0 0 * * FRI-SUN", "2026-11-14T12:00:00", "2026-11-15T00:00:00+00:00"),
        ("0 0 ? FEB MON", "2026-01-01T00:00:00", "2026-02-02T00:00:00+00:00"),
        ("30 0 9 * * MON-FRI", "2026-11-14T00:00:00", "2026-11-16T09:00:30+00:00"),
        ("@weekly", "2026-11-14T00:00:00", "2026-11-15T00:00:00+00:00"),
        ("@yearly", "2026-11-14T00:00:00", "2027-01-01T00:00:00+00:00"),
        ("0 0 0 1 1 * 2028,2030-2031", "2026-11-14T00:00:00", "2028-01-01T00:00:00+00:00"),
        ("* * * * * * 2030", "2026-11-14T00:00:00", "2030-01-01T00:00:00+00:00"),
    ],
)
def test_the_grammar_is_understood(expression, start, expected):
    assert fires(expression, "UTC", ms(start), 1) == [expected]


def test_a_pattern_with_years_ends_with_them():
    cron = parse_cron("0 0 0 1 1 * 2028", "UTC")
    assert [*cron.fires_after(ms("2026-01-01T00:00:00"))] == [ms("2028-01-01T00:00:00")]


def test_fires_are_whole_seconds_strictly_after_the_start():
    on_the_minute = ms("2026-11-14T10:00:00")
    cron = parse_cron("* * * * *", None)
    assert cron.next_after(on_the_minute) == on_the_minute + 60_000
    assert cron.next_after(on_the_minute - 1) == on_the_minute
    assert cron.next_after(on_the_minute + 789) == on_the_minute + 60_000


@pytest.mark.parametrize(
    ("expression", "tz", "part"),
    [
        ("61 * * * *", None, "'61' is not a valid minute"),
        ("0 24 * * *", None, "'24' is not a valid hour"),
        ("0 0 32 * *", None, "'32' is not a valid day of month"),
        ("0 0 * 13 *", None, "'13' is not a valid month"),
        ("0 0 * * 8", None, "'8' is not a valid day of week"),
        ("*/0 * * * *", None, "'*/0' is not a valid minute"),
        ("60 * * * * *", None, "'60' is not a valid second"),
        ("* * * *", None, "has 4 fields"),
        ("* * * * * * * *", None, "has 8 fields"),
        ("* * * * * * 0", None, "cron year '0'"),
        ("* * * * * * 2030-2028", None, "cron year '2030-2028'"),
        ("0 0 30 2 *", None, "never matches"),
        ("@fortnightly", None, "'@fortnightly' is unknown"),
        ("", None, "has 0 fields"),
        ("* * * * *", "Mars/Olympus", "'Mars/Olympus' is unknown"),
        ("* * * * *", "+25:00", "'+25:00' is unknown"),
        ("* * * * *", "../../etc/passwd", "is unknown"),
    ],
)
def test_bad_input_names_the_part_that_is_wrong(expression, tz, part):
    with pytest.raises(ValueError, match=re.escape(part)):
        parse_cron(expression, tz)


@pytest.mark.parametrize("tz", [None, "", "UTC", "utc", "Z", "z"])
def test_utc_has_many_names(tz):
    assert parse_zone(tz) is UTC


def test_an_expression_can_be_put_in_words():
    assert parse_cron("30 9 * * MON-FRI", "Europe/London").describe() == (
        "At 09:30 on Monday through Friday (Europe/London)"
    )
    assert parse_cron("0 0 1,15 * 1", None).describe() == (
        "At 00:00 on the first and the 15th day of month or on Monday (UTC)"
    )
