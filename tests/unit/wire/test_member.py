"""Delayed-set members: a length, a name, an envelope; and the older form without a name."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chasquimq.errors import DecodeError
from chasquimq.wire.envelope import encode_job
from chasquimq.wire.member import decode_member, encode_member

ENVELOPE = encode_job("j1", b"\x81\xa1k\x01", 1_700_000_000_000)


@given(st.text(max_size=300), st.binary(max_size=100))
def test_name_and_envelope_come_back_from_a_member(name, envelope):
    assert decode_member(encode_member(name, envelope)) == (name, envelope)


def test_the_length_is_of_the_names_bytes_little_endian():
    assert encode_member("", ENVELOPE) == b"\x00\x00\x00\x00" + ENVELOPE
    assert encode_member("é", ENVELOPE) == b"\x02\x00\x00\x00\xc3\xa9" + ENVELOPE
    assert encode_member("x" * 148, ENVELOPE)[:4] == b"\x94\x00\x00\x00"
    assert decode_member(encode_member("x" * 148, ENVELOPE)) == ("x" * 148, ENVELOPE)


@pytest.mark.parametrize("job_id", ["j1", "", "01HZA7V0000000000000000000", "x" * 300])
def test_a_bare_envelope_of_an_older_release_is_an_unnamed_job(job_id):
    legacy = encode_job(job_id, b"\x81\xa1k\x01", 1_700_000_000_000)
    assert decode_member(legacy) == ("", legacy)


def test_a_name_that_is_not_utf8_does_not_lose_the_job():
    assert decode_member(b"\x02\x00\x00\x00a\xff" + ENVELOPE) == ("a\ufffd", ENVELOPE)


@pytest.mark.parametrize(
    ("member", "words"),
    [
        (b"", "0 bytes, too few"),
        (b"\x94\x00\x00", "3 bytes, too few"),
        (b"\x05\x00\x00\x00name", "of 8 bytes announces a name of 5"),
        (b"\xff\xff\xff\xff" + ENVELOPE, "announces a name of 4294967295"),
    ],
)
def test_members_too_short_for_what_they_announce_are_a_decode_error(member, words):
    with pytest.raises(DecodeError, match=words):
        decode_member(member)


@given(st.binary(max_size=40))
def test_arbitrary_bytes_raise_nothing_but_a_decode_error(raw):
    with suppress(DecodeError):
        decode_member(raw)
