"""The report: one page that loads nothing, whatever the tables hold."""

import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser

import pytest

from chasquimq.pipeline.charts import Line, bars, heat, lines, shown
from chasquimq.pipeline.report import page
from chasquimq.pipeline.summary import Named, Point, Reason, Summary
from tests.support.spark import SPARK_MARKS

pytestmark = SPARK_MARKS

START = datetime(2026, 1, 31, 9, tzinfo=UTC)
VOID = {"meta", "br", "link", "img", "input"}


class Page(HTMLParser):
    """What a browser would find: every element, closed in order, and all text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.found, self.words = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def a_point(minute, **changes):
    values = {
        "at": START + timedelta(minutes=minute), "arrivals": 10, "completed": 8, "dead": 1,
        "runs": 12, "failures": 3, "wait_p50_ms": 1.0, "wait_p99_ms": 9.0, "run_p50_ms": 2.0,
        "run_p99_ms": None, "total_p50_ms": 4.0, "total_p99_ms": 40.0, "is_complete": True,
    }  # fmt: skip
    return Point(**values | changes)


def a_summary(**changes):
    values = {
        "unit": "minutes",
        "points": tuple(map(a_point, range(5))),
        "names": (Named("q", "<b>ship</b>", 50, 40, 5, 60, 15, 10, 1.5, 7.0, 40.0, 36, 2.0),),
        "reasons": (Reason("job", "unrecoverable", "<script>alert(1)</script>", 5),),
        "hours": ((START, 40),),
        "lost": 0,
        "gaps": 0,
        "slo_ms": 60_000,
        "slo_target": 0.99,
    }
    return Summary(**values | changes)


def made(summary):
    return page(summary, title="Of <q>", made_at="2026-01-31 10:00:00")


def test_the_page_is_whole_and_loads_nothing():
    text = made(a_summary())
    found = Page(text)
    tags = [tag for tag, _ in found.found]
    assert tags.count("svg") == 6
    assert not {"script", "link", "img", "iframe", "object"} & set(tags)
    loads = [attrs for _, attrs in found.found if {"src", "href"} & attrs.keys()]
    assert loads == []
    assert not re.search(r"https?:|@import|url\(", text)
    assert (
        "meta",
        {"name": "viewport", "content": "width=device-width,initial-scale=1"},
    ) in found.found


def test_what_came_out_of_a_queue_is_shown_as_text():
    words = "".join(Page(made(a_summary())).words)
    assert "Of <q>" in words
    assert "q / <b>ship</b>" in words
    assert "<script>alert(1)</script>" in words


def test_the_numbers_are_those_of_the_summary():
    words = Page(made(a_summary())).words
    # The first time counts: charts and tables below use the same words.
    cards = dict(reversed([*zip(words[1:], words, strict=False)]))
    assert cards["jobs arrived"] == "50"
    assert cards["completed"] == "40"
    assert cards["dead letters"] == "5"
    assert cards["runs that failed"] == "25.0%"
    assert cards["within 60 s (target 99.0%)"] == "80.0%"


def test_a_queue_in_which_nothing_happened_has_a_page_too():
    empty = a_summary(points=(), names=(), reasons=(), hours=(), slo_ms=None, slo_target=None)
    assert "Nothing has happened yet." in "".join(Page(made(empty)).words)


def test_missing_events_are_said_on_top():
    words = "".join(Page(made(a_summary(gaps=2, lost=1_234))).words)
    assert "Events are missing: 1,234, in 2 gaps." in words


def test_a_line_breaks_where_a_value_is_missing():
    drawn = lines(list("abcd"), [Line("x", "red", [1.0, 2.0, None, 4.0])])
    assert drawn.count("<polyline") == 1
    assert drawn.count("<circle") == 1


def test_charts_of_nothing_and_of_zero_are_charts():
    for drawn in (lines([], []), lines(["a"], [Line("x", "red", [0.0])]), bars([], "red"),
                  bars([("a", 0.0)], "red"), heat([], {}, "red")):  # fmt: skip
        Page(drawn)
        assert "nan" not in drawn.lower()


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.123456, "0.123"), (12, "12"), (99.5, "99.5"), (1_234.5, "1,234"),
     (2_500_000, "2,500 k")],
)  # fmt: skip
def test_numbers_are_shown_for_people(value, text):
    assert shown(value) == text
