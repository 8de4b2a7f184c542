"""What a compaction gathers, and what it leaves alone."""

import pytest

pytest.importorskip("pyspark", reason="the pipeline needs the extra spark")

from chasquimq.pipeline.compaction import State, groups_of

DAY, OTHER = "2026-01-31", "2026-02-01"


def folder(batch, day=DAY, queue="q"):
    return (day, queue, batch)


def test_folders_of_one_day_and_queue_are_gathered_if_there_are_two():
    found = groups_of(
        [folder("b"), folder("a"), folder("a", OTHER), folder("a", queue="r"),
         folder("b", queue="r")],
        frozenset("ab"), State(),
    )  # fmt: skip
    assert found == [[folder("a"), folder("b")], [folder("a", queue="r"), folder("b", queue="r")]]


def test_a_batch_that_may_come_again_is_left_alone():
    assert groups_of([folder("a"), folder("b"), folder("c")], frozenset("ab"), State()) == [
        [folder("a"), folder("b")]
    ]


def test_what_was_gathered_is_gathered_again_with_what_came_since():
    state = State(1, frozenset([folder("compacted-00000001")]), {folder("a"): 5, folder("b"): 5})
    there = [folder("compacted-00000001"), folder("a"), folder("b"), folder("c")]
    assert groups_of(there, frozenset("abc"), state) == [
        [folder("c"), folder("compacted-00000001")]
    ]
    assert groups_of(there[:3], frozenset("abc"), state) == []


def test_what_a_killed_compaction_left_does_not_count():
    there = [folder("a"), folder("b"), folder("compacted-00000001")]
    assert groups_of(there, frozenset("ab"), State()) == [[folder("a"), folder("b")]]
    assert not State().counts(folder("compacted-00000001"))


def test_the_next_state_has_the_new_folders_and_remembers_the_old_while_they_are_there():
    state = State(1, frozenset([folder("compacted-00000001")]), {folder("a"): 5, folder("b"): 9})
    there = [folder("b"), folder("c"), folder("compacted-00000001")]
    after = state.next([[folder("c"), folder("compacted-00000001")]], now_ms=20, there=there)
    assert after == State(
        2,
        frozenset([folder("compacted-00000002")]),
        {folder("b"): 9, folder("c"): 20, folder("compacted-00000001"): 20},
    )
