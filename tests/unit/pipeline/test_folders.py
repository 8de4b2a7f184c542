"""Patterns of folders' names hold those that are meant, and no others."""

import re
from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chasquimq.pipeline import folders


def matches(pattern, name):
    """Whether Hadoop would take a name: no more than what our patterns are made of."""
    text = "".join({"{": "(", ",": "|", "}": ")", "?": ".", "*": ".*", "+": r"\+"}.get(each, each)
                   for each in pattern)  # fmt: skip
    return re.fullmatch(text, name) is not None


@given(st.dates(), st.dates())
def test_days_from_one_on_are_those_that_are_not_before_it(first, other):
    assert matches(folders.since(first.isoformat()), other.isoformat()) == (other >= first)


@given(st.dates(max_value=date(9999, 12, 30)))
def test_the_neighbours_of_a_day_are_told_apart(first):
    pattern = folders.since(first.isoformat())
    assert matches(pattern, (first + timedelta(days=1)).isoformat())
    assert first == date.min or not matches(pattern, (first - timedelta(days=1)).isoformat())


def test_years_of_five_digits_come_after_all_others():
    assert matches(folders.since("2026-01-31"), "+10889-08-02")


@pytest.mark.parametrize("day", ["", "+10889-08-02", "2026-1-3", "yesterday"])
def test_what_is_no_day_stands_for_all(day):
    assert folders.since(day) == folders.EVERY


def test_names_are_those_and_no_others():
    pattern = folders.one_of({"2026-01-31T09-50", "id-07"})
    assert pattern == "{2026-01-31T09-50,id-07}"
    assert matches(pattern, "id-07")
    assert not matches(pattern, "id-08")


def test_names_may_be_known_by_their_beginnings():
    pattern = folders.one_of({"2026-01-31T09-50"}, "id-", "2026-02-01")
    assert pattern == "{2026-01-31T09-50,2026-02-01*,id-*}"
    assert matches(pattern, "2026-02-01T10-20")
    assert not matches(pattern, "2026-01-31T10-00")


@pytest.mark.parametrize("names", [[], ["a", "b*"], ["a,b"], [str(n) for n in range(1_001)]])
def test_none_too_many_and_strange_names_stand_for_all(names):
    assert folders.one_of(names) == folders.EVERY


@pytest.mark.parametrize("path", ["/batch=0123abcd-00000007", "", "/day=2026-01-31/queue=a b"])
def test_a_plain_path_is_no_pattern(path):
    assert not folders.is_pattern(path)


@pytest.mark.parametrize("path", [f"/day={folders.EVERY}", folders.since("2026-01-31"), "a\\*"])
def test_a_path_that_may_stand_for_several_is_a_pattern(path):
    assert folders.is_pattern(path)
