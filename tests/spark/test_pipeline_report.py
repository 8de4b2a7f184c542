"""The report: one page that loads nothing, whatever the tables hold."""

import re
from datetime import timedelta
from html.parser import HTMLParser

import pytest

from chasquimq.pipeline import axes
from chasquimq.pipeline.axes import lasting, shown
from chasquimq.pipeline.charts import Bar, Frame, Series, bars, heat, over_time
from chasquimq.pipeline.instants import DAY_MS, HOUR_MS, MINUTE_MS
from chasquimq.pipeline.report import page
from chasquimq.pipeline.summary import Figures, step_of
from tests.support.figures import NOTHING, START, a_full_summary, a_summary, some_figures
from tests.support.spark import SPARK_MARKS

pytestmark = SPARK_MARKS

MADE_AT_MS = 1_770_000_000_000
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


def made(summary):
    return page(summary, title="Of <q>", made_at_ms=MADE_AT_MS)


def test_the_page_is_whole_and_loads_nothing():
    text = made(a_summary())
    found = Page(text)
    tags = [tag for tag, _ in found.found]
    assert tags.count("svg") == 4
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
    words = "|".join(Page(made(a_summary())).words)
    assert "|80.0%| of 45 finished jobs were done within 1 min; 99% should be. |" in words
    assert "|The promise was broken: 20.0 times as many missed it as it allows.|" in words
    assert "|jobs arrived|50|45 finished|" in words
    assert "|completed|40|at most 8 per minute|" in words
    assert "|given up|5|11.1% of the finished|" in words
    assert "|runs that failed|25.0%|1.2 runs per job|" in words
    assert "|in all, p95|40 ms|half within 4 ms|" in words


def test_a_promise_that_was_kept_is_said_to_be():
    kept = a_summary(total=Figures(**some_figures(slo_good=45, slo_burn=0.0)))
    assert "The promise was kept." in "".join(Page(made(kept)).words)


def test_a_queue_in_which_nothing_happened_has_a_page_too():
    words = "".join(Page(made(a_summary(**NOTHING))).words)
    assert "Nothing has happened yet" in words
    assert "chasqui pipeline run QUEUE" in words


def test_missing_events_are_said_on_top():
    words = "".join(Page(made(a_summary(gaps=2, lost=1_234))).words)
    assert "Events are missing: 1,234, in 2 gaps." in words


def test_what_is_left_out_of_a_long_list_is_said():
    words = "".join(Page(made(a_full_summary())).words)
    assert "And 9 more names." in words
    assert "And 3 more kinds." in words


def test_a_line_breaks_where_a_value_is_missing():
    frame = Frame(list("abcd"), (), axes.counts([4.0]), shown)
    drawn = over_time([Series("x", "red", [1.0, 2.0, None, 4.0])], frame, "x")
    paths = re.findall(r'class="line red( dot)?" d="([^"]*)"', drawn)
    assert [(dot, path.count("L")) for dot, path in paths] == [("", 1), (" dot", 0)]


def test_columns_stand_on_each_other():
    frame = Frame(["a"], (), axes.counts([10.0]), shown)
    both = [Series(name, name, [5.0], is_column=True) for name in ("green", "red")]
    drawn = over_time(both, frame, "x")
    places = re.findall(r'class="(green|red)" x="\S+" y="(\S+)" width="\S+" height="(\S+)"', drawn)
    assert places == [("green", "500.0", "500.0"), ("red", "0.0", "500.0")]


def test_charts_of_nothing_and_of_zero_are_charts():
    nothing = Frame([], (), axes.counts([]), shown)
    zero = Frame(["a"], (), axes.durations([0.0]), lasting)
    for drawn in (over_time([], nothing, ""), over_time([Series("x", "red", [0.0])], zero, ""),
                  bars([], "red"), bars([Bar("a", 0.0, "0")], "red"), heat([], "red", "jobs"),
                  heat([("Mon", [0.0, None])], "red", "jobs")):  # fmt: skip
        Page(drawn)
        assert "nan" not in drawn.lower()


@pytest.mark.parametrize(
    ("largest", "labels"),
    [(0, ["0", "1"]), (3, ["0", "1", "2", "3"]), (82, ["0", "20", "40", "60", "80", "100"]),
     (5_032, ["0", "2,000", "4,000", "6,000"]), (0.7, ["0", "0.2", "0.4", "0.6", "0.8"])],
)  # fmt: skip
def test_a_scale_has_few_round_marks_and_room_for_the_largest(largest, labels):
    scale = axes.counts([largest])
    assert [label for _, label in scale.marks] == labels
    assert scale.place(largest) <= 1


def test_times_that_are_far_apart_are_on_a_logarithmic_scale():
    scale = axes.durations([0.0, 12.0, 45_000.0])
    assert scale.is_log
    assert [label for _, label in scale.marks] == ["10 ms", "100 ms", "1 s", "10 s", "1 min"]
    assert scale.place(0.0) == 0
    assert scale.place(10.0) < scale.place(12.0) < scale.place(45_000.0) < 1
    assert not axes.durations([10.0, 400.0]).is_log


@pytest.mark.parametrize(
    ("count", "step_ms", "labels"),
    [
        (1, MINUTE_MS, ["09:00"]),
        (30, MINUTE_MS, ["09:00", "09:05", "09:10", "09:15", "09:20", "09:25"]),
        (24, HOUR_MS, ["12:00", "18:00", "1 Feb", "06:00"]),
        (96, HOUR_MS, ["1 Feb", "2 Feb", "3 Feb", "4 Feb"]),
        (60, DAY_MS, ["31 Jan", "14 Feb", "28 Feb", "14 Mar", "28 Mar"]),
    ],
)
def test_the_foot_of_a_chart_has_round_times(count, step_ms, labels):
    at = [START + timedelta(milliseconds=step_ms * step) for step in range(count)]
    if step_ms == DAY_MS:
        at = [each.replace(hour=0) for each in at]
    marks = axes.times(at, step_ms)
    assert [mark.label for mark in marks] == labels
    assert all(0 <= mark.place < 1 for mark in marks)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.123456, "0.123"), (12, "12"), (99.5, "99.5"), (1_234.5, "1,234"),
     (2_500_000, "2,500 k")],
)  # fmt: skip
def test_numbers_are_shown_for_people(value, text):
    assert shown(value) == text


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0 ms"), (0.42, "0.42 ms"), (999, "999 ms"), (1_250, "1.25 s"), (90_000, "1.5 min"),
     (5_400_000, "1.5 h"), (200_000_000, "2.31 d"), (86_400_000 * 4_321.0, "4,321 d")],
)  # fmt: skip
def test_durations_are_shown_for_people(ms, text):
    assert lasting(ms) == text


@pytest.mark.parametrize(
    ("span_ms", "step_ms"),
    [(1, MINUTE_MS), (96 * MINUTE_MS, MINUTE_MS), (97 * MINUTE_MS, 2 * MINUTE_MS),
     (4 * DAY_MS, HOUR_MS), (5_000 * DAY_MS, 28 * DAY_MS)],
)  # fmt: skip
def test_the_longer_the_time_the_longer_a_step(span_ms, step_ms):
    assert step_of(span_ms) == step_ms
