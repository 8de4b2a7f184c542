"""Every key of a queue, and which names a queue may have."""

import dataclasses

import pytest

from chasquimq import given
from chasquimq.wire.keys import (
    KEPT_GLOB,
    QueueKeys,
    finished_job,
    glob_of,
    of_finished_job,
    of_unfinished_job,
    once_a_queue,
)

KEYS = QueueKeys("emails")


@pytest.mark.parametrize(
    ("attribute", "suffix"),
    [
        ("tag", ""),
        ("stream", ":stream"),
        ("dlq", ":dlq"),
        ("delayed", ":delayed"),
        ("events", ":events"),
        ("repeat", ":repeat"),
        ("promoter_lock", ":promoter:lock"),
        ("scheduler_lock", ":scheduler:lock"),
        ("stalled_lock", ":stalled:lock"),
        ("paused", ":paused"),
        ("limiter", ":limiter"),
        ("wake", ":wake"),
        ("repeat_wake", ":repeat:wake"),
        ("resumed", ":resumed"),
    ],
)
def test_fixed_keys_are_the_hash_tag_and_a_suffix(attribute, suffix):
    assert getattr(KEYS, attribute) == b"{chasqui:emails}" + suffix.encode()


@pytest.mark.parametrize(
    ("method", "infix"),
    [
        ("result", ":result:"),
        ("outcome", ":outcome:"),
        ("dedup_marker", ":dlid:"),
        ("delayed_index", ":didx:"),
        ("repeat_spec", ":repeat:spec:"),
        ("progress", ":progress:"),
        ("log", ":log:"),
        ("stalls", ":stalls:"),
        ("sent", ":sent:"),
        ("seen", ":seen:"),
        ("run", ":run:"),
        ("pace", ":pace:"),
        ("fleet", ":fleet:"),
    ],
)
@pytest.mark.parametrize("given", ["a:1 é", "a:1 é".encode()])
def test_keys_of_one_thing_end_in_its_id_as_it_is(method, infix, given):
    assert getattr(KEYS, method)(given) == f"{{chasqui:emails}}{infix}a:1 é".encode()


def test_keys_are_values_of_the_name_alone():
    assert QueueKeys("emails") == KEYS
    assert hash(QueueKeys("emails")) == hash(KEYS)
    assert QueueKeys("Emails") != KEYS
    assert repr(KEYS) == "QueueKeys(name='emails')"
    with pytest.raises(dataclasses.FrozenInstanceError):
        KEYS.stream = b"other"


@pytest.mark.parametrize("name", ["a", "emails:eu", "Größe 漢字", " padded ", "x" * 512, "é" * 256])
def test_ordinary_names_are_accepted_as_they_are(name):
    assert given.queue_name(name) == name
    assert QueueKeys(name).stream == f"{{chasqui:{name}}}:stream".encode()


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        (None, TypeError, "must be a str, got NoneType"),
        (b"emails", TypeError, "must be a str, got bytes"),
        ("", ValueError, "'' is blank"),
        (" \t ", ValueError, "is blank"),
        ("a{b", ValueError, "'a{b' contains a brace"),
        ("a}b", ValueError, "contains a brace"),
        ("a\nb", ValueError, "control character"),
        ("a\x7f", ValueError, "control character"),
        ("a\x85b", ValueError, "control character"),
        ("a\ud800", ValueError, "lone surrogate"),
        ("é" * 257, ValueError, "takes 514 bytes in UTF-8, at most 512"),
    ],
)
def test_other_names_are_refused_with_the_rule_they_break(name, error, words):
    with pytest.raises(error, match=words):
        given.queue_name(name)
    with pytest.raises(error, match=words):
        QueueKeys(name)


def test_a_long_name_is_not_shown_in_full():
    with pytest.raises(ValueError, match="choose a shorter name") as caught:
        given.queue_name("x" * 100_000)
    assert len(str(caught.value)) < 250


def test_all_keys_that_exist_once_are_named_the_stream_first():
    named = once_a_queue(KEYS)
    assert named[0] == KEYS.stream
    assert set(named) == {
        value
        for name in QueueKeys.__slots__
        if isinstance(value := getattr(KEYS, name), bytes) and value != KEYS.tag
    }


def test_what_stands_beside_a_job_is_named_before_and_after_its_end():
    assert of_unfinished_job(KEYS, "j")[0] == KEYS.dedup_marker("j")
    assert of_finished_job(KEYS, "j")[:2] == [KEYS.outcome("j"), KEYS.result("j")]
    assert set(of_unfinished_job(KEYS, "j")) & set(of_finished_job(KEYS, "j")) == {
        KEYS.progress("j"),
        KEYS.log("j"),
        KEYS.stalls("j"),
    }


@pytest.mark.parametrize(
    ("key", "told"),
    [
        (KEYS.outcome("a:b"), ("a:b", True)),
        (KEYS.result(""), ("", False)),
        (KEYS.outcome(b"\xff"), None),
        (KEYS.repeat_spec("result:a"), None),
        (QueueKeys("other").outcome("a"), None),
        (KEYS.repeat, None),
    ],
)
def test_a_key_says_whose_end_it_tells(key, told):
    assert finished_job(KEYS, key) == told


def test_a_pattern_takes_the_name_as_it_is():
    assert glob_of(QueueKeys("a*b?[c]\\^"), b":*") == rb"{chasqui:a\*b\?\[c\]\\\^}:*"
    assert glob_of(KEYS, KEPT_GLOB) == b"{chasqui:emails}:[or]*"
