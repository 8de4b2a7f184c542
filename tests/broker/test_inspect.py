"""`inspect.py`: how deep a queue is, and where a job is, whichever way it got there."""

import pytest

from chasquimq.broker import delayed, inspect
from chasquimq.broker.delayed import INDEXED_BYTES
from chasquimq.broker.inspect import Counts, JobState, Located
from chasquimq.wire.envelope import decode
from chasquimq.wire.ids import ulid_time_ms
from tests.support.broker_builders import (
    SILENT,
    a_delayed_job,
    a_member,
    a_relocation,
    a_ticket,
    an_entry,
    an_envelope,
)
from tests.support.driving import drive
from tests.support.raw_queue import GROUP

PAGE = 1_000
LARGE = b"x" * INDEXED_BYTES


@pytest.fixture
def locate(run, keys):
    return lambda job_id: drive(run, inspect.locate(keys, GROUP, job_id))


@pytest.fixture
def crowd(raw, keys):
    """Many entries before everything that follows, or after it."""

    def write(count, first_ms=None):
        pipeline = raw.client.pipeline()
        for n in range(count):
            entry_id = "*" if first_ms is None else f"{first_ms + n}-0"
            pipeline.xadd(keys.stream, an_entry(f"crowd-{n}"), id=entry_id)
        pipeline.execute()

    return write


def a_ulid(ms):
    """An id made at `ms`; by hand, since the process's own ids never go back in time."""
    alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
    made = "".join(alphabet[ms >> shift & 31] for shift in range(45, -1, -5)) + "0" * 16
    assert ulid_time_ms(made) == ms
    return made


def requests_of(steps, run):
    """The commands a search takes, and what it finds."""
    names = []

    def noting(call):
        names.extend(request.split(b"\r\n")[2].decode() for request in call.requests)
        return run(call)

    found = drive(noting, steps)
    return names, found


# --- counts


def test_a_queue_that_was_never_used_counts_nothing(run, raw, keys):
    assert run(inspect.counts(keys, GROUP)) == Counts(waiting=0, active=0, delayed=0, dead=0)
    assert raw.everything() == {"held": []}


def test_jobs_wait_even_if_no_worker_ever_started(run, raw, keys):
    raw.client.xadd(keys.stream, an_entry("j1"))

    assert run(inspect.counts(keys, GROUP)) == Counts(waiting=1, active=0, delayed=0, dead=0)


def test_every_depth_is_counted_on_its_own(run, raw, keys):
    raw.delivered("c1", an_entry("a"), an_entry("b"), an_entry("c"))
    raw.waiting(an_entry("d"), an_entry("e"))
    raw.client.zadd(keys.delayed, {a_member("f"): 1})
    for _ in range(4):
        raw.client.xadd(keys.dlq, {"d": b""})

    assert run(inspect.counts(keys, GROUP)) == Counts(waiting=2, active=3, delayed=1, dead=4)


def test_deliveries_whose_entries_were_deleted_do_not_make_the_count_negative(run, raw, keys):
    entry_ids = raw.delivered("c1", an_entry("a"), an_entry("b"))
    raw.client.xdel(keys.stream, *entry_ids)

    assert run(inspect.counts(keys, GROUP)).waiting == 0


# --- where a job is


def test_a_job_in_the_stream_waits(raw, locate):
    raw.waiting(an_entry("other"), an_entry("j1"))

    assert locate("j1") == Located(JobState.WAITING, "mail", decode(an_envelope("j1")))


def test_a_job_waits_even_if_no_worker_ever_started(raw, keys, locate):
    raw.client.xadd(keys.stream, an_entry("j1", ""))

    assert locate("j1") == Located(JobState.WAITING, "", decode(an_envelope("j1")))


def test_a_job_that_was_delivered_is_active_and_says_how_often(raw, locate):
    (entry_id,) = raw.delivered("c1", an_entry("j1"))
    raw.claimed("c2", [entry_id])

    assert locate("j1") == Located(JobState.ACTIVE, "mail", decode(an_envelope("j1")), deliveries=2)


def test_a_delayed_job_is_found_by_its_index(run, keys, locate):
    run(delayed.schedule(keys, [a_delayed_job("j1")], ticket=a_ticket(), telling=SILENT,
                         grace_s=3_600))  # fmt: skip
    found = Located(JobState.DELAYED, "mail", decode(an_envelope("j1")))

    names, located = requests_of(inspect.locate(keys, GROUP, "j1"), run)
    assert located == found
    assert names == ["GET", "GET", "GET", "ZSCORE"]


def test_a_delayed_job_without_an_index_is_found_too(raw, keys, locate):
    raw.client.zadd(keys.delayed, {a_member("j1"): 1, b"\x01j1": 2})

    assert locate("j1") == Located(JobState.DELAYED, "mail", decode(an_envelope("j1")))


def test_a_retry_behind_an_index_that_outlived_its_member_is_found(run, raw, keys, locate):
    raw.client.set(keys.delayed_index("j1"), a_member("j1"), ex=60)
    (entry_id,) = raw.delivered("c1", an_entry("j1"))
    move = a_relocation(entry_id, "j1", data=LARGE)
    run(delayed.retry(keys, GROUP, "c1", [move], telling=SILENT, grace_s=3_600))

    located = locate("j1")
    assert (located.state, located.envelope.attempt) == (JobState.DELAYED, 1)


def test_a_promoted_job_is_waiting_though_its_index_is_still_there(raw, keys, locate):
    raw.client.set(keys.delayed_index("j1"), a_member("j1"), ex=60)
    raw.waiting(an_entry("j1"))

    assert locate("j1").state is JobState.WAITING


def test_a_dead_job_says_why(raw, keys, locate):
    letter = {"d": an_envelope("j1", attempt=2), "n": "mail", "source_id": "1-1"}
    letter |= {"reason": "unrecoverable", "error": "ValueError: nope"}
    raw.client.xadd(keys.dlq, letter)
    raw.client.set(keys.outcome("j1"), b"f", ex=60)

    assert locate("j1") == Located(
        JobState.FAILED,
        "mail",
        decode(an_envelope("j1", attempt=2)),
        reason="unrecoverable",
        error="ValueError: nope",
    )


def test_of_several_letters_of_one_job_the_newest_counts(raw, keys, locate):
    for reason in ("unrecoverable", "retries_exhausted"):
        raw.client.xadd(keys.dlq, {"d": an_envelope("j1"), "reason": reason})

    assert locate("j1").reason == "retries_exhausted"


def test_a_dead_letter_is_found_far_back(raw, keys, locate):
    pipeline = raw.client.pipeline()
    pipeline.xadd(keys.dlq, {"d": an_envelope("j1"), "reason": "unrecoverable"})
    for n in range(2 * PAGE):
        pipeline.xadd(keys.dlq, {"d": an_envelope(f"crowd-{n}"), "reason": "malformed"})
    pipeline.execute()

    assert locate("j1").reason == "unrecoverable"


def test_a_job_whose_letter_was_discarded_has_failed(raw, keys, locate):
    raw.client.set(keys.outcome("j1"), b"f\x92", ex=60)

    assert locate("j1") == Located(JobState.FAILED)


@pytest.mark.parametrize(
    ("result", "outcome"), [(b"\x2a", b"v"), (None, b"n"), (None, b"v"), (b"\x2a", None)]
)
def test_a_job_of_which_something_is_kept_is_completed(raw, keys, locate, result, outcome):
    """A value without an outcome is what a worker of the reference engine leaves."""
    for key, value in ((keys.result("j1"), result), (keys.outcome("j1"), outcome)):
        if value is not None:
            raw.client.set(key, value, ex=60)

    assert locate("j1") == Located(JobState.COMPLETED)


def test_a_job_that_is_nowhere_is_unknown(raw, locate):
    raw.waiting(an_entry("other"))

    assert locate("j1") == Located(JobState.UNKNOWN)


def test_a_job_that_runs_again_is_where_it_runs_and_not_where_it_ended_before(raw, keys, locate):
    raw.client.set(keys.outcome("j1"), b"v", ex=60)
    raw.waiting(an_entry("j1"))

    assert locate("j1").state is JobState.WAITING


def test_an_id_that_is_part_of_another_jobs_bytes_is_not_that_job(raw, locate):
    raw.waiting(an_entry("order-17"), an_entry("j2", "order-1"), {"d": b"order-1"}, {"x": b"1"})

    assert locate("order-1").state is JobState.UNKNOWN


# --- how long it takes


def test_a_recent_job_with_an_id_of_ours_is_found_in_one_page_behind_any_number(
    run, raw, keys, crowd
):
    crowd(2 * PAGE, first_ms=1_000)
    job_id = a_ulid(raw.now_ms())
    raw.waiting(an_entry(job_id))

    names, located = requests_of(inspect.locate(keys, GROUP, job_id), run)
    assert located.state is JobState.WAITING
    assert names == ["GET", "GET", "GET", "XRANGE", "XPENDING"]


def test_a_job_with_an_id_of_ours_whose_clock_was_ahead_is_found_all_the_same(raw, locate):
    job_id = a_ulid(raw.now_ms() + 3_600_000)
    raw.waiting(an_entry(job_id))

    assert locate(job_id).state is JobState.WAITING


def test_a_job_that_joined_the_stream_long_after_its_birth_is_found_all_the_same(
    raw, locate, crowd
):
    """Delayed for a day: more than a page of entries stands between its id's time and itself."""
    now_ms = raw.now_ms()
    job_id = a_ulid(now_ms - 86_400_000)
    crowd(2 * PAGE, first_ms=now_ms - 10_000)
    raw.waiting(an_entry(job_id))

    assert locate(job_id).state is JobState.WAITING


def test_a_job_with_an_id_of_the_callers_is_found_on_any_page(run, raw, keys, crowd):
    crowd(2 * PAGE, first_ms=1_000)
    raw.waiting(an_entry("order-17"))

    names, located = requests_of(inspect.locate(keys, GROUP, "order-17"), run)
    assert located.state is JobState.WAITING
    assert names == ["GET", "GET", "GET"] + 4 * ["XRANGE"] + ["XPENDING"]


def test_looking_changes_nothing(raw, keys, locate):
    raw.delivered("c1", an_entry("a"))
    raw.client.zadd(keys.delayed, {a_member("b"): 1})
    before = raw.everything()

    for job_id in ("a", "b", "c"):
        locate(job_id)
    assert raw.everything() == before
