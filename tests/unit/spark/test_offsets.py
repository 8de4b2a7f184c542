"""Marks, what is missing after one, ranges and shares."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chasquimq.broker.pages import NO_STREAM, StreamHead
from chasquimq.errors import ConfigError
from chasquimq.spark.offsets import (
    Loss,
    Mark,
    beginning_of,
    end_of,
    from_json,
    loss_after,
    shares,
    split,
    to_json,
)
from chasquimq.spark.options import Moment
from chasquimq.spark.planning import mark_at
from chasquimq.wire.ids import StreamId


def at(number):
    return StreamId(number, 0)


def a_head(first, last, added=None):
    """A stream of entries 1, 2, 3 ... of which those from `first` are left."""
    length = last - first + 1
    return StreamHead(length, at(first) if length else None, at(last), added)


COUNTED = a_head(4, 9, added=9)
UNCOUNTED = a_head(4, 9)


@pytest.mark.parametrize(
    ("mark", "head", "loss"),
    [
        (Mark(at(9), 9), COUNTED, None),
        (Mark(at(5), 5), COUNTED, None),
        (Mark(at(3), 3), COUNTED, None),
        (Mark(at(1), 1), COUNTED, Loss(at(1), "trimmed unread", 2)),
        (Mark(at(12), 12), COUNTED, Loss(at(12), "the stream was deleted")),
        (Mark(at(2), 2), NO_STREAM, Loss(at(2), "the stream was deleted")),
        (Mark(StreamId.MIN, 0), NO_STREAM, None),
        (Mark(at(3), 30), COUNTED, Loss(at(3), "the stream was deleted")),
        (Mark(at(3), 5), COUNTED, Loss(at(3), "the stream was deleted, and has grown again")),
        (Mark(at(9), 9), a_head(10, 9, added=9), None),
        (Mark(at(8), 8), a_head(10, 9, added=9), Loss(at(8), "trimmed unread", 1)),
        # Where nobody counts, only the ids can tell.
        (Mark(at(5)), UNCOUNTED, None),
        (Mark(at(4)), UNCOUNTED, None),
        (Mark(at(4).previous()), UNCOUNTED, None),
        (Mark(at(2)), UNCOUNTED, Loss(at(2), "trimmed unread")),
        (Mark(at(9)), a_head(10, 9), None),
        (Mark(at(8)), a_head(10, 9), Loss(at(8), "trimmed unread")),
        (Mark(StreamId.MIN, 0), UNCOUNTED, None),
        (Mark(at(2)), a_head(4, 9, added=6), None),
        (Mark(at(2)), COUNTED, Loss(at(2), "trimmed unread")),
    ],
)
def test_what_is_missing_after_a_mark_is_known(mark, head, loss):
    assert loss_after(mark, head) == loss


@pytest.mark.parametrize(
    ("position", "mark"),
    [
        ("earliest", Mark(at(4).previous(), 3)),
        ("latest", Mark(at(9), 9)),
        (at(6), Mark(at(6).previous())),
        (StreamId.MIN, Mark(StreamId.MIN)),
        (Moment(2), Mark(at(4).previous(), 3)),
        (Moment(6), Mark(at(6).previous())),
        (Moment(99), Mark(at(9), 9)),
    ],
)
def test_a_place_is_a_mark_just_before_it(position, mark):
    assert mark_at(position, COUNTED) == mark


def test_nothing_is_before_the_oldest_entry_and_nothing_after_the_end():
    assert loss_after(beginning_of(COUNTED), COUNTED) is None
    assert loss_after(end_of(COUNTED), COUNTED) is None
    assert beginning_of(NO_STREAM) == end_of(NO_STREAM) == Mark(StreamId.MIN, 0)


ids = st.builds(StreamId, st.integers(0, 10_000), st.integers(0, 5))


@given(ids, ids, st.integers(1, 20), ids)
def test_ranges_cover_what_is_between_and_no_id_twice(one, other, parts, probe):
    first, last = sorted((one, other))
    ranges = split(first, last, parts)
    assert 1 <= len(ranges) <= parts
    assert all(low <= high for low, high in ranges)
    holding = [each for each in ranges if each[0] <= probe <= each[1]]
    assert len(holding) == (first <= probe <= last)


@given(st.lists(st.integers(0, 1_000), min_size=1, max_size=6), st.integers(1, 2_000))
def test_shares_are_no_more_than_there_is_and_everyone_who_waits_moves(backlogs, limit):
    given_out = shares(backlogs, limit)
    assert all(0 <= share <= backlog for share, backlog in zip(given_out, backlogs, strict=True))
    assert all(share > 0 for share, backlog in zip(given_out, backlogs, strict=True) if backlog)
    assert sum(given_out) <= limit + len(backlogs)


def test_an_offset_survives_the_checkpoint():
    offset = {"a": Mark(StreamId(5, 3), 7), "b": Mark(StreamId.MIN)}
    stored = json.loads(json.dumps(to_json(offset)))
    assert from_json(stored, ["a", "b", "new"]) == offset
    assert from_json(stored, ["b"]) == {"b": Mark(StreamId.MIN)}


@pytest.mark.parametrize("stored", [{"a": 5}, {"a": {"id": "x", "added": 1}}, {"a": {"id": "1-1"}}])
def test_an_offset_that_is_not_ours_is_refused(stored):
    with pytest.raises(ConfigError, match="use a new checkpoint"):
        from_json(stored, ["a"])
