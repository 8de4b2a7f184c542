"""Envelopes: what we write, everything else we understand, and what we refuse."""

from contextlib import suppress

import msgpack
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chasquimq.errors import DecodeError, EncodeError
from chasquimq.wire.codec import pack, unpack
from chasquimq.wire.envelope import (
    Envelope,
    Inline,
    decode,
    decode_any,
    decode_payload,
    encode,
    encode_job,
    encode_jobs,
    encode_payload,
    encode_with_retry,
    with_attempt,
)
from chasquimq.wire.ids import ulid, ulids
from chasquimq.wire.retry import U32_MAX, U64_MAX, BackoffSpec, RetryOverride

NOW_MS = 1_700_000_000_000
PAYLOAD = pack({"k": 1})

OVERRIDES = st.builds(
    RetryOverride,
    st.none() | st.integers(0, U32_MAX),
    st.none() | st.builds(BackoffSpec, st.text(max_size=20), st.integers(0, U64_MAX)),
)
# Values that are neither bytes nor an array that spells bytes out, so that they stay as they are.
TYPED = st.one_of(
    st.none(),
    st.integers(-(2**63), U64_MAX),
    st.text(),
    st.dictionaries(st.text() | st.integers(0, 9), st.text() | st.binary(), max_size=4),
    st.lists(st.text(), min_size=1, max_size=20),
)
ENVELOPES = st.builds(
    Envelope,
    st.text(),
    st.binary(max_size=400) | st.builds(lambda value: Inline(pack(value)), TYPED),
    st.integers(0, U64_MAX),
    st.integers(0, U32_MAX),
    st.none() | OVERRIDES,
)


def an_envelope(**changes):
    return Envelope("j1", PAYLOAD, NOW_MS)._replace(**changes)


def test_an_envelope_is_a_frozen_value():
    assert an_envelope() == Envelope(id="j1", payload=PAYLOAD, created_at_ms=NOW_MS)
    assert an_envelope() != an_envelope(attempt=1)
    assert hash(an_envelope()) == hash(an_envelope())
    assert repr(an_envelope()) == (
        f"Envelope(id='j1', payload={PAYLOAD!r}, created_at_ms={NOW_MS}, attempt=0, retry=None)"
    )
    with pytest.raises(AttributeError):
        an_envelope().attempt = 1
    with pytest.raises((AttributeError, TypeError)):
        an_envelope().other = 1


@given(ENVELOPES)
def test_an_envelope_comes_back_from_its_bytes(envelope):
    packed = encode(envelope)
    assert decode(packed) == envelope
    assert encode(decode(packed)) == packed


@given(ENVELOPES, st.binary(max_size=20))
def test_bytes_after_the_envelope_are_ignored(envelope, rest):
    assert decode(encode(envelope) + rest) == envelope


@given(st.text(max_size=40), st.binary(max_size=300), st.integers(0, U64_MAX))
@example("x" * 31, b"", U32_MAX)
@example("x" * 32, b"x" * 255, U32_MAX + 1)
@example("é" * 16, b"x" * 256, 0)
@example("", b"x" * 65535, NOW_MS)
@example("", b"x" * 65536, NOW_MS)
def test_a_fresh_job_has_the_bytes_the_library_would_write(job_id, payload, created_at_ms):
    right = msgpack.packb([job_id, payload, created_at_ms, 0], use_bin_type=True)
    assert encode_job(job_id, payload, created_at_ms) == right
    assert encode_job(job_id.encode(), payload, created_at_ms) == right
    assert encode_with_retry(job_id, payload, created_at_ms, None) == right
    assert encode(Envelope(job_id, payload, created_at_ms)) == right


@given(st.lists(st.binary(max_size=300)), st.integers(0, U64_MAX))
@example([b"", b"x" * 255, b"x" * 256, b"x" * 65535, b"x" * 65536], NOW_MS)
@example([b"x", b"y"], U32_MAX)
def test_many_fresh_jobs_have_the_bytes_that_each_would_have(payloads, created_at_ms):
    ids = ulids(NOW_MS, len(payloads))
    assert encode_jobs(ids, payloads, created_at_ms) == [
        encode_job(job_id, payload, created_at_ms)
        for job_id, payload in zip(ids, payloads, strict=True)
    ]


def test_an_override_that_changes_nothing_still_takes_its_slot():
    packed = encode(an_envelope(retry=RetryOverride()))
    assert packed[0] == 0x95
    assert packed.endswith(bytes.fromhex("92c0c0"))
    assert decode(packed).retry == RetryOverride()


@pytest.mark.parametrize(
    "envelope",
    [
        an_envelope(created_at_ms=-1),
        an_envelope(created_at_ms=2**64),
        an_envelope(created_at_ms=1.5),
        an_envelope(attempt=-1),
        an_envelope(attempt=2**32),
        an_envelope(attempt=True),
        an_envelope(id="\ud800"),
        an_envelope(id="\ud800", payload=Inline(b"\x01")),
    ],
)
def test_a_field_that_does_not_fit_its_slot_is_an_encode_error(envelope):
    with pytest.raises(EncodeError):
        encode(envelope)


@pytest.mark.parametrize("created_at_ms", [-1, 2**64])
def test_a_fresh_job_is_checked_as_well(created_at_ms):
    with pytest.raises(EncodeError, match="created_at_ms"):
        encode_job("j1", PAYLOAD, created_at_ms)


@given(ENVELOPES, st.integers(0, U32_MAX))
def test_another_attempt_changes_nothing_else(envelope, attempt):
    changed = encode(envelope._replace(attempt=attempt))
    assert with_attempt(envelope, attempt) == changed
    assert with_attempt(encode(envelope), attempt) == changed


@given(st.data(), st.binary(max_size=300), st.integers(0, U64_MAX), st.integers(0, 300))
def test_what_is_nearly_a_usual_envelope_is_read_as_any_other_is(data, payload, created, attempt):
    """The usual one is read by a way of its own: they must not disagree by a byte."""
    packed = bytearray(encode(Envelope(ulid(NOW_MS), payload, created, attempt)))
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(packed) - 1))
        packed[at] = data.draw(st.integers(0, 255))
    packed = packed[: data.draw(st.integers(0, len(packed)))] + data.draw(st.binary(max_size=2))

    def read(way):
        try:
            return way(bytes(packed))
        except DecodeError:
            return None

    assert read(decode) == read(decode_any)


RETRY = [4, ["fixed", 5, None, None, None]]
OVERRIDE = RetryOverride(4, BackoffSpec.fixed(5))


@pytest.mark.parametrize(
    ("wire", "envelope"),
    [
        (["j1", PAYLOAD, NOW_MS], an_envelope()),
        (["j1", PAYLOAD, NOW_MS, 2, None], an_envelope(attempt=2)),
        (["j1", PAYLOAD, 0, 0], an_envelope(created_at_ms=0)),
        (["j1", list(PAYLOAD), NOW_MS, 0], an_envelope()),
        (["j1", {"k": 1}, NOW_MS, 0], an_envelope(payload=Inline(PAYLOAD))),
        (["j1", {"k": 1}, NOW_MS, 0, RETRY], an_envelope(payload=Inline(PAYLOAD), retry=OVERRIDE)),
        ({"id": "j1", "payload": PAYLOAD, "created_at_ms": NOW_MS}, an_envelope()),
        (
            {
                "retry": {"max_attempts": 4, "backoff": RETRY[1]},
                "attempt": 3,
                "new": [1],
                "created_at_ms": NOW_MS,
                "payload": {"k": 1},
                "id": "j1",
                7: 7,
            },
            an_envelope(payload=Inline(PAYLOAD), attempt=3, retry=OVERRIDE),
        ),
    ],
)
def test_more_is_understood_than_we_write(wire, envelope):
    assert decode(pack(wire)) == envelope


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 0, -1, 2.5, "text", {}, {"a": {"b": [1, 2]}}, {1: 2}, [], [[]], ["a", 1]),
        *({(1, 2): 3}, [1, 2], [300], [-1], list(range(256)), "x" * 70_000, ["x"] * 70_000),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_a_payload_that_is_a_value_itself_is_kept_as_it_was_written(value):
    raw = b"\x94\xa2j1" + pack(value) + b"\xcf" + NOW_MS.to_bytes(8) + b"\x01"
    envelope = decode(raw)
    assert envelope.payload == Inline(pack(value))
    assert unpack(envelope.packed_data) == value
    assert encode(envelope) == raw


def test_a_value_that_others_write_longer_than_we_would_is_kept_too():
    long_form = bytes.fromhex("dd00000001" + "ce00000001" + "")
    raw = b"\x94\xa2j1" + b"\x81\xa1k" + long_form + b"\xcf" + NOW_MS.to_bytes(8) + b"\x00"
    assert encode(decode(raw)) == raw


@given(st.binary(max_size=300), st.none() | TYPED)
@example(b"x" * 65535, None)
@example(b"x" * 65536, None)
def test_the_data_is_found_whichever_way_the_payload_holds_it(raw, value):
    assert decode_payload(encode_payload(raw)) == raw
    assert an_envelope(payload=raw).packed_data == raw
    inline = Inline(pack(value))
    assert decode_payload(encode_payload(inline)) == inline
    assert an_envelope(payload=inline).packed_data == pack(value)


GOOD = ["j1", PAYLOAD, NOW_MS, 0]


@pytest.mark.parametrize(
    ("wire", "words"),
    [
        (None, "not one complete"),
        ("j1", "not one complete"),
        (GOOD[:2], "2 slots, expected 4 or 5"),
        ([], "0 slots"),
        ([*GOOD, None, None], "6 slots"),
        ([*GOOD] * 4, "16 slots"),
        ([1, *GOOD[1:]], "envelope id must be text, got int"),
        ([b"j1", *GOOD[1:]], "envelope id must be text, got bytes"),
        ([*GOOD[:2], None, 0], "envelope created_at_ms must be an int, got NoneType"),
        ([*GOOD[:2], -1, 0], "envelope created_at_ms is -1"),
        ([*GOOD[:2], 1.5, 0], "must be an int, got float"),
        ([*GOOD[:2], True, 0], "must be an int, got bool"),
        ([*GOOD[:3], -1], "envelope attempt is -1"),
        ([*GOOD[:3], 2**32], "envelope attempt is 4294967296"),
        ([*GOOD[:3], "0"], "envelope attempt must be an int, got str"),
        ([*GOOD, 5], "expected an array of 2"),
        ([*GOOD, [1, ["x", -1]]], "delay_ms is -1"),
        ({"id": "j1"}, "envelope has no payload, created_at_ms"),
        ({"a": 1, b"b": 2, 3: 3, 4: 4}, "envelope has no id, payload, created_at_ms"),
    ],
)
def test_what_is_no_envelope_is_refused_with_the_reason(wire, words):
    with pytest.raises(DecodeError, match=words):
        decode(pack(wire))


@pytest.mark.parametrize("raw", [b"", b"\xc1garbage", b"\x94", encode(an_envelope())[:-1]])
def test_broken_bytes_are_refused(raw):
    with pytest.raises(DecodeError):
        decode(raw)
    with pytest.raises(DecodeError):
        with_attempt(raw, 1)


@settings(max_examples=300)
@given(st.binary(max_size=120))
@example(b"\x94\xa1a\x81\x90\x00\x00\x00")
@example(b"\x94\xa1a\x91\x81\x90\x00\x00\x00")
@example(b"\x94\xa1a\x80\x00\x00")
@example(b"\x95\xa1a\xc4\x00\x00\x00\x80")
@example(b"\x81\xa2id\xa1a")
@example(b"\x94\xa1\xff\xc4\x00\x00\x00")
def test_arbitrary_bytes_raise_nothing_but_a_decode_error(raw):
    with suppress(DecodeError):
        decode(raw)


@settings(max_examples=300)
@given(ENVELOPES, st.data())
def test_an_envelope_with_one_byte_changed_raises_nothing_but_a_decode_error(envelope, data):
    packed = bytearray(encode(envelope))
    packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = decode(bytes(packed))
    except DecodeError:
        return
    assert decode(encode(found)) == found


USUAL = st.builds(
    Envelope,
    st.just(ulid(NOW_MS)),
    st.binary(max_size=300),
    st.integers(2**32, 2**48),
    st.integers(0, 300),
    st.none() | OVERRIDES,
)


@settings(max_examples=300)
@given(USUAL, st.data())
def test_the_quick_way_reads_what_the_thorough_one_reads_whatever_byte_is_changed(envelope, data):
    packed = bytearray(encode(envelope))
    if data.draw(st.booleans()):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    packed += data.draw(st.binary(max_size=2))
    raw = bytes(packed)
    assert told(decode, raw) == told(decode_any, raw)
    anew = told(lambda: with_attempt(decode_any(raw), 5))
    assert told(lambda: decode_any(with_attempt(raw, 5))) == told(decode_any, anew)


@settings(max_examples=300)
@given(USUAL, st.integers(0, 300))
def test_another_attempt_gives_the_bytes_of_an_envelope_made_with_it(envelope, attempt):
    made_so = encode(envelope._replace(attempt=attempt))
    assert with_attempt(encode(envelope), attempt) == made_so
    assert with_attempt(envelope, attempt) == made_so


def told(function, *arguments):
    """What it gives; the text of the error, if it refuses, or if it is given one."""
    if isinstance(arguments[:1] and arguments[0], str):
        return arguments[0]
    try:
        return function(*arguments)
    except DecodeError as error:
        return str(error)
