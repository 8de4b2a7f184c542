"""`cancel.lua`: a delayed job can be taken out by its id, by one party, until it is promoted."""

import threading

import pytest

from chasquimq.broker import delayed, scripts
from chasquimq.broker.delayed import INDEXED_BYTES
from chasquimq.wire.envelope import decode
from tests.support import driving
from tests.support.broker_builders import (
    SILENT,
    a_delayed_job,
    a_member,
    a_relocation,
    a_ticket,
    an_entry,
)

LARGE = b"x" * INDEXED_BYTES
CANCELLED, NOT_DELAYED, LOOK_FOR_IT = 1, 0, -1


@pytest.fixture
def schedule(run, keys):
    def schedule_jobs(*jobs):
        return run(delayed.schedule(keys, jobs, ticket=a_ticket(), telling=SILENT, grace_s=3_600))

    return schedule_jobs


@pytest.fixture
def cancel(run, keys):
    """The script itself, with what it answers."""

    def cancel_by_script(job_id, found=b""):
        names = {
            "delayed": keys.delayed,
            "index": keys.delayed_index(job_id),
            "marker": keys.dedup_marker(job_id),
        }
        return run(scripts.CANCEL.call(names, {"found": found}, read=int))

    return cancel_by_script


def promote(keys, **changes):
    chosen = {"holder": "h", "lock_ttl_s": 5, "batch": 100, "capacity": 1_000}
    return delayed.promote(keys, events_cap=0, dlq_cap=100, **(chosen | changes))


def test_a_cancelled_job_leaves_nothing_behind(raw, schedule, cancel):
    schedule(a_delayed_job("other"), a_delayed_job("a", is_unique=True))
    before = raw.everything()
    assert {"didx:a", "dlid:a"} < set(before)

    assert cancel("a") == CANCELLED
    ((other, score),) = raw.delayed()
    assert other == a_member("other")
    left = {name: kept for name, kept in before.items() if name not in {"didx:a", "dlid:a"}}
    assert raw.everything() == left | {"delayed": [(other, score)]}


def test_a_cancelled_id_is_free_again(raw, keys, schedule, cancel):
    schedule(a_delayed_job("a", is_unique=True))
    cancel("a")
    raw.client.delete(keys.sent("p1"))

    assert schedule(a_delayed_job("a", is_unique=True)) == "1"
    assert len(raw.delayed()) == 1


def test_a_job_can_be_cancelled_once(raw, schedule, cancel):
    schedule(a_delayed_job("a"))

    assert cancel("a") == CANCELLED
    assert cancel("a") == LOOK_FOR_IT
    assert cancel("a", found=a_member("a")) == NOT_DELAYED


def test_an_unknown_id_has_no_index_and_changes_nothing(raw, schedule, cancel):
    schedule(a_delayed_job("a"))
    before = raw.everything()

    assert cancel("b") == LOOK_FOR_IT
    assert raw.everything() == before


def test_a_member_without_an_index_is_cancelled_when_it_is_passed(raw, keys, schedule, cancel):
    schedule(a_delayed_job("a", is_unique=True))
    raw.client.delete(keys.delayed_index("a"))

    assert cancel("a") == LOOK_FOR_IT
    assert cancel("a", found=a_member("a")) == CANCELLED
    assert sorted(raw.everything()) == ["held", "sent:p1", "wake"]


def test_a_promoted_job_cannot_be_cancelled(run, drive, raw, keys, schedule, cancel):
    schedule(a_delayed_job("a", run_at_ms=1, is_unique=True))
    assert run(promote(keys)).promoted == 1
    before = raw.everything()

    assert cancel("a") == LOOK_FOR_IT  # the promoter has not dropped the index yet
    assert cancel("a", found=a_member("a")) == NOT_DELAYED
    assert drive(delayed.cancel(keys, "a")) is False
    assert raw.everything() == before
    assert raw.stream() == [an_entry("a")]


def test_a_cancelled_job_is_not_promoted(run, raw, keys, schedule, cancel):
    schedule(a_delayed_job("a", run_at_ms=1))
    assert cancel("a") == CANCELLED

    assert run(promote(keys)).promoted == 0
    assert raw.stream() == []


def test_every_job_is_either_cancelled_or_promoted_when_both_are_tried_at_once(
    raw, keys, schedule, connect
):
    job_ids = [f"j{n}" for n in range(100)]
    schedule(*(a_delayed_job(job_id, run_at_ms=1) for job_id in job_ids))
    start = threading.Barrier(2)

    def promote_all():
        connection = connect()
        connection.ready()
        start.wait()
        while connection.run(promote(keys, batch=3)).depth:
            pass

    promoter = threading.Thread(target=promote_all)
    canceller = connect()
    canceller.ready()
    promoter.start()
    start.wait()
    cancelled = {
        job_id
        for job_id in reversed(job_ids)
        if driving.drive(canceller.run, delayed.cancel(keys, job_id))
    }
    promoter.join()

    promoted = {decode(fields["d"]).id for fields in raw.stream()}
    assert cancelled | promoted == set(job_ids)
    assert cancelled & promoted == set()
    assert raw.delayed() == []


# --- cancel by id, the whole of it


def test_a_job_is_cancelled_by_its_id_with_and_without_an_index(drive, raw, schedule):
    schedule(a_delayed_job("small"), a_delayed_job("large", data=LARGE))
    assert "didx:large" not in raw.everything()

    assert drive(delayed.cancel(raw.keys, "small")) is True
    assert drive(delayed.cancel(raw.keys, "large")) is True
    assert raw.delayed() == []


def test_cancelling_what_is_not_delayed_says_so(drive, raw, schedule):
    schedule(a_delayed_job("a"))

    assert drive(delayed.cancel(raw.keys, "b")) is False
    assert len(raw.delayed()) == 1


def test_an_id_that_is_part_of_another_jobs_bytes_does_not_cancel_that_job(drive, raw, schedule):
    schedule(a_delayed_job("order-17"), a_delayed_job("j2", name="order-1", data=b"\xa7order-1"))

    assert drive(delayed.cancel(raw.keys, "order-1")) is False
    assert len(raw.delayed()) == 2


def test_what_is_not_a_job_does_not_stop_the_search(drive, raw, keys):
    poison = [b"\x01needle", b"\xff\xff\xff\x00needle", bytes(4) + b"\xc1needle"]
    raw.client.zadd(keys.delayed, dict.fromkeys(poison, 1) | {a_member("needle"): 2})

    assert drive(delayed.cancel(keys, "needle")) is True
    assert {member for member, _ in raw.delayed()} == set(poison)


def test_a_job_without_an_index_is_found_far_back_in_the_set(drive, raw, keys):
    others = {a_member(f"j{n}"): n for n in range(2_100)}
    raw.client.zadd(keys.delayed, others | {a_member("needle"): 5_000})

    assert drive(delayed.cancel(keys, "needle")) is True
    assert raw.client.zcard(keys.delayed) == 2_100


def test_a_retry_is_cancelled_by_its_id(run, drive, raw, keys):
    (entry_id,) = raw.delivered("c1", an_entry("a"))
    move = a_relocation(entry_id, "a")
    run(delayed.retry(keys, "default", "c1", [move], telling=SILENT, grace_s=3_600))

    assert drive(delayed.cancel(keys, "a")) is True
    assert raw.delayed() == []


def test_an_index_that_outlived_its_member_does_not_hide_the_retry(run, drive, raw, keys, schedule):
    """The promoter died before it dropped the index, and the retry is too large to have its own."""
    schedule(a_delayed_job("a", run_at_ms=1, data=LARGE, is_unique=True))
    run(promote(keys))
    (entry_id,) = raw.read("c1")
    move = a_relocation(entry_id, "a", data=LARGE)
    retry = delayed.retry(keys, "default", "c1", [move], telling=SILENT, grace_s=3_600)
    assert run(retry) == [True]
    assert len(raw.delayed()) == 1

    assert drive(delayed.cancel(keys, "a")) is True
    assert raw.delayed() == []
