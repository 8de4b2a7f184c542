"""Pure: what of a delivery may be run, as which attempt, and what must be set aside unrun."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from chasquimq.broker.stream import Delivery
from chasquimq.errors import DecodeError, DlqReason
from chasquimq.wire.envelope import Envelope, decode
from chasquimq.wire.retry import RetryOverride

NO_NAMES: Mapping[str, RetryOverride] = MappingProxyType({})
"""No name says anything about the retries of its jobs."""

_new = object.__new__

NO_FIELDS = "fields not an array"
NO_PAYLOAD = "missing or non-bytes payload field"


class Run:
    """A delivery that will be run: its envelope, and the number of the run, from 1.

    `retry` is what the job says about its retries, completed by what its name says.
    `is_discarded` is set while it runs, by a handler that wants no other run after this one.
    """

    __slots__ = ("attempt", "delivery", "envelope", "is_discarded", "name", "retry")

    def __init__(
        self, delivery: Delivery, envelope: Envelope, attempt: int, retry: RetryOverride | None
    ) -> None:
        """Made by `admit`."""
        self.delivery = delivery
        self.envelope = envelope
        self.name = delivery.name
        self.attempt = attempt
        self.retry = retry
        self.is_discarded = False

    def __repr__(self) -> str:
        """Show which job, and its how-manieth run."""
        return f"<Run {self.envelope.id} {self.name!r} attempt {self.attempt}>"


@dataclass(frozen=True, slots=True)
class Unfit:
    """A delivery that no handler will see, and why."""

    delivery: Delivery
    reason: DlqReason
    detail: str | None = None
    error: str | None = None
    job_id: str = ""
    name: str = ""
    attempts: int = 0


def admit(
    delivery: Delivery,
    *,
    max_payload_bytes: int,
    max_attempts: int,
    retry_by_name: Mapping[str, RetryOverride],
) -> Run | Unfit:
    """Decide whether a delivery is run.

    Runs already made are those the envelope counts (they ended in a retry, which wrote a new entry)
    plus the earlier deliveries of this entry (they ended with their worker). So a job that kills
    its worker has exactly its budget of runs, whether or not it was retried in between.
    """
    data = delivery.data
    if data is None:
        detail = NO_FIELDS if delivery.fields_missing else NO_PAYLOAD
        return Unfit(delivery, DlqReason.MALFORMED, detail)
    if len(data) > max_payload_bytes:
        error = f"entry has {len(data)} bytes, max_payload_bytes is {max_payload_bytes}"
        return Unfit(delivery, DlqReason.OVERSIZE_PAYLOAD, error=error, name=delivery.name)
    try:
        envelope = decode(data)
    except DecodeError as error:
        return Unfit(delivery, DlqReason.DECODE_FAILED, error=error.message)
    prior = envelope.attempt + delivery.deliveries
    retry = envelope.retry
    if retry_by_name:
        retry = _completed(retry, retry_by_name.get(delivery.name))
    allowed = max_attempts if retry is None else budget(retry, max_attempts)
    if prior >= allowed:
        silent = "the worker died or went silent during the last run"
        return Unfit(
            delivery,
            DlqReason.RETRIES_EXHAUSTED,
            error=silent if delivery.deliveries else f"{prior} runs were made, {allowed} allowed",
            job_id=envelope.id,
            name=delivery.name,
            attempts=prior,
        )
    # As `Run(...)` does, without a call of its class: half the instructions.
    run = _new(Run)
    run.delivery, run.envelope, run.name = delivery, envelope, delivery.name
    run.attempt, run.retry, run.is_discarded = prior + 1, retry, False
    return run


def budget(retry: RetryOverride | None, max_attempts: int) -> int:
    """How many runs a job may have in all: its own number, else the worker's."""
    if retry is None or retry.max_attempts is None:
        return max_attempts
    return retry.max_attempts


def _completed(own: RetryOverride | None, named: RetryOverride | None) -> RetryOverride | None:
    """What a job says, and for what it leaves open, what its name says."""
    if own is None or named is None:
        return own or named
    attempts = named.max_attempts if own.max_attempts is None else own.max_attempts
    return RetryOverride(attempts, own.backoff or named.backoff)
