"""Stream entries: jobs and dead letters, as flat field lists."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chasquimq.errors import DlqReason
from chasquimq.wire.entry import (
    DeadLetter,
    dead_letter_fields,
    job_fields,
    parse_dead_letter,
    parse_job_fields,
)

TEXT = st.text()  # hypothesis leaves lone surrogates out


@given(st.binary(), TEXT)
def test_a_job_comes_back_from_its_fields(envelope, name):
    assert parse_job_fields(job_fields(envelope, name)) == (envelope, name)


def test_an_empty_name_has_no_field():
    assert job_fields(b"x", "") == [b"d", b"x"]
    assert job_fields(b"x", "é") == [b"d", b"x", b"n", b"\xc3\xa9"]


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ([], (None, "")),
        ([b"n", b"name"], (None, "name")),
        ([b"x", b"1"], (None, "")),
        ([b"d", b""], (b"", "")),
        ([b"d", b"1", b"n", b""], (b"1", "")),
        ([b"n", b"name", b"d", b"1"], (b"1", "name")),
        ([b"x", b"?", b"d", b"1", b"n", b"a", b"n", b"b", b"d", b"2"], (b"1", "a")),
        ([b"d", b"1", b"d", b"2"], (b"1", "")),
        ([b"d", b"1", b"n"], (b"1", "")),
        ([b"d"], (None, "")),
        ([b"d", b"1", b"n", b"a\xff"], (b"1", "a\ufffd")),
        ((b"d", b"1", b"x", b"", b"n", b"\xff"), (b"1", "\ufffd")),
    ],
)
def test_the_first_envelope_and_name_count_and_the_rest_is_ignored(fields, found):
    assert parse_job_fields(fields) == found


@given(st.lists(st.sampled_from([b"d", b"n", b"x"]) | st.binary(max_size=4), max_size=9))
def test_arbitrary_fields_never_raise(fields):
    parse_job_fields(fields)
    parse_dead_letter(b"1-1", fields)


LETTERS = st.builds(
    DeadLetter,
    source_id=TEXT,
    reason=st.sampled_from(DlqReason).map(str) | TEXT,
    payload=st.binary(),
    name=TEXT,
    detail=st.none() | TEXT,
    error=st.none() | TEXT,
    traceback=st.none() | TEXT,
    attempts=st.none() | st.integers(0, 2**40),
    failed_at=st.none() | st.integers(0, 2**63),
    consumer=st.none() | TEXT,
    dlq_id=st.just("5-1"),
)


@given(LETTERS)
def test_a_dead_letter_comes_back_from_its_fields(letter):
    assert parse_dead_letter(b"5-1", dead_letter_fields(letter)) == letter


def test_the_fields_of_a_dead_letter_have_their_order():
    letter = DeadLetter(
        source_id="1-1",
        reason=DlqReason.UNRECOVERABLE,
        payload=b"e",
        name="n",
        detail="d",
        error="E: x",
        traceback="tb",
        attempts=3,
        failed_at=99,
        consumer="c-1",
    )
    assert dead_letter_fields(letter) == [
        *(b"d", b"e", b"n", b"n", b"source_id", b"1-1", b"reason", b"unrecoverable"),
        *(b"detail", b"d", b"error", b"E: x", b"traceback", b"tb", b"attempts", b"3"),
        *(b"failed_at", b"99", b"consumer", b"c-1"),
    ]
    assert list(letter.to_dict()) == [
        *("dlq_id", "source_id", "reason", "detail", "name", "payload"),
        *("error", "traceback", "attempts", "failed_at", "consumer", "job_id"),
    ]
    assert type(letter.to_dict()["reason"]) is str


def test_nothing_an_exception_says_can_keep_a_job_from_being_dead_lettered():
    letter = DeadLetter("1-1", "unrecoverable", b"", name="\udcff", error="bad name: \udcff")
    fields = dead_letter_fields(letter)
    assert fields[3] == rb"\udcff"
    assert fields[-1] == rb"bad name: \udcff"


def test_a_dead_letter_with_fields_missing_or_mangled_can_still_be_read():
    assert parse_dead_letter("5-1", []) == DeadLetter("", "", b"", dlq_id="5-1")
    mangled = [b"attempts", b"many", b"failed_at", b"", b"reason", b"\xff", b"reason", b"second"]
    assert parse_dead_letter("5-1", mangled) == DeadLetter("", "\ufffd", b"", dlq_id="5-1")


def test_a_dead_letter_is_a_frozen_value():
    with pytest.raises(dataclasses.FrozenInstanceError):
        DeadLetter("1-1", "stalled", b"").reason = "other"
