import pytest

from chasquimq.broker.results import OUTCOME_FAILED, OUTCOME_NOTHING, OUTCOME_VALUE, Kept
from chasquimq.engine.outcomes import (
    JobResult,
    OutcomeStatus,
    WaitedJob,
    conclude,
    from_kept,
    too_late,
)
from chasquimq.wire.codec import pack
from chasquimq.wire.event import QueueEvent

FAILED = OUTCOME_FAILED + pack(["retries_exhausted", "ValueError: boom"])
NOTHING_KEPT = Kept(None, None)


def told(*events):
    job = WaitedJob()
    for name, fields in events:
        job.take(QueueEvent(name, "j1", "", fields))
    return job


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        (NOTHING_KEPT, JobResult(OutcomeStatus.UNKNOWN)),
        (Kept(pack({"n": 1}), OUTCOME_VALUE), JobResult(OutcomeStatus.OK, {"n": 1})),
        (Kept(pack(0), None), JobResult(OutcomeStatus.OK, 0)),
        (Kept(None, OUTCOME_NOTHING), JobResult(OutcomeStatus.OK)),
        (Kept(None, OUTCOME_VALUE), JobResult(OutcomeStatus.EXPIRED)),
        (
            Kept(None, FAILED),
            JobResult(OutcomeStatus.FAILED, None, "retries_exhausted", "ValueError: boom"),
        ),
        (
            Kept(None, OUTCOME_FAILED + b"\xc1"),
            JobResult(OutcomeStatus.FAILED, None, "unknown", ""),
        ),
        (
            Kept(None, OUTCOME_FAILED + pack([1, 2, 3])),
            JobResult(OutcomeStatus.FAILED, None, "unknown", ""),
        ),
    ],
)
def test_what_is_kept_of_a_job_says_how_it_ended(kept, expected):
    assert from_kept(kept) == expected


@pytest.mark.parametrize(
    ("status", "is_settled"),
    [
        (OutcomeStatus.PENDING, False),
        (OutcomeStatus.UNKNOWN, False),
        (OutcomeStatus.OK, True),
        (OutcomeStatus.FAILED, True),
        (OutcomeStatus.EXPIRED, True),
    ],
)
def test_only_an_end_is_settled(status, is_settled):
    assert JobResult(status).is_settled is is_settled


@pytest.mark.parametrize(
    ("kept", "job", "expected"),
    [
        (NOTHING_KEPT, told(), None),
        (NOTHING_KEPT, told(("waiting", {}), ("active", {"attempt": 1})), None),
        (NOTHING_KEPT, told(("failed", {"reason": "boom"})), None),
        (
            NOTHING_KEPT,
            told(("failed", {"reason": "boom"}), ("dlq", {"reason": "unrecoverable"})),
            JobResult(OutcomeStatus.FAILED, None, "unrecoverable", "boom"),
        ),
        (
            NOTHING_KEPT,
            told(("dlq", {"reason": "oversize_payload"})),
            JobResult(OutcomeStatus.FAILED, None, "oversize_payload", ""),
        ),
        (Kept(pack(7), OUTCOME_VALUE), told(), JobResult(OutcomeStatus.OK, 7)),
        (
            Kept(pack(7), OUTCOME_VALUE),
            told(("dlq", {"reason": "unrecoverable"})),
            JobResult(OutcomeStatus.OK, 7),
        ),
        (
            Kept(None, FAILED),
            told(("completed", {"attempt": 1})),
            JobResult(OutcomeStatus.FAILED, None, "retries_exhausted", "ValueError: boom"),
        ),
        (Kept(None, OUTCOME_VALUE), told(), JobResult(OutcomeStatus.EXPIRED)),
    ],
)
def test_a_wait_ends_with_what_is_kept_and_else_with_what_events_told(kept, job, expected):
    assert conclude(kept, job) == expected


@pytest.mark.parametrize(
    ("name", "ends"),
    [("completed", True), ("dlq", True), ("failed", False), ("retry-scheduled", False)],
)
def test_only_the_events_that_end_a_job_are_a_reason_to_look(name, ends):
    assert WaitedJob().take(QueueEvent(name, "j1", "", {})) is ends


def test_the_error_of_a_wait_that_took_too_long_names_the_job_and_the_remedy():
    text = str(too_late("j1", 2.5))
    assert "job j1 has not ended after 2.5 s" in text
    assert "store_results=True" in text


def test_a_value_that_is_stored_after_the_event_is_waited_for_but_not_for_ever():
    job = told(("completed", {"attempt": 1}))
    looks = [conclude(NOTHING_KEPT, job) for _ in range(6)]
    assert looks == [None] * 5 + [JobResult(OutcomeStatus.OK, is_stored=False)]
    assert job.patience_s < 1 < told().patience_s
