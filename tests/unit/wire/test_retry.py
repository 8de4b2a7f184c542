"""A job's own retry rules: what may be said, and how it is written."""

import dataclasses
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chasquimq.errors import DecodeError
from chasquimq.wire.codec import pack
from chasquimq.wire.retry import (
    U32_MAX,
    U64_MAX,
    BackoffKind,
    BackoffSpec,
    RetryOverride,
    decode_retry,
    encode_retry,
    retry_from_wire,
)

U64 = st.integers(0, U64_MAX)
MULTIPLIERS = st.floats(min_value=0, allow_nan=False, allow_infinity=False)
BACKOFFS = st.builds(
    BackoffSpec,
    st.sampled_from(["fixed", "exponential"]) | st.text(),
    U64,
    st.none() | U64,
    st.none() | MULTIPLIERS,
    st.none() | U64,
)
OVERRIDES = st.builds(RetryOverride, st.none() | st.integers(0, U32_MAX), st.none() | BACKOFFS)


def test_the_factories_fill_the_documented_fields():
    assert BackoffSpec.fixed(250) == BackoffSpec("fixed", 250)
    assert BackoffSpec.fixed(250, 10) == BackoffSpec("fixed", 250, jitter_ms=10)
    assert BackoffSpec.exponential(100) == BackoffSpec("exponential", 100, multiplier=2.0)
    assert BackoffSpec.exponential(100, multiplier=3, max_ms=900, jitter_ms=5) == BackoffSpec(
        kind="exponential", delay_ms=100, max_delay_ms=900, multiplier=3.0, jitter_ms=5
    )


def test_a_cap_below_the_start_is_refused_where_it_is_written_and_read_where_it_stands():
    with pytest.raises(ValueError, match="max_ms is 5, below initial_ms, which is 1000: raise"):
        BackoffSpec.exponential(1_000, max_ms=5)
    assert BackoffSpec.exponential(5, max_ms=5).max_delay_ms == 5
    theirs = RetryOverride(None, BackoffSpec("exponential", 1_000, 5))
    assert decode_retry(encode_retry(theirs)) == theirs


def test_a_spec_is_a_frozen_value():
    spec = BackoffSpec.fixed(1)
    assert hash(spec) == hash(BackoffSpec.fixed(1))
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.delay_ms = 2


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"kind": None}, TypeError, "backoff kind must be a str, got NoneType"),
        ({"delay_ms": -1}, ValueError, "delay_ms is -1: it must be between 0 and"),
        ({"delay_ms": 2**64}, ValueError, "delay_ms is 18446744073709551616"),
        ({"delay_ms": True}, TypeError, "delay_ms must be an int, got bool"),
        ({"delay_ms": 1.5}, TypeError, "delay_ms must be an int, got float"),
        ({"delay_ms": None}, TypeError, "delay_ms must be an int, got NoneType"),
        ({"max_delay_ms": -1}, ValueError, "max_delay_ms is -1"),
        ({"jitter_ms": "1"}, TypeError, "jitter_ms must be an int, got str"),
        ({"multiplier": -0.5}, ValueError, "multiplier is -0.5"),
        ({"multiplier": float("nan")}, ValueError, "multiplier is nan"),
        ({"multiplier": float("inf")}, ValueError, "multiplier is inf"),
        ({"multiplier": 10**400}, ValueError, "multiplier is inf"),
        ({"multiplier": True}, TypeError, "multiplier must be a number, got bool"),
        ({"multiplier": "2"}, TypeError, "multiplier must be a number, got str"),
    ],
)
def test_wrong_fields_are_refused_by_name(fields, error, words):
    with pytest.raises(error, match=words):
        BackoffSpec(**{"kind": "fixed", "delay_ms": 1, **fields})


@pytest.mark.parametrize(
    ("value", "error"), [(-1, ValueError), (2**32, ValueError), (True, TypeError), (1.0, TypeError)]
)
def test_wrong_attempts_are_refused(value, error):
    with pytest.raises(error, match="max_attempts"):
        RetryOverride(value)


@pytest.mark.parametrize(
    ("spec", "raw"),
    [
        (BackoffSpec.fixed(5), {"kind": "fixed", "delay_ms": 5}),
        (BackoffSpec.fixed(5, jitter_ms=3), {"kind": "fixed", "delay_ms": 5, "jitter_ms": 3}),
        (BackoffSpec.exponential(5), {"kind": "exponential", "delay_ms": 5, "multiplier": 2.0}),
    ],
)
def test_the_dict_form_holds_what_is_set_and_comes_back(spec, raw):
    assert spec.to_dict() == raw
    assert BackoffSpec.from_dict(raw) == spec


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({}, "backoff kind is None: use 'fixed' or 'exponential'"),
        ({"kind": "linear", "delay_ms": 1}, "backoff kind is 'linear'"),
        ({"kind": "unknown", "delay_ms": 1}, "backoff kind is 'unknown'"),
        ({"kind": "fixed"}, "has no delay_ms"),
        ({"kind": "fixed", "delay_ms": -1}, "delay_ms is -1"),
        (
            {"kind": "fixed", "delay_ms": 1, "max_ms": 1},
            "unknown keys 'max_ms': use kind, delay_ms",
        ),
    ],
)
def test_a_wrong_dict_is_refused(raw, words):
    with pytest.raises(ValueError, match=words):
        BackoffSpec.from_dict(raw)


@pytest.mark.parametrize(
    ("kind", "growth"),
    [
        ("fixed", BackoffKind.FIXED),
        ("exponential", BackoffKind.EXPONENTIAL),
        ("fibonacci", BackoffKind.UNKNOWN),
        ("", BackoffKind.UNKNOWN),
    ],
)
def test_a_kind_we_do_not_know_is_kept_as_text(kind, growth):
    spec = BackoffSpec(kind, 1)
    assert spec.kind == kind
    assert spec.growth is growth


@given(OVERRIDES)
def test_an_override_comes_back_from_its_bytes(override):
    packed = encode_retry(override)
    assert decode_retry(packed) == override
    assert encode_retry(decode_retry(packed)) == packed


def test_the_positional_forms_are_always_full():
    assert RetryOverride().to_wire() == [None, None]
    assert RetryOverride(4, BackoffSpec.fixed(1)).to_wire() == [4, ["fixed", 1, None, None, None]]


def test_a_whole_multiplier_is_written_as_a_float():
    packed = encode_retry(RetryOverride(None, BackoffSpec.exponential(1, multiplier=2)))
    assert bytes.fromhex("cb4000000000000000") in packed


@pytest.mark.parametrize(
    ("wire", "override"),
    [
        ([3], RetryOverride(3)),
        ([None, ["fixed", 5]], RetryOverride(None, BackoffSpec.fixed(5))),
        ({"max_attempts": 3}, RetryOverride(3)),
        ({"backoff": {"kind": "fixed", "delay_ms": 5}}, RetryOverride(None, BackoffSpec.fixed(5))),
        (
            [None, ["exponential", 5, None, 2, None]],
            RetryOverride(None, BackoffSpec.exponential(5)),
        ),
    ],
)
def test_shorter_and_named_forms_are_read_too(wire, override):
    assert retry_from_wire(wire) == override


@pytest.mark.parametrize(
    "wire",
    [
        *(None, 3, "x", [], [1, None, 1], [True, None], [-1, None], [2**32, None], [[], None]),
        *([None, 5], [None, []], [None, ["fixed"]], [None, [1, 1]], [None, ["fixed", -1]]),
        *([None, ["fixed", 1, 1, 1, 1, 1]], [None, ["x", 1, None, float("nan"), None]]),
        *([None, ["x", 1, None, {}, None]], {"backoff": {"kind": "fixed"}}),
    ],
)
def test_what_is_no_override_is_a_decode_error(wire):
    with pytest.raises(DecodeError):
        retry_from_wire(wire)
    with pytest.raises(DecodeError):
        decode_retry(pack(wire))


def test_equal_but_differently_typed_numbers_are_not_taken_for_each_other():
    assert retry_from_wire([1, ["fixed", 5]]) == RetryOverride(1, BackoffSpec.fixed(5))
    with pytest.raises(DecodeError, match="must be an int, got bool"):
        retry_from_wire([True, ["fixed", 5]])
    with pytest.raises(DecodeError, match="must be an int, got float"):
        retry_from_wire([1.0, ["fixed", 5]])


@given(st.binary(max_size=60))
def test_arbitrary_bytes_raise_nothing_but_a_decode_error(raw):
    with suppress(DecodeError):
        decode_retry(raw)
