"""Results and outcomes of jobs: read one or many."""

from collections.abc import Sequence
from dataclasses import dataclass

from chasquimq.broker.call import Call, Reply, all_checked, command
from chasquimq.errors import DecodeError
from chasquimq.wire.codec import unpack
from chasquimq.wire.keys import QueueKeys

OUTCOME_VALUE = b"v"
"""The job completed and its value was stored; when, in epoch ms, follows."""
OUTCOME_NOTHING = b"n"
"""The job completed and returned None; when, in epoch ms, follows."""
OUTCOME_FAILED = b"f"
"""The job was dead-lettered; the reason and the error follow, in MessagePack."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept of one job: the value's bytes, and how it ended; None where there is nothing."""

    value: bytes | None
    outcome: bytes | None


def failure(outcome: bytes) -> tuple[str, str] | None:
    """Reason and error of a job that was dead-lettered; None for one that was not."""
    if not outcome.startswith(OUTCOME_FAILED):
        return None
    try:
        reason, error = unpack(outcome[len(OUTCOME_FAILED) :])
    except (DecodeError, ValueError, TypeError):
        return "unknown", ""
    return str(reason), str(error)


def read(keys: QueueKeys, job_ids: Sequence[str]) -> Call[list[Kept]]:
    """What is kept of each job, in the order of the ids."""
    requests: list[bytes] = []
    for job_id in job_ids:
        requests += (
            command("GET", keys.result(job_id)),
            command("GET", keys.outcome(job_id)),
        )
    return Call(requests, _read_kept)


def _read_kept(replies: list[Reply]) -> list[Kept]:
    all_checked(replies)
    return [Kept(*pair) for pair in zip(replies[::2], replies[1::2], strict=True)]
