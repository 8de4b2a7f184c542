"""Turns what the engine found into what `Queue` and `SyncQueue` return."""

import warnings
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from chasquimq.broker.inspect import JobState, Located
from chasquimq.engine.outcomes import JobResult, OutcomeStatus
from chasquimq.errors import DecodeError, JobFailedError
from chasquimq.job import Job, JobQueue
from chasquimq.wire.codec import unpack

_STATUS_OF_STATE = {
    JobState.WAITING: OutcomeStatus.PENDING,
    JobState.ACTIVE: OutcomeStatus.PENDING,
    JobState.DELAYED: OutcomeStatus.PENDING,
    JobState.FAILED: OutcomeStatus.FAILED,
}


def outcome_of(located: Located) -> JobResult:
    """How a job stands, from where it is, when nothing is kept of its end."""
    status = _STATUS_OF_STATE.get(located.state, OutcomeStatus.UNKNOWN)
    return JobResult(status, reason=located.reason, error=located.error)


def stored_job(located: Located, source: JobQueue | None = None) -> Job | None:
    """A `Job` from what was found of it; None if its data is not in the queue.

    `source` is the queue that the job may ask more of.
    """
    envelope = located.envelope
    if envelope is None:
        return None
    attempt = envelope.attempt + located.deliveries
    data = unpack(envelope.packed_data)
    return Job(envelope.id, located.name, data, attempt, envelope.created_at_ms, _queue=source)


def stored_jobs(found: Iterable[Located], source: JobQueue | None) -> list[Job]:
    """Those of many that can be read: one whose data is not MessagePack must not hide the rest."""
    jobs = []
    for located in found:
        with suppress(DecodeError):
            job = stored_job(located, source)
            if job is not None:
                jobs.append(job)
    return jobs


@dataclass(frozen=True, slots=True)
class JobsPage:
    """Some jobs of a queue, and how to ask for the next: None means that these were the last."""

    jobs: list[Job]
    next_cursor: str | None


def value_of(job_id: str, result: JobResult) -> Any:  # noqa: ANN401 -- the handler's value
    """The value of a settled result; a failure is raised, a value never stored is warned about."""
    if result.status is OutcomeStatus.FAILED:
        raise JobFailedError(job_id, result.reason or "unknown", result.error or "")
    if not result.is_stored:
        warnings.warn(
            f"job {job_id} completed, but its worker stores no results: "
            "use Worker(..., store_results=True) to read what handlers return",
            RuntimeWarning,
            stacklevel=3,
        )
    return result.value
