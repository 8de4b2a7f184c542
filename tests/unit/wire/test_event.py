"""Events: which there are, what they carry, and how they are written."""

import dataclasses
import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chasquimq.wire.event import EventName, QueueEvent, event_fields, parse_event

NUMBERS = {
    *("attempt", "backoff_ms", "created_at_ms", "delay_ms"),
    *("duration_us", "progress", "ts", "wait_ms"),
}


@pytest.mark.parametrize(
    ("event", "fields"),
    [
        (
            ("active", "j1", 99, "mail", {"attempt": 1, "wait_ms": 3, "created_at_ms": 96}),
            b"e active id j1 ts 99 n mail attempt 1 wait_ms 3 created_at_ms 96",
        ),
        (
            ("failed", b"j1", 99, "mail", {"attempt": 1, "reason": "no", "duration_us": 5}),
            b"e failed id j1 ts 99 n mail attempt 1 reason no duration_us 5",
        ),
        ((EventName.WAITING, "j1", 99, "", None), b"e waiting id j1 ts 99"),
        ((EventName.RETRY_SCHEDULED, "j1", 99, "", {}), b"e retry-scheduled id j1 ts 99"),
    ],
)
def test_events_are_written_in_the_documented_order(event, fields):
    assert event_fields(*event) == fields.split(b" ")


def test_a_queue_wide_event_has_an_empty_id_and_no_job():
    fields = event_fields(EventName.DRAINED, "", 99, "")
    assert fields == [b"e", b"drained", b"id", b"", b"ts", b"99"]
    assert parse_event("1-1", fields) == QueueEvent("drained", None, "", {"ts": 99})


def test_an_event_is_a_frozen_value_whose_place_in_the_stream_does_not_count():
    event = parse_event(b"1-1", [b"e", b"active", b"id", b"j1"])
    assert event.event_id == "1-1"
    assert event == QueueEvent(name="active", job_id="j1", job_name="", fields={})
    assert event == dataclasses.replace(event, event_id="2-2")
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.name = "other"


@given(
    st.sampled_from(EventName).map(str) | st.text(min_size=1),
    st.text(),
    st.integers(0, 2**63),
    st.text(),
    st.dictionaries(st.sampled_from(sorted(NUMBERS - {"ts"})), st.integers(-9, 2**63))
    | st.dictionaries(st.sampled_from(["reason", "prev", "new"]), st.text()),
)
def test_an_event_comes_back_from_its_fields(name, job_id, ts_ms, job_name, extras):
    event = parse_event(b"5-1", event_fields(name, job_id, ts_ms, job_name, extras))
    assert event == QueueEvent(name, job_id or None, job_name, {"ts": ts_ms, **extras})


@pytest.mark.parametrize("name", sorted(NUMBERS))
def test_documented_numbers_are_ints_unless_they_are_no_numbers(name):
    def parsed(value):
        return parse_event(b"1-1", [name.encode(), value]).fields[name]

    assert parsed(b"12") == 12
    assert type(parsed(b"12")) is int
    assert parsed(b"twelve") == "twelve"
    assert parsed(b"") == ""
    assert parsed(b"\xff") == "\ufffd"
    assert parsed(b"9" * 5000) == "9" * 5000


def test_other_fields_stay_text_and_the_first_of_equal_fields_counts():
    fields = [b"e", b"new-kind", b"e", b"second", b"x", b"12", b"x", b"13", b"odd"]
    assert parse_event(b"1-1", fields) == QueueEvent("new-kind", None, "", {"x": "12"})


def test_nothing_an_exception_says_can_keep_an_event_from_being_written():
    fields = event_fields(EventName.FAILED, "j\udcff", 9, "n\udcff", {"reason": "r\udcff"})
    assert (fields[3], fields[7], fields[-1]) == (rb"j\udcff", rb"n\udcff", rb"r\udcff")


@given(
    st.binary(max_size=9), st.lists(st.sampled_from([b"e", b"id", b"ts"]) | st.binary(max_size=4))
)
def test_arbitrary_fields_never_raise(entry_id, fields):
    parse_event(entry_id, fields)


def test_the_table_of_events_says_of_each_what_it_carries():
    lines = inspect.cleandoc(EventName.__doc__).splitlines()
    header = next(at for at, line in enumerate(lines) if "extra fields" in line)
    extras_at, means_at = lines[header].index("extra fields"), lines[header].index("means")
    rows = lines[header + 1 : lines.index("", header)]
    table = {row[:extras_at].strip(): row[extras_at:means_at].split() for row in rows}
    assert table.pop("") == []  # a meaning that takes two lines
    assert table == {
        "waiting": [],
        "delayed": ["delay_ms"],
        "active": ["attempt", "wait_ms", "created_at_ms"],
        "completed": ["attempt", "duration_us"],
        "failed": ["attempt", "reason", "duration_us"],
        "retry-scheduled": ["attempt", "backoff_ms"],
        "dlq": ["attempt", "reason"],
        "progress": ["progress"],
        "stalled": ["attempt", "prev"],
        "drained": [],
        "rate-limited": ["wait_ms"],
        "paused": [],
        "resumed": [],
    }
    assert list(table) == list(EventName)
