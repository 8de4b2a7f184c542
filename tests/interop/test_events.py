"""Events that one package writes and the other's `QueueEvents` reads."""

import pytest

from tests.support.party import job

pytestmark = pytest.mark.servers("redis-8.6")

QUICK = {"kind": "fixed", "delay_ms": 20, "jitter_ms": 0}

# Whatever happens to a job, by whose worker it was: the events and their attempts, in order.
# `waiting` is not here: the reference engine may write it after the `active` it should precede.
STORIES = {
    "plain": [("active", 1), ("completed", 1)],
    "": [("active", 1), ("completed", 1)],
    "later ü": [("active", 1), ("completed", 1)],
    "flaky": [
        ("active", 1), ("failed", 1), ("retry-scheduled", 2), ("active", 2), ("completed", 2),
    ],
    "bad": [
        ("active", 1), ("failed", 1), ("retry-scheduled", 2),
        ("active", 2), ("failed", 2), ("dlq", 2),
    ],
    "hard": [("active", 1), ("failed", 1), ("dlq", 1)],
}  # fmt: skip


def live(party, queue):
    """Let a party add and run jobs with every kind of fate; the ids by name."""
    party.work(
        queue,
        plan={"failures": {"flaky": 1, "bad": 9}, "hopeless": ["hard"]},
        max_attempts=2,
        read_block_ms=100,
    )
    options = {
        "later ü": {"delay_ms": 30},
        "flaky": {"backoff": QUICK},
        "bad": {"backoff": QUICK},
    }
    return {name: party.add(queue, name, 1, **options.get(name, {})) for name in STORIES}


def test_each_reads_the_other_writes_as_it_reads_its_own(pair, queue_name):
    writer, reader = pair
    reader.watch(queue_name)
    ids = live(writer, queue_name)
    reader.has_seen("completed", ids["plain"], ids[""], ids["later ü"], ids["flaky"])
    reader.has_seen("dlq", ids["bad"], ids["hard"])
    reader.has_seen("drained", None)
    writer.watch(queue_name)
    writer.until(lambda: len(writer.events) >= len(reader.events))

    for seen, own in zip(reader.events, writer.events, strict=False):
        assert (seen.name, seen.job_id, seen.job_name) == (own.name, own.job_id, own.job_name)
        assert texts(seen.fields) == texts(own.fields)
        for number in ("ts", "attempt", "duration_us", "backoff_ms", "delay_ms"):
            assert type(seen.fields.get(number, 0)) is int
    for name, job_id in ids.items():
        told = [each for each in reader.events if each.job_id == job_id]
        story = [(each.name, each.fields.get("attempt")) for each in told]
        assert [each for each in story if each[0] not in {"waiting", "delayed"}] == STORIES[name]
        assert {each.job_name for each in told if each.name != "waiting"} == {name}


def test_failures_are_told_in_the_handlers_own_words(pair, queue_name):
    writer, reader = pair
    reader.watch(queue_name)
    ids = live(writer, queue_name)
    reader.has_seen("dlq", ids["bad"], ids["hard"])
    told = {
        (each.name, each.job_name, each.fields["attempt"]): each.fields["reason"]
        for each in reader.events
        if each.job_name in {"bad", "hard"} and each.name in {"failed", "dlq"}
    }
    assert told == {
        ("failed", "bad", 1): "bad failed in run 1",
        ("failed", "bad", 2): "bad failed in run 2",
        ("dlq", "bad", 2): "retries_exhausted",
        ("failed", "hard", 1): "hard is hopeless",
        ("dlq", "hard", 1): "unrecoverable",
    }


def test_the_reference_engine_sees_what_only_ours_tells(ours, theirs, queue_name):
    theirs.watch(queue_name)
    now = ours.add(queue_name, "now", 1)
    later = ours.add(queue_name, "later", 1, delay_ms=40)
    ours.work(queue_name)
    theirs.has_seen("completed", now, later)
    story = [(each.name, each.job_id, each.job_name) for each in theirs.events]
    assert story[:2] == [("waiting", now, "now"), ("delayed", later, "later")]
    assert ("waiting", later, "later") in story
    [delayed] = theirs.has_seen("delayed", later)
    assert delayed.fields["delay_ms"] == 40


def test_ours_sees_the_promotions_of_the_reference_engine(ours, theirs, queue_name):
    ours.watch(queue_name)
    theirs.work(queue_name)
    later = theirs.add(queue_name, "later", 1, delay_ms=40)
    [waiting] = ours.has_seen("waiting", later)
    assert waiting.job_name == ""


def test_no_event_of_a_job_in_ours_comes_after_its_end(ours, theirs, queue_name):
    theirs.watch(queue_name)
    ids = theirs.add_bulk(queue_name, [job("plain", i) for i in range(2_000)])
    ours.work(queue_name)
    theirs.has_seen("completed", *ids)
    stories = {}
    for each in theirs.events:
        stories.setdefault(each.job_id, []).append(each.name)
    stories.pop(None, None)
    assert [job_id for job_id, story in stories.items() if story != ["active", "completed"]] == []


def texts(fields):
    return {key: str(value) for key, value in fields.items()}
