"""`discard_waiting.lua`: what waits goes with the keys of its job, what is in flight stays."""

import threading

import pytest

from chasquimq.broker import upkeep
from chasquimq.wire.envelope import decode
from chasquimq.wire.keys import of_unfinished_job
from tests.support.broker_builders import an_entry


@pytest.fixture
def discard(run, keys):
    def discard_entries(*entries, dry_run=False):
        return run(upkeep.discard_waiting(keys, entries, dry_run=dry_run))

    return discard_entries


def marked(raw, *job_ids):
    for job_id in job_ids:
        for key in of_unfinished_job(raw.keys, job_id):
            raw.client.set(key, "x", ex=60)


def test_a_discarded_job_leaves_nothing_and_others_stay(raw, discard):
    first, second = raw.waiting(an_entry("a"), an_entry("b"))
    marked(raw, "a", "b")
    before = raw.everything()

    assert discard((first, "a")) == [True]
    gone = {f"{kind}:a" for kind in ("dlid", "didx", "trace", "progress", "log", "stalls")}
    left = {name: value for name, value in before.items() if name not in gone}
    assert raw.everything() == left | {"stream": before["stream"][1:]}
    assert raw.entry_ids() == [second]


def test_what_is_in_flight_stays_whatever_its_group_is_called(raw, keys, discard):
    held, waiting = raw.delivered("c1", an_entry("a")) + raw.waiting(an_entry("b"))
    raw.client.xgroup_create(keys.stream, "another", "0")
    raw.client.xreadgroup("another", "c2", {keys.stream: ">"}, count=1)
    raw.client.xgroup_destroy(keys.stream, "default")
    marked(raw, "a")
    before = raw.everything()

    assert discard((held, "a")) == [False]
    assert raw.everything() == before
    assert discard((waiting, "b"), (held, "a")) == [True, False]
    assert raw.entry_ids() == [held]


def test_what_was_in_flight_looks_as_if_it_waited_once_its_group_is_destroyed(raw, keys, discard):
    """A limit, not a wish: of deliveries the server knows what groups know."""
    (held,) = raw.delivered("c1", an_entry("a"))
    assert discard((held, "a")) == [False]
    raw.client.xgroup_destroy(keys.stream, "default")
    assert discard((held, "a")) == [True]


def test_an_entry_that_is_gone_takes_no_keys_along(raw, discard):
    (entry_id,) = raw.waiting(an_entry("a"))
    assert discard((entry_id, "a")) == [True]
    marked(raw, "a")  # added again meanwhile
    before = raw.everything()

    assert discard((entry_id, "a")) == [False]
    assert raw.everything() == before


def test_jobs_that_no_worker_ever_looked_for_are_discarded(raw, keys, discard):
    entry_id = raw.client.xadd(keys.stream, an_entry("a"))
    assert discard((entry_id, "a")) == [True]
    assert discard((b"1-1", "b")) == [False]


def test_a_queue_that_was_never_used_has_nothing_to_discard(raw, discard):
    assert discard((b"1-1", "a"), dry_run=True) == [False]
    assert discard((b"1-1", "a")) == [False]
    assert raw.everything() == {"held": []}


def test_a_dry_run_says_the_same_and_changes_nothing(raw, discard):
    (held,) = raw.delivered("c1", an_entry("a"))
    (waiting,) = raw.waiting(an_entry("b"))
    marked(raw, "a", "b")
    before = raw.everything()
    entries = [(held, "a"), (waiting, "b"), (b"1-1", "c")]

    assert discard(*entries, dry_run=True) == [False, True, False]
    assert raw.everything() == before
    assert discard(*entries) == [False, True, False]


def test_every_job_is_either_discarded_or_read_when_both_are_tried_at_once(raw, keys, connect):
    entry_ids = raw.waiting(*(an_entry(f"j{n}") for n in range(200)))
    start = threading.Barrier(2)
    read = []

    def read_all():
        start.wait()
        while found := raw.client.xreadgroup("default", "c1", {keys.stream: ">"}, count=3):
            read.extend(entry_id for entry_id, _ in found[0][1])

    reader = threading.Thread(target=read_all)
    discarder = connect()
    discarder.ready()
    reader.start()
    start.wait()
    discarded = []
    for entry_id in reversed(entry_ids):
        [gone] = discarder.run(upkeep.discard_waiting(keys, [(entry_id, "x")], dry_run=False))
        if gone:
            discarded.append(entry_id)
    reader.join()

    assert set(read) | set(discarded) == set(entry_ids)
    assert set(read) & set(discarded) == set()
    assert [decode(fields["d"]).id for fields in raw.stream()] == [
        f"j{n}" for n in range(len(read))
    ]
