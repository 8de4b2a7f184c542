"""Recurring jobs: patterns, policies, and the stored form of a spec."""

import dataclasses
from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chasquimq.errors import DecodeError
from chasquimq.wire.codec import pack
from chasquimq.wire.envelope import Inline
from chasquimq.wire.repeat import (
    MissedFiresPolicy,
    RepeatableMeta,
    RepeatableSpec,
    RepeatPattern,
    decode_spec,
    encode_spec,
    spec_key,
)
from chasquimq.wire.retry import U32_MAX, U64_MAX, RetryOverride

BOUNDS = st.none() | st.integers(0, U64_MAX)
PATTERNS = st.one_of(
    st.builds(
        lambda expression, tz: RepeatPattern.cron(expression, tz=tz),
        st.text(min_size=1).filter(str.strip),
        st.none() | st.text(),
    ),
    st.builds(RepeatPattern.every, st.integers(1, U64_MAX)),
)
POLICIES = st.one_of(
    st.builds(MissedFiresPolicy.skip),
    st.builds(MissedFiresPolicy.fire_once),
    st.builds(MissedFiresPolicy.fire_all, st.integers(1, U32_MAX)),
)
SPECS = st.builds(
    RepeatableSpec,
    st.text(),
    st.text(),
    PATTERNS,
    st.binary(max_size=300) | st.builds(lambda value: Inline(pack(value)), st.text()),
    BOUNDS,
    BOUNDS,
    BOUNDS,
    POLICIES,
)


def a_spec(**changes):
    pattern = RepeatPattern.every(60000)
    spec = RepeatableSpec("send-digest::every:60000", "send-digest", pattern, pack({"k": 1}))
    return dataclasses.replace(spec, **changes)


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        (RepeatPattern.cron("0 2 * * *"), {"kind": "cron", "expression": "0 2 * * *"}),
        (
            RepeatPattern.cron("0 2 * * *", tz="UTC"),
            {"kind": "cron", "expression": "0 2 * * *", "tz": "UTC"},
        ),
        (RepeatPattern.every(5), {"kind": "every", "interval_ms": 5}),
        (MissedFiresPolicy.skip(), {"kind": "skip"}),
        (MissedFiresPolicy.fire_once(), {"kind": "fire-once"}),
        (MissedFiresPolicy.fire_all(7), {"kind": "fire-all", "max_catchup": 7}),
    ],
)
def test_the_dict_form_holds_what_is_set_and_comes_back(value, raw):
    assert value.to_dict() == raw
    assert type(value).from_dict(raw) == value
    assert type(value)(**raw) == value
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.kind = "other"


@pytest.mark.parametrize(
    ("raw", "error", "words"),
    [
        ({}, ValueError, "repeat kind is None: use 'cron' or 'every'"),
        ({"kind": "solar"}, ValueError, "repeat kind is 'solar'"),
        ({"kind": "cron"}, TypeError, "expression must be a str, got NoneType"),
        ({"kind": "cron", "expression": " "}, ValueError, "expression is blank"),
        ({"kind": "cron", "expression": "* * * * *", "tz": 1}, TypeError, "tz must be a str"),
        ({"kind": "cron", "expression": "@daily", "interval_ms": 5}, ValueError, "no meaning"),
        ({"kind": "every"}, ValueError, "interval_ms is missing"),
        ({"kind": "every", "interval_ms": 0}, ValueError, "interval_ms is 0: the shortest"),
        ({"kind": "every", "interval_ms": -5}, ValueError, "is -5: the shortest interval is 100"),
        ({"kind": "every", "interval_ms": True}, TypeError, "interval_ms must be an int, got bool"),
        ({"kind": "every", "interval_ms": 1.5}, TypeError, "interval_ms must be an int, got float"),
        ({"kind": "every", "interval_ms": 5, "tz": "UTC"}, ValueError, "tz has no meaning"),
        ({"kind": "every", "every": 5}, ValueError, "repeat has unknown keys 'every'"),
    ],
)
def test_a_wrong_pattern_is_refused(raw, error, words):
    with pytest.raises(error, match=words):
        RepeatPattern.from_dict(raw)


@pytest.mark.parametrize(
    ("raw", "error", "words"),
    [
        ({}, ValueError, "missed_fires kind is None: use 'skip', 'fire-once' or 'fire-all'"),
        ({"kind": "fire-all"}, ValueError, "max_catchup is missing"),
        ({"kind": "fire-all", "max_catchup": 0}, ValueError, "max_catchup is 0"),
        ({"kind": "fire-all", "max_catchup": True}, TypeError, "must be an int, got bool"),
        ({"kind": "fire-all", "max_catchup": 2**32}, ValueError, "max_catchup is 4294967296"),
        ({"kind": "skip", "max_catchup": 1}, ValueError, "no meaning with kind 'skip'"),
        ({"kind": "skip", "extra": 1}, ValueError, "missed_fires has unknown keys 'extra'"),
    ],
)
def test_a_wrong_policy_is_refused(raw, error, words):
    with pytest.raises(error, match=words):
        MissedFiresPolicy.from_dict(raw)


@pytest.mark.parametrize(
    ("pattern", "key"),
    [
        (RepeatPattern.every(500), "n::every:500"),
        (RepeatPattern.cron(" 0  2 * * *"), "n::cron: 0  2 * * *:UTC"),
        (RepeatPattern.cron("0 2 * * *", tz="+05:30"), "n::cron:0 2 * * *:+05:30"),
    ],
)
def test_a_spec_without_a_key_gets_one_from_its_name_and_pattern(pattern, key):
    assert spec_key("n", pattern) == key


@given(SPECS)
def test_a_spec_comes_back_from_its_stored_form(spec):
    blob = encode_spec(spec)
    assert decode_spec(blob) == spec
    assert encode_spec(decode_spec(blob)) == blob
    assert blob[0] == (0x98 if spec.missed_fires.kind == "skip" else 0x99)


def test_an_override_is_not_in_the_stored_form_but_is_read_from_ten_slots():
    assert encode_spec(a_spec(retry=RetryOverride(3))) == encode_spec(a_spec())
    slots = bytearray(encode_spec(a_spec()))
    slots[0] = 0x9A
    assert decode_spec(bytes(slots) + pack("Skip") + pack([3, None])) == a_spec(
        retry=RetryOverride(3)
    )
    assert decode_spec(bytes(slots) + pack("FireOnce") + pack(None)) == a_spec(
        missed_fires=MissedFiresPolicy.fire_once()
    )


@pytest.mark.parametrize("missed", ["Skip", None, {"FireAll": [0]}])
def test_every_way_to_say_skip_is_read_as_skip(missed):
    slots = bytearray(encode_spec(a_spec()))
    slots[0] = 0x99
    assert decode_spec(bytes(slots) + pack(missed)) == a_spec()


def test_a_payload_of_a_typed_producer_is_kept_as_the_value_it_is():
    spec = a_spec(payload=Inline(pack(["typed", 1])))
    assert decode_spec(encode_spec(spec)) == spec


def test_a_listed_spec_has_everything_but_the_payload():
    spec = a_spec(limit=5, start_after_ms=1, end_before_ms=9)
    assert spec.meta(7) == RepeatableMeta(
        key=spec.key,
        job_name=spec.job_name,
        pattern=spec.pattern,
        next_fire_ms=7,
        limit=5,
        start_after_ms=1,
        end_before_ms=9,
        missed_fires=None,
    )
    caught_up = a_spec(missed_fires=MissedFiresPolicy.fire_all(2))
    assert caught_up.meta(7).missed_fires == MissedFiresPolicy.fire_all(2)


def test_bounds_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="limit is -1"):
        a_spec(limit=-1)
    with pytest.raises(TypeError, match="end_before_ms must be an int, got float"):
        a_spec(end_before_ms=1.5)


EVERY = {"Every": [5]}
INNER = pack(b"\xc0")


@pytest.mark.parametrize(
    ("slots", "words"),
    [
        ("text", "not an array of 8 to 10 slots"),
        ([1] * 7, "not an array of 8 to 10 slots"),
        ([1] * 11, "not an array of 8 to 10 slots"),
        ([1, "n", EVERY, INNER, None, None, None, 0], "must start with a text key"),
        (["k", "n", EVERY, {"k": 1}, None, None, None, 0], "a bin payload"),
        (["k", "n", EVERY, b"\xc4\x05x", None, None, None, 0], "not one complete"),
        (["k", "n", EVERY, b"", None, None, None, 0], "not one complete"),
        (["k", "n", {"Solar": [1]}, INNER, None, None, None, 0], "'k': the pattern is neither"),
        (["k", "n", {"Every": [0]}, INNER, None, None, None, 0], "'k': interval_ms is 0"),
        (
            ["k", "n", {"Cron": [None, None]}, INNER, None, None, None, 0],
            "expression must be a str",
        ),
        (["k", "n", EVERY, INNER, -1, None, None, 0], "'k': limit is -1"),
        (["k", "n", EVERY, INNER, None, "x", None, 0], "start_after_ms must be an int"),
        (["k", "n", EVERY, INNER, None, None, None, 0, "Later"], "missed_fires is neither"),
        (["k", "n", EVERY, INNER, None, None, None, 0, {"FireAll": [-1]}], "max_catchup is -1"),
        (["k", "n", EVERY, INNER, None, None, None, 0, "Skip", 5], "expected an array of 2"),
    ],
)
def test_what_is_no_spec_is_refused_with_the_reason(slots, words):
    with pytest.raises(DecodeError, match=words):
        decode_spec(pack(slots))


@settings(max_examples=200)
@given(st.binary(max_size=100))
@example(b"\x98" + b"\xa0" * 8)
@example(b"\x98\xa0\xa0\x81\x90\x00\xc4\x01\xc0\xc0\xc0\xc0\x00")
def test_arbitrary_bytes_raise_nothing_but_a_decode_error(raw):
    with suppress(DecodeError):
        decode_spec(raw)


@settings(max_examples=200)
@given(SPECS, st.data())
def test_a_spec_with_one_byte_changed_raises_nothing_but_a_decode_error(spec, data):
    blob = bytearray(encode_spec(spec))
    blob[data.draw(st.integers(0, len(blob) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = decode_spec(bytes(blob))
    except DecodeError:
        return
    encode_spec(found)
