# ruff: noqa: S311 -- jitter, not secrets

import random

import pytest

from chasquimq.config import RetryConfig
from chasquimq.engine.disposition import Bury, Failed, Retry, after_failure
from chasquimq.errors import DlqReason
from chasquimq.wire.retry import BackoffSpec
from tests.support.builders import a_run, an_override

CURVE = RetryConfig(initial_backoff_ms=100, multiplier=2.0, jitter_ms=0)
ERROR = Failed("boom", "ValueError: boom", "Traceback ...")
HOPELESS = Failed("no", "UnrecoverableError: no", "...", dlq_reason=DlqReason.UNRECOVERABLE)
UNREADABLE = Failed("no", "UndecodableDataError: no", "...", dlq_reason=DlqReason.DECODE_FAILED)


def disposition(run, failure=ERROR, *, max_attempts=3):
    return after_failure(
        run, failure, max_attempts=max_attempts, curve=CURVE, chance=random.Random(1)
    )


@pytest.mark.parametrize(
    ("attempt", "expected"),
    [
        (1, Retry(backoff_ms=100, next_attempt=2)),
        (2, Retry(backoff_ms=200, next_attempt=3)),
        (3, Bury(DlqReason.RETRIES_EXHAUSTED)),
        (4, Bury(DlqReason.RETRIES_EXHAUSTED)),
    ],
)
def test_a_failed_run_is_retried_until_the_budget_of_runs_is_used_up(attempt, expected):
    assert disposition(a_run(attempt=attempt)) == expected


def test_a_budget_of_one_run_leaves_no_retry():
    assert disposition(a_run(), max_attempts=1) == Bury(DlqReason.RETRIES_EXHAUSTED)


@pytest.mark.parametrize(
    ("own", "attempt", "expected"),
    [
        (an_override(1), 1, Bury(DlqReason.RETRIES_EXHAUSTED)),
        (an_override(5), 4, Retry(800, 5)),
        (an_override(5), 5, Bury(DlqReason.RETRIES_EXHAUSTED)),
        (an_override(None, BackoffSpec.fixed(7)), 2, Retry(7, 3)),
        (an_override(9, BackoffSpec.exponential(10, multiplier=3.0)), 4, Retry(270, 5)),
        (an_override(), 2, Retry(200, 3)),
    ],
)
def test_a_jobs_own_rules_decide_how_often_and_how_soon(own, attempt, expected):
    assert disposition(a_run(attempt=attempt, retry=own)) == expected


@pytest.mark.parametrize("failure", [HOPELESS, UNREADABLE])
def test_a_failure_that_no_retry_could_help_is_buried_at_once_for_its_own_reason(failure):
    assert failure.dlq_reason is not None
    assert disposition(a_run(retry=an_override(25)), failure) == Bury(failure.dlq_reason)


def test_a_panic_is_retried_like_any_failure():
    panic = Failed("gone", "GeneratorExit", "...", is_panic=True)
    assert disposition(a_run(), panic) == Retry(100, 2)
