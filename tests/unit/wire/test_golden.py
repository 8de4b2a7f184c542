"""Bytes that the reference engine wrote: read as what they mean, and written back the same."""

import json
import re
from itertools import chain, takewhile
from pathlib import Path

import pytest

from chasquimq.wire.codec import pack, unpack
from chasquimq.wire.entry import (
    dead_letter_fields,
    job_fields,
    parse_dead_letter,
    parse_job_fields,
)
from chasquimq.wire.envelope import decode, encode, encode_job, encode_with_retry, with_attempt
from chasquimq.wire.event import event_fields, parse_event
from chasquimq.wire.keys import QueueKeys
from chasquimq.wire.member import decode_member, encode_member
from chasquimq.wire.repeat import (
    MissedFiresPolicy,
    RepeatableSpec,
    RepeatPattern,
    decode_spec,
    encode_spec,
    spec_key,
)
from chasquimq.wire.retry import BackoffSpec, RetryOverride

VECTORS = {
    vector["name"]: vector
    for vector in json.loads((Path(__file__).parent / "golden" / "wire.json").read_text())[
        "vectors"
    ]
}
UNREADABLE = {"decode_failed", "malformed", "oversize_payload"}


def flat(entry):
    """The fields of an entry as a reply gives them; in the file all values but events' are hex."""
    return [
        part for name, value in entry["fields"] for part in (name.encode(), bytes.fromhex(value))
    ]


def flat_text(entry):
    return [part.encode() for pair in entry["fields"] for part in pair]


def gathered(*names):
    """Every item under these names, with an id that says where it came from."""
    return [
        pytest.param(item, id=f"{vector['name']}-{name}-{index}")
        for vector in VECTORS.values()
        for name in names
        for index, item in enumerate(vector.get(name, ()))
    ]


def test_no_part_of_the_file_is_left_untested():
    covered = {"stream", "delayed", "keys", "hash", "spec_key", "events", "dlq", "dlq_left"}
    covered |= {"results", "entries", "replayed"}
    described = {"name", "call", "job_id", "job_ids", "upserted_at_ms", "score", "groups"}
    assert {name for vector in VECTORS.values() for name in vector} == covered | described


@pytest.mark.parametrize("entry", gathered("stream"))
def test_job_entries_are_written_back_byte_for_byte(entry):
    fields = flat(entry)
    raw, name = parse_job_fields(fields)
    envelope = decode(raw)
    assert encode(envelope) == raw
    assert job_fields(raw, name) == fields
    assert pack(unpack(envelope.payload)) == envelope.payload
    fresh = encode_with_retry(envelope.id, envelope.payload, envelope.created_at_ms, envelope.retry)
    assert fresh == raw
    if envelope.retry is None:
        assert encode_job(envelope.id.encode(), envelope.payload, envelope.created_at_ms) == raw


@pytest.mark.parametrize(
    ("vector", "index", "name", "data", "retry"),
    [
        ("immediate", 0, "send-email", {"k": 1}, None),
        ("unnamed", 0, "", {"k": 1}, None),
        (
            "retry-override",
            0,
            "n",
            [1, "two", 3.5, None, True, b"\x00\xff", {"nested": {"é": "ü"}}],
            RetryOverride(
                4, BackoffSpec.exponential(100, multiplier=2.5, max_ms=10000, jitter_ms=25)
            ),
        ),
        ("attempts-only", 0, "n", {"k": 1}, RetryOverride(7)),
        ("backoff-int", 0, "n", {"k": 1}, RetryOverride(None, BackoffSpec.fixed(250))),
        ("bulk", 0, "a", {"i": 0}, None),
        ("bulk", 1, "b", {"i": 1}, None),
        ("bulk", 2, "", None, None),
    ],
)
def test_job_entries_mean_what_the_call_said(vector, index, name, data, retry):
    golden = VECTORS[vector]
    raw, found_name = parse_job_fields(flat(golden["stream"][index]))
    envelope = decode(raw)
    assert found_name == name
    assert unpack(envelope.packed_data) == data
    assert envelope.retry == retry
    assert envelope.attempt == 0
    assert envelope.id == (golden["job_id"] if "job_id" in golden else golden["job_ids"][index])
    assert 0 <= int(golden["stream"][index]["id"].split("-")[0]) - envelope.created_at_ms < 1000


@pytest.mark.parametrize("item", gathered("delayed"))
def test_delayed_members_are_written_back_byte_for_byte(item):
    member = bytes.fromhex(item[0])
    name, raw = decode_member(member)
    assert name == "send-email"
    assert unpack(decode(raw).packed_data) == {"k": 1}
    assert encode_member(name, encode(decode(raw))) == member


def test_the_index_of_a_delayed_job_is_its_member_and_the_marker_is_one():
    vector = VECTORS["delayed-with-id"]
    keys = QueueKeys("g7")
    index = vector["keys"][keys.delayed_index("abc").decode()]
    marker = vector["keys"][keys.dedup_marker(b"abc").decode()]
    assert len(vector["keys"]) == 2
    assert index["value"] == vector["delayed"][0][0]
    assert bytes.fromhex(marker["value"]) == b"1"
    assert VECTORS["delayed-plain"]["keys"] == [QueueKeys("g6").delayed.decode()]


SPECS = {
    "repeat-every": (RepeatPattern.every(60000), "skip", None),
    "repeat-cron-tz": (RepeatPattern.cron("0 2 * * *", tz="America/New_York"), "skip", None),
    "repeat-cron-utc": (RepeatPattern.cron("*/5 * * * *"), "skip", None),
    "repeat-cron6": (RepeatPattern.cron("30 0 9 * * MON-FRI", tz="+05:30"), "skip", None),
    "repeat-fire-once": (RepeatPattern.every(61000), "fire-once", None),
    "repeat-fire-all": (RepeatPattern.every(62000), "fire-all", 7),
    "repeat-bounds": (RepeatPattern.every(63000), "skip", None),
}


@pytest.mark.parametrize("name", [name for name, vector in VECTORS.items() if "hash" in vector])
def test_specs_mean_what_the_call_said_and_are_written_back_byte_for_byte(name):
    vector = VECTORS[name]
    blob = bytes.fromhex(vector["hash"]["spec"])
    spec = decode_spec(blob)
    pattern, missed_fires, max_catchup = SPECS[name]
    assert spec.pattern == pattern
    assert spec.missed_fires == MissedFiresPolicy(missed_fires, max_catchup)
    assert spec.job_name == "digest"
    assert spec.key == vector["spec_key"] == spec_key("digest", pattern)
    assert unpack(spec.payload) == {"k": 1}
    bounds = (5, 4102444800000, 4133980800000) if name == "repeat-bounds" else (None, None, None)
    assert (spec.limit, spec.start_after_ms, spec.end_before_ms) == bounds
    assert encode_spec(spec) == blob


@pytest.mark.parametrize("entry", gathered("events"))
def test_events_are_written_back_byte_for_byte(entry):
    fields = flat_text(entry)
    event = parse_event(entry["id"].encode(), fields)
    texts = dict(entry["fields"])
    assert event.name == texts.pop("e")
    assert event.job_id == (texts.pop("id") or None)
    assert event.job_name == texts.pop("n", "")
    assert event.event_id == entry["id"]
    assert {name: str(value) for name, value in event.fields.items()} == texts
    assert all(type(v) is (str if k == "reason" else int) for k, v in event.fields.items())
    extras = {name: value for name, value in event.fields.items() if name != "ts"}
    written = event_fields(
        event.name, event.job_id or "", event.fields["ts"], event.job_name, extras
    )
    assert written == fields


@pytest.mark.parametrize("entry", gathered("dlq", "dlq_left"))
def test_dead_letters_are_written_back_byte_for_byte(entry):
    fields = flat(entry)
    letter = parse_dead_letter(entry["id"], fields)
    assert dead_letter_fields(letter) == fields
    if letter.reason not in UNREADABLE:
        assert encode(decode(letter.payload)) == letter.payload


def test_dead_letters_have_the_documented_form():
    documented = VECTORS["peek_dlq"]["entries"]
    peeked = [
        parse_dead_letter(entry["id"].encode(), flat(entry)).to_dict()
        for entry in VECTORS["lifecycle"]["dlq"]
    ]
    ours = dict.fromkeys(("error", "traceback", "attempts", "failed_at", "consumer"))
    ids = [letter.pop("job_id") for letter in peeked]
    assert peeked == [
        entry | {"payload": bytes.fromhex(entry["payload"])} | ours for entry in documented
    ]
    unread = {entry["reason"] for entry, job_id in zip(documented, ids, strict=True) if not job_id}
    assert unread == UNREADABLE & {entry["reason"] for entry in documented}


def test_a_replay_keeps_all_of_an_envelope_but_the_attempt():
    dead = {
        letter.name: letter.payload
        for letter in (parse_dead_letter("", flat(e)) for e in VECTORS["lifecycle"]["dlq"])
    }
    replayed = [parse_job_fields(flat(entry)) for entry in VECTORS["replay_dlq"]["stream"]]
    assert len(replayed) == VECTORS["replay_dlq"]["replayed"]
    assert replayed == [(with_attempt(dead[name], 0), name) for name in ("hard", "boom")]
    assert decode(dead["boom"]).attempt == 1


@pytest.mark.parametrize(("name", "attempt"), [("ok", 0), ("flaky", 1), ("later", 0)])
def test_results_are_written_back_byte_for_byte(name, attempt):
    raw = bytes.fromhex(VECTORS["lifecycle"]["results"][name])
    assert unpack(raw) == {"sum": 3, "who": name, "attempt": attempt}
    assert pack(unpack(raw)) == raw


def test_jobs_without_a_result_have_none_in_the_file():
    results = VECTORS["lifecycle"]["results"]
    assert [name for name, raw in results.items() if raw is None] == ["none", "boom", "hard"]


PAYLOAD = pack({"k": 1})
BACKOFF = BackoffSpec.exponential(100, multiplier=2.5, max_ms=10000, jitter_ms=25)
DIGEST = RepeatableSpec(
    "send-digest::every:60000", "send-digest", RepeatPattern.every(60000), PAYLOAD
)
EXAMPLES = {
    "fresh job": (
        encode_job("01HZA7V0000000000000000000", PAYLOAD, 1700000000000),
        "94ba3031485a41375630303030303030303030303030303030303030c40481a16b01cf0000018bcfe5680000",
    ),
    "override": (
        encode_with_retry("j1", PAYLOAD, 1700000000000, RetryOverride(4, BACKOFF)),
        (
            "95a26a31c40481a16b01cf0000018bcfe5680000"
            "920495ab6578706f6e656e7469616c64cd2710cb400400000000000019"
        ),
    ),
    "named member": (
        encode_member("send-email", encode_job("j1", PAYLOAD, 1700000000000)),
        "0a00000073656e642d656d61696c94a26a31c40481a16b01cf0000018bcfe5680000",
    ),
    "unnamed member": (
        encode_member("", encode_job("j1", PAYLOAD, 1700000000000)),
        "0000000094a26a31c40481a16b01cf0000018bcfe5680000",
    ),
    "spec": (
        encode_spec(DIGEST),
        (
            "98b873656e642d6469676573743a3a65766572793a3630303030ab73656e642d646967657374"
            "81a5457665727991cdea60c406c40481a16b01c0c0c000"
        ),
    ),
}


def hex_blocks(page):
    """The bytes shown in each block of a page: of every line, the words before its explanation."""
    for block in page.split("```")[1::2]:
        lines = block.splitlines()
        words = (takewhile(re.compile("([0-9a-f]{2})+").fullmatch, line.split()) for line in lines)
        yield "".join(chain.from_iterable(words))


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_of_the_page_on_the_wire_format_are_what_we_write(name):
    written, shown = EXAMPLES[name]
    assert written.hex() == shown
    page = Path(__file__).parents[3] / "docs" / "wire-format.md"
    assert any(shown in block for block in hex_blocks(page.read_text()))
