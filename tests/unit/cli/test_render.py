"""What is printed: times, text that is not trusted, JSON of any data, sparklines."""

import json
from datetime import UTC, datetime

import pytest
from rich.console import Console

from chasquimq.broker.survey import Depths
from chasquimq.cli import render
from chasquimq.cli.events import line
from chasquimq.cli.watch import Film, sparkline
from chasquimq.wire.event import QueueEvent

NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "now"),
        (3_000, "in 3 s"),
        (-250, "250 ms ago"),
        (-90_000, "90 s ago"),
        (-120_000, "2 min ago"),
        (7_200_000, "in 2 h"),
        (4 * 86_400_000, "in 4 d"),
    ],
)
def test_how_far_away_an_instant_is(ms, text):
    assert render.away(NOW + ms, NOW) == text


def test_an_instant_is_shown_in_utc_with_its_distance():
    assert render.instant(NOW + 3_000, NOW) == "2023-11-14T22:13:23.000Z (in 3 s)"
    assert render.instant(None, NOW) is None
    assert render.iso(1e18) == "1000000000000000000 ms"


def test_control_characters_are_shown_as_escapes():
    assert render.clean("a\x1b[31mb\x07\r\nc\td") == "a\\x1b[31mb\\x07\\r\nc\td"
    assert render.clean("žluťoučký ✓") == "žluťoučký ✓"


def test_any_data_becomes_json():
    value = {1: b"\xff", None: [float("nan"), {2}], "t": datetime(2030, 1, 1, tzinfo=UTC)}
    assert json.loads(json.dumps(render.plain(value))) == {
        "1": {"base64": "/w=="},
        "None": ["nan", [2]],
        "t": "2030-01-01T00:00:00+00:00",
    }


def test_data_on_one_line_is_cut():
    assert render.short("x" * 100, 10) == '"xxxxxxxxx…'


def test_markup_in_a_job_is_not_obeyed():
    screen = Console(width=60, file=None, highlight=False, markup=False)
    with screen.capture() as captured:
        screen.print(render.table(["a"], [["[bold]x[/bold]"]]))
    assert "[bold]x[/bold]" in captured.get()


def test_a_wide_table_fits_into_eighty_columns():
    screen = Console(width=80, highlight=False)
    with screen.capture() as captured:
        screen.print(render.table(["id", "data"], [["x" * 26, "y" * 200]]))
    assert max(map(len, captured.get().splitlines())) <= 80


@pytest.mark.parametrize(
    ("values", "bars"),
    [([], ""), ([0, 0], "▁▁"), ([0, 1, 7], "▁▂█"), ([5], "█"), ([0, 1, 1_000_000], "▁▂█")],
)
def test_a_sparkline_shows_something_wherever_there_is_something(values, bars):
    assert sparkline(values) == bars


def depths(stream, added, dlq=0):
    return Depths(stream, 0, dlq, 0, None, 0, is_paused=False, added=added)


def test_rates_are_counted_between_two_looks():
    film = Film("q", "default", 1_000)
    film.take(depths(10, 100), NOW)
    assert film.rates() == (None, None)
    film.take(depths(4, 110, dlq=2), NOW + 2_000)
    assert film.rates() == (5.0, 8.0)
    shape = film.shape()
    assert (shape["stream_delta"], shape["dlq_delta"]) == (-6, 2)


def test_rates_are_unknown_where_the_server_does_not_count_or_began_anew():
    film = Film("q", "default", 1_000)
    for added in (None, None, 5, 2):
        film.take(depths(1, added), NOW + 1_000 * (added or 9))
        assert film.rates() == (None, None)


def test_an_event_is_one_line_whatever_it_holds():
    event = QueueEvent(
        "failed", None, "", {"ts": NOW, "reason": "a\nb" + "x" * 100, "attempt": 1}, "1-0"
    )
    assert line(event) == (
        "2023-11-14T22:13:20.000Z 1-0 failed id=- name=- attempt=1 reason=a\\nb" + "x" * 77 + "..."
    )


# --- rows on screens of any width

COLUMNS = ["dlq peek: emails\njob id", "name", "reason", "detail / error", "bytes"]
ULID = "01KA9V7M2Q3R4S5T6V7W8X9YZA"
ROWS = [
    (f"1767225600000-{n}\n{ULID}", "welcome-mail", "retries_exhausted", "ValueError: no " * 4, 1234)
    for n in range(2)
]
KEY = "digest::cron:0 8 * * MON-FRI:America/Argentina/Buenos_Aires"


def printed(width, *renderables):
    screen = Console(width=width, highlight=False, markup=False, legacy_windows=False)
    with screen.capture() as captured:
        screen.print(*renderables, sep="\n")
    return captured.get()


@pytest.mark.parametrize("width", [40, 60, 80, 90, 100, 119])
def test_no_column_is_lost_and_what_people_copy_is_whole_on_any_screen(width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    shown = printed(width, render.listing(COLUMNS, ROWS, right=["bytes"], whole=COLUMNS[:1]))
    assert max(map(len, shown.splitlines())) <= width
    assert shown.count(ULID) == 2
    assert shown.count("1234") == 2
    assert "1767225600000-1" in shown


def test_a_screen_too_narrow_for_columns_has_a_card_for_each_row(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    columns = ["repeatable: reports", "job_name", "pattern", "tz", "next fire (ms)", "limit"]
    rows = [(KEY, "digest", "0 8 * * MON-FRI", "UTC", "1767225600000\nin 3 h", None)]
    shown = printed(80, render.listing(columns, rows, whole=columns[:1]))
    assert [line.rstrip() for line in shown.splitlines()] == [
        "repeatable: reports",
        "",
        KEY,
        "  job_name        digest",
        "  pattern         0 8 * * MON-FRI",
        "  tz              UTC",
        "  next fire (ms)  1767225600000",
        "                  in 3 h",
        "  limit           -",
    ]
    monkeypatch.setenv("COLUMNS", "160")
    assert "│" in printed(160, render.listing(columns, rows, whole=columns[:1]))


def test_a_listing_of_nothing_says_so_on_any_screen(monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    assert "(none)" in printed(30, render.listing(["a" * 40, "b"], [["(none)"]], whole=["a" * 40]))
