import re
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest

from chasquimq.engine.cron import parse_cron, parse_zone, portable

NEW_YORK = "America/New_York"
HOUR_MS = 3_600_000
YEAR_MS = 366 * 24 * HOUR_MS


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


@pytest.mark.parametrize("tz", ["Europe/Berlin", NEW_YORK, "Australia/Lord_Howe"])
@pytest.mark.parametrize(
    "expression",
    [
        "30 2 * * *",
        "30 2,5 * * *",
        "15,45 1-3 * * *",
        "0-30/10 0-4/2 * * *",
        "0 2,3 * * SUN",
        "15 2/6 * * *",
        "*/20 2 * * *",
        "30 * * * *",
    ],
)
def test_a_second_of_zero_changes_no_fire_of_the_year(expression, tz):
    start, end = ms("2026-01-01T00:00:00"), ms("2027-01-01T00:00:00")
    plain, with_second = (
        [*takewhile(lambda fire: fire < end, parse_cron(text, tz).fires_after(start))]
        for text in (expression, f"0 {expression}")
    )
    assert with_second == plain
    assert len(plain) >= 52


def test_several_seconds_of_a_fixed_time_in_the_gap_fire_once_at_its_end():
    before = ms("2026-03-08T01:00:00", NEW_YORK)
    assert fires("10,50 30 2,5 * * *", NEW_YORK, before, 4) == [
        "2026-03-08T03:00:00-04:00",
        "2026-03-08T05:30:10-04:00",
        "2026-03-08T05:30:50-04:00",
        "2026-03-09T02:30:10-04:00",
    ]


def test_several_seconds_of_a_fixed_time_fire_in_the_first_pass_only():
    before = ms("2026-11-01T00:30:00", NEW_YORK)
    assert fires("10,50 30 1 * * *", NEW_YORK, before, 3) == [
        "2026-11-01T01:30:10-04:00",
        "2026-11-01T01:30:50-04:00",
        "2026-11-02T01:30:10-05:00",
    ]


@pytest.mark.parametrize("expression", ["10,50 30 1,2 * * *", "59 59 0-3 * * *"])
@pytest.mark.parametrize("day", ["2026-03-08", "2026-11-01"])
def test_going_on_from_any_fire_gives_the_next_one(expression, day):
    cron = parse_cron(expression, NEW_YORK)
    in_one_go = [*islice(cron.fires_after(ms(f"{day}T00:00:00", NEW_YORK)), 8)]
    assert [cron.next_after(fire) for fire in in_one_go[:-1]] == in_one_go[1:]


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


CHANGES = {
    NEW_YORK: ("2026-03-08T07:00:00", "2026-11-01T06:00:00"),
    "Europe/London": ("2026-03-29T01:00:00", "2026-10-25T01:00:00"),
    "Australia/Lord_Howe": ("2026-04-04T15:00:00", "2026-10-03T15:30:00"),
}
"""When clocks change, in UTC."""


@pytest.mark.parametrize("tz", CHANGES)
def test_an_interval_pattern_keeps_its_distance_through_a_whole_year(tz):
    start = ms("2026-01-01T00:00:00")
    cron = parse_cron("*/15 * * * *", tz)
    moments = list(islice(cron.fires_after(start), YEAR_MS // 900_000))
    assert {later - earlier for earlier, later in pairwise(moments)} == {900_000}


@pytest.mark.parametrize(("tz", "change"), [(tz, each) for tz in CHANGES for each in CHANGES[tz]])
def test_seconds_keep_their_distance_while_clocks_change(tz, change):
    start = ms(change) - 2 * HOUR_MS
    moments = islice(parse_cron("*/30 * * * * *", tz).fires_after(start), 4 * 120)
    assert [*moments] == [*range(start + 30_000, start + 4 * HOUR_MS + 1, 30_000)]


@pytest.mark.parametrize("tz", CHANGES)
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
        ("@midnight", "2026-11-14T12:00:00", "2026-11-15T00:00:00+00:00"),
        ("0 0 * * 5#L", "2026-11-01T00:00:00", "2026-11-27T00:00:00+00:00"),
        ("0 0 * * fri#l", "2026-11-01T00:00:00", "2026-11-27T00:00:00+00:00"),
        ("0 0 * * MON,FRIL", "2026-11-24T00:00:00", "2026-11-27T00:00:00+00:00"),
        ("0 0 * * 7L", "2026-11-01T00:00:00", "2026-11-29T00:00:00+00:00"),
        ("1,,2 0 * * *", "2026-11-14T00:01:00", "2026-11-14T00:02:00+00:00"),
        (",5 0 L, * *", "2026-11-14T00:00:00", "2026-11-30T00:05:00+00:00"),
        ("0 0 0 1 1 * ,2028,", "2026-11-14T00:00:00", "2028-01-01T00:00:00+00:00"),
        ("0 0 1 6-6/2 *", "2026-06-02T00:00:00", "2027-06-01T00:00:00+00:00"),
        ("0 0 * * MON-MON/2", "2026-11-17T00:00:00", "2026-11-23T00:00:00+00:00"),
    ],
)
def test_the_grammar_is_understood(expression, start, expected):
    assert fires(expression, "UTC", ms(start), 1) == [expected]


def test_a_pattern_with_years_ends_with_them():
    cron = parse_cron("0 0 0 1 1 * 2028", "UTC")
    assert [*cron.fires_after(ms("2026-01-01T00:00:00"))] == [ms("2028-01-01T00:00:00")]
    at_its_end = parse_cron("59 59 23 31 12 * 2028", NEW_YORK)
    assert [*at_its_end.fires_after(ms("2026-01-01T00:00:00"))] == [
        ms("2028-12-31T23:59:59", NEW_YORK)
    ]


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
        ("0 0 LW * *", None, "'LW' is not a valid day of month"),
        ("0 0 1,LW * *", None, "'1,LW' is not a valid day of month"),
        ("0 0 L/2 * *", None, "'L/2' is not a valid day of month"),
        ("0 0 15W * *", None, "'15W' is not a valid day of month"),
        ("5,* * * * *", None, "'5,*' is not a valid minute"),
        ("0 0 * * ,", None, "',' is not a valid day of week"),
        ("0 0 0 1 1 * 5001", None, "cron year '5001'"),
        ("0 0 0 1 1 * ?", None, "cron year '?'"),
        ("0 0 0 1 1 * ,", None, "cron year ','"),
        ("0 8 * * MON-FRI 2030", None, "valid month: with 6 fields the first is the second"),
        ("@fortnightly", None, "'@fortnightly' is unknown"),
        ("", None, "has 0 fields"),
        ("* * * * *", "Mars/Olympus", "'Mars/Olympus' is unknown"),
        ("* * * * *", "+25:00", "'+25:00' is unknown"),
        ("* * * * *", "../../etc/passwd", "is unknown"),
        ("* * * * *", "europe/berlin", "'europe/berlin' is unknown: did you mean Europe/Berlin?"),
        ("* * * * *", "localtime", "'localtime' is unknown"),
        ("* * * * *", "right/Europe/Berlin", "'right/Europe/Berlin' is unknown"),
    ],
)
def test_bad_input_names_the_part_that_is_wrong(expression, tz, part):
    with pytest.raises(ValueError, match=re.escape(part)):
        parse_cron(expression, tz)


@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize(
    ("expression", "tz", "told"),
    [
        ("1," * 500_000 + "1 * * * *", None, "(1,000,009 characters) is too long, at most 1,024"),
        ("* " * 500_000, None, "(1,000,000 characters) is too long, at most 1,024"),
        ("@" + "x" * 999_999, None, "(1,000,000 characters) is too long, at most 1,024"),
        ("@" + "x" * 999, None, "xxx'... (1,000 characters) is unknown: use @yearly"),
        ("9" * 900 + " * * * *", None, "999'... (900 characters) is not a valid minute"),
        ("* * * * * * " + "9" * 900, None, "999'... (900 characters) is not valid: use years"),
        ("* * * * *", "Europe/Berlin" * 1_000, "(13,000 characters) is too long, at most 255"),
        ("* * * * *", "x" * 255, "xxx'... (255 characters) is unknown: use UTC"),
    ],
    ids=["list", "fields", "nickname", "long-nickname", "digits", "year", "zone", "long-zone"],
)
def test_what_is_too_long_is_refused_at_once_and_told_by_its_beginning(
    expression, tz, told, is_stored
):
    with pytest.raises(ValueError, match=re.escape(told)) as caught:
        parse_cron(expression, tz, is_stored=is_stored)
    assert len(str(caught.value)) < 400


def test_an_expression_that_lists_every_value_of_every_field_is_not_too_long():
    ends = (
        range(60),
        range(60),
        range(24),
        range(1, 32),
        range(1, 13),
        range(7),
        range(2026, 2066),
    )
    lists = [",".join(map(str, values)) for values in ends]
    now = ms("2026-11-14T12:00:00")
    assert parse_cron(" ".join(lists), "America/Argentina/ComodRivadavia").next_after(now)


@pytest.mark.parametrize(
    ("expression", "tz", "stored"),
    [
        ("@midnight", None, ("0 0 * * *", None)),
        (" @Midnight", "Europe/Berlin", ("0 0 * * *", "Europe/Berlin")),
        ("@Daily", None, ("@Daily", None)),
        ("0 0 * * 1L,7l", None, ("0 0 * * 1L,0L", None)),
        ("0 0 * * 7#L", None, ("0 0 * * 0#L", None)),
        ("7 7 7 7 7", "z", ("7 7 7 7 7", "Z")),
        ("30  9 * * mon-fri", "utc", ("30  9 * * mon-fri", "utc")),
    ],
)
def test_what_the_reference_cannot_read_is_stored_in_words_it_knows(expression, tz, stored):
    assert portable(expression, tz) == stored
    now = ms("2026-11-14T12:00:00")
    assert parse_cron(*stored).next_after(now) == parse_cron(expression, tz).next_after(now)


def test_offsets_and_zones_are_read_as_the_reference_writes_them():
    assert parse_zone("+5:30") == parse_zone(" +05:30") == parse_zone("+0530")
    assert parse_zone(" Europe/Berlin ") == ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize("tz", [None, "", "UTC", "utc", "Z", "z", " ", "UTC "])
def test_utc_has_many_names(tz):
    assert parse_zone(tz) is UTC


def test_an_expression_can_be_put_in_words():
    assert parse_cron("30 9 * * MON-FRI", "Europe/London").describe() == (
        "At 09:30 on Monday through Friday (Europe/London)"
    )
    assert parse_cron("0 0 1,15 * 1", None).describe() == (
        "At 00:00 on the first and the 15th day of month or on Monday (UTC)"
    )


@pytest.mark.parametrize(
    ("expression", "tz"),
    [("0 0 LW * *", None), ("5,* * * * *", None), ("0 0 * * *", "posix/Europe/Berlin")],
)
def test_what_is_refused_because_the_reference_would_forget_it_goes_on_where_it_is_stored(
    expression, tz
):
    with pytest.raises(ValueError, match=r"not a valid|is unknown"):
        parse_cron(expression, tz)
    assert parse_cron(expression, tz, is_stored=True).next_after(0) is not None
