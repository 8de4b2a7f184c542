"""Bytes of others, read back: envelopes, members, specs, events, letters, results."""

import contextlib
import time
import tracemalloc

import hypothesis.strategies as st
import msgpack
import pytest
from hypothesis import example, given

from chasquimq.broker.delayed import holds, job_of
from chasquimq.broker.results import Kept
from chasquimq.broker.seek import hits, read_row
from chasquimq.broker.stream import Delivery
from chasquimq.engine.admission import NO_NAMES, admit
from chasquimq.engine.cadence import plan
from chasquimq.engine.outcomes import from_kept
from chasquimq.errors import DecodeError
from chasquimq.recurring import describe_stored
from chasquimq.wire.codec import unpack
from chasquimq.wire.entry import parse_dead_letter, parse_job_fields
from chasquimq.wire.envelope import Envelope, decode, encode, with_attempt
from chasquimq.wire.event import parse_event
from chasquimq.wire.member import decode_member, encode_member
from chasquimq.wire.repeat import RepeatableSpec, RepeatPattern, decode_spec, encode_spec, window_of
from chasquimq.wire.retry import BackoffSpec, RetryOverride

GOOD = [
    encode(Envelope("j1", b"\x81\xa1k\x01", 1_700_000_000_000, 0)),
    encode(
        Envelope("01HZ", b"\xc0", 1, 2, RetryOverride(3, BackoffSpec.fixed(100)))
    ),
    encode_member("mail", encode(Envelope("j1", b"\x01", 1, 0))),
    encode_spec(RepeatableSpec("k", "mail", RepeatPattern.every(1_000), b"\x01")),
    b"fmsgpack",
    b"v1700000000000",
]  # fmt: skip
# Lengths that promise far more than comes: they must not be believed.
PROMISES = [kind + b"\xff\xff\xff\xff" for kind in (b"\xdd", b"\xdf", b"\xc6", b"\xdb")]
NESTED = b"\x91" * 100_000


@st.composite
def nearly_good(draw):
    """Something of ours with a byte changed, cut short, or with more behind it."""
    raw = bytearray(draw(st.sampled_from(GOOD)))
    for _ in range(draw(st.integers(0, 3))):
        raw[draw(st.integers(0, len(raw) - 1))] = draw(st.integers(0, 255))
    cut = draw(st.integers(0, len(raw)))
    return bytes(raw[:cut]) + draw(st.sampled_from((b"", *PROMISES))) + bytes(raw[cut:])


garbage = st.one_of(nearly_good(), st.binary(max_size=200), st.sampled_from((*PROMISES, NESTED)))
fields = st.lists(
    st.one_of(garbage, st.sampled_from((b"d", b"n", b"e", b"id", b"ts", b"reason", b"attempts"))),
    max_size=9,
)

READERS = {
    "envelope": decode,
    "member": decode_member,
    "data": unpack,
    "spec": decode_spec,
    "attempt": lambda raw: with_attempt(decode(raw), 1),
    "kept value": lambda raw: from_kept(Kept(raw, None)),
}


@pytest.mark.parametrize("name", READERS)
@given(raw=garbage)
@example(raw=NESTED)
def test_what_is_none_of_ours_is_a_decode_error(name, raw):
    with contextlib.suppress(DecodeError):
        READERS[name](raw)


# Pieces of patterns, and how often each comes one after the other.
pieces = st.sampled_from(
    ("* * * * *", "0-59,", "1-5000,", "9", "@", "@daily", " ", "*/", "#", "L", "Europe/Berlin", "/",
     "../", "+05:30", "x", "\0", "\ud800", "0 0 29 2 *", "\u0661")
)  # fmt: skip
texts = st.tuples(pieces, st.sampled_from((1, 2, 5, 100, 10_000)), pieces).map(
    lambda parts: parts[0] * parts[1] + parts[2]
)
patterns = st.fixed_dictionaries({"Cron": st.tuples(texts, st.none() | texts)}) | (
    st.fixed_dictionaries({"Every": st.tuples(st.integers(0, 2**64 - 1))})
)
policies = st.sampled_from((None, "Skip", "FireOnce", {"FireAll": [2**32 - 1]}, {"FireAll": [0]}))
bounds = st.none() | st.integers(0, 2**64 - 1)
NOW_MS = 1_794_744_000_000


@given(
    pattern=patterns,
    policy=policies,
    limit=bounds,
    end_ms=bounds,
    due_ms=st.integers(0, NOW_MS) | st.just(NOW_MS),
)
@example({"Cron": ["* * * * *", "Europe/Berlin" * 1_000]}, None, None, None, NOW_MS)
@example({"Cron": ["1-59," * 200_000 + "1 * * * *", None]}, None, None, None, NOW_MS)
@example({"Cron": ["* * * * * * " + "1-5000," * 100_000, None]}, None, None, None, NOW_MS)
@example({"Cron": ["@" + "x" * 1_000_000, None]}, "FireOnce", None, None, 0)
@example({"Cron": ["1-" + "9" * 5_000 + " * * * *", None]}, None, None, None, NOW_MS)
def test_a_spec_of_anybody_has_a_plan_and_words_or_is_refused(
    pattern, policy, limit, end_ms, due_ms
):
    """What is stored was checked by nobody: it is read, planned and put in words as it stands."""
    begun = time.monotonic()
    slots = ["k", "mail", pattern, b"\xc0", limit, None, end_ms, 0, policy]
    with contextlib.suppress(DecodeError, ValueError):
        spec = decode_spec(msgpack.packb(slots, unicode_errors="surrogatepass"))
        words, problem = describe_stored(spec.pattern)
        assert words or problem
        windows = plan(spec, due_ms, NOW_MS).windows_ms
        assert list(windows) == sorted(set(windows))
        assert all(due_ms <= each <= NOW_MS for each in windows)
    assert time.monotonic() - begun < 5


@given(raw=garbage)
def test_an_outcome_of_anybody_can_be_read(raw):
    from_kept(Kept(None, raw))


@given(raw=garbage, parts=fields)
def test_what_is_looked_through_never_stops_who_looks(raw, parts):
    """Searches, events and letters read what they can and pass over the rest."""
    job_of(raw)
    holds(raw, "j1")
    read_row([b"1-1", parts])
    list(hits([[b"1-1", parts]], "j1"))
    parse_job_fields(parts)
    parse_dead_letter(raw[:40], parts)
    parse_event(raw[:40], parts)
    window_of(raw.decode("utf-8", "replace"))


@given(raw=garbage, deliveries=st.integers(0, 5))
def test_every_entry_is_either_run_or_set_aside(raw, deliveries):
    admit(
        Delivery(b"1-1", [b"d", raw], 0, deliveries),
        max_payload_bytes=4_096,
        max_attempts=3,
        retry_by_name=NO_NAMES,
    )


@pytest.mark.parametrize("promise", [*PROMISES, NESTED])
@pytest.mark.parametrize("name", READERS)
def test_lengths_that_are_promised_cost_no_memory(name, promise):
    tracemalloc.start()
    with contextlib.suppress(DecodeError):
        READERS[name](promise)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 32 << 20
