"""Pure: what is kept of a job, and where it is, turned into how it ended."""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from chasquimq.broker.results import OUTCOME_NOTHING, Kept, failure
from chasquimq.errors import WaitForResultTimeoutError
from chasquimq.wire.codec import unpack
from chasquimq.wire.event import EventName, QueueEvent

# A value that is not there yet when its job is said to be completed is looked for so often.
_LOOKS_FOR_VALUE = 5
_VALUE_PAUSE_S = 0.05


class OutcomeStatus(StrEnum):
    """How a job stands, for someone who waits for it."""

    PENDING = "pending"
    OK = "ok"
    FAILED = "failed"
    EXPIRED = "expired"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class JobResult:
    """How a job ended, if it did.

    `value` is what the handler returned, where `status` is ok. `reason` and `error` say why, where
    it is failed. Expired means that it completed and its value is not kept any more; unknown, that
    there is no trace of it: it never was, or ended under a worker that stores nothing.
    """

    status: OutcomeStatus
    value: Any = None
    reason: str | None = None
    error: str | None = None
    is_stored: bool = True
    """False if the job completed under a worker that stores no results."""

    @property
    def is_settled(self) -> bool:
        """Whether nothing more will come."""
        return self.status not in (OutcomeStatus.PENDING, OutcomeStatus.UNKNOWN)


def from_kept(kept: Kept) -> JobResult:
    """What the kept bytes say; unknown if there are none."""
    if kept.value is not None:
        return JobResult(OutcomeStatus.OK, unpack(kept.value))
    if kept.outcome is None:
        return JobResult(OutcomeStatus.UNKNOWN)
    if kept.outcome.startswith(OUTCOME_NOTHING):
        return JobResult(OutcomeStatus.OK)
    failed = failure(kept.outcome)
    if failed is not None:
        reason, error = failed
        return JobResult(OutcomeStatus.FAILED, reason=reason, error=error)
    return JobResult(OutcomeStatus.EXPIRED)


class WaitedJob:
    """What the events of a job that is waited for have told so far."""

    __slots__ = ("_looks", "died_with", "error", "has_completed", "reason")

    def __init__(self) -> None:
        """Nothing is known yet."""
        self.has_completed = False
        self.reason: str | None = None
        """Why it was dead-lettered, once it was."""
        self.error = ""
        """What its handler raised last, if that was told in time."""
        self.died_with = ""
        """The id of the event that told of its dead letter."""
        self._looks = 0

    @property
    def patience_s(self) -> float:
        """How long to wait for a next event before looking again."""
        return _VALUE_PAUSE_S if self.has_completed else math.inf

    def has_no_value(self) -> bool:
        """Whether a job that is said to be completed has had the time to get its value stored.

        Our workers store it before they tell, those of the reference engine after.
        """
        self._looks += self.has_completed
        return self._looks > _LOOKS_FOR_VALUE

    def take(self, event: QueueEvent) -> bool:
        """Note what an event says; True if the job has ended."""
        match event.name:
            case EventName.COMPLETED:
                self.has_completed = True
            case EventName.DLQ:
                self.reason = str(event.fields.get("reason", ""))
                self.died_with = event.event_id
            case EventName.WAITING:
                self.reason = None  # it was replayed
                return False
            case EventName.FAILED:
                self.error = str(event.fields.get("reason", ""))
                return False
            case _:
                return False
        return True


def conclude(kept: Kept, job: WaitedJob) -> JobResult | None:
    """How a job that is waited for has ended, None if it has not. What is kept beats events."""
    result = from_kept(kept)
    if result.is_settled:
        return result
    if job.reason is not None:
        return JobResult(OutcomeStatus.FAILED, reason=job.reason, error=job.error)
    return JobResult(OutcomeStatus.OK, is_stored=False) if job.has_no_value() else None


def too_late(job_id: str, timeout_s: float) -> WaitForResultTimeoutError:
    """The error for a job that has not ended in time."""
    msg = (
        f"job {job_id} has not ended after {timeout_s:g} s; it may still run. "
        "Its value can only be read if the worker has store_results=True"
    )
    return WaitForResultTimeoutError(msg)
