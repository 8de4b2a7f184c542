"""What is known of a run: how many it added, and the note by which it is continued."""

import pytest

from chasquimq.broker import runs
from chasquimq.broker.runs import Memory, RunJob
from tests.support.broker_builders import SILENT, an_envelope

MEMORY = Memory(run_ttl_s=600, grace_s=3_600)


@pytest.fixture
def add(run, keys):
    def send(*ids):
        jobs = [RunJob(each, an_envelope(each)) for each in ids]
        run(runs.add(keys, "r1", jobs, limit=100, memory=MEMORY, telling=SILENT))

    return send


def test_a_run_counts_what_it_added_once(run, keys, add):
    assert run(runs.added(keys, "r1")) == 0
    add("a", "b")
    add("b", "c")
    assert run(runs.added(keys, "r1")) == 3


def test_it_can_be_remembered_for_another_time(run, keys, raw, add):
    assert not run(runs.remember(keys, "r1", 60))
    add("a")
    assert run(runs.remember(keys, "r1", 60))
    assert raw.client.ttl(keys.seen("r1")) == 60


def test_the_first_note_stays_until_it_is_replaced(run, keys, raw):
    assert run(runs.noted(keys, "r1")) is None
    assert run(runs.begin(keys, "r1", "the first", 600, step=2))
    assert not run(runs.begin(keys, "r1", "second", 600, step=9))
    assert run(runs.noted(keys, "r1")) == "the first"
    assert run(runs.note(keys, "r1", "third", 900, step=2))
    assert run(runs.noted(keys, "r1")) == "third"
    assert raw.client.ttl(keys.run("r1")) == 900


def test_one_that_is_behind_does_not_undo_what_another_has_come_to(run, keys):
    run(runs.begin(keys, "r1", "begun", 600, step=2))
    assert run(runs.note(keys, "r1", "done", 600, step=3))
    assert not run(runs.note(keys, "r1", "half way", 600, step=2))
    assert run(runs.noted(keys, "r1")) == "done"
    assert run(runs.note(keys, "r1", "begun anew", 600, step=4))
    assert not run(runs.note(keys, "r1", "done", 600, step=3))
    assert run(runs.noted(keys, "r1")) == "begun anew"
