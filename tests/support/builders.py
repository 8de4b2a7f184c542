"""Values to begin a test with: say what matters, the rest is filled in."""

from collections.abc import Sequence
from itertools import count

from chasquimq.broker.stream import Delivery
from chasquimq.engine.admission import Run
from chasquimq.wire.codec import pack
from chasquimq.wire.entry import job_fields
from chasquimq.wire.envelope import Envelope, encode
from chasquimq.wire.retry import BackoffSpec, RetryOverride

_numbers = count(1)


def an_envelope(
    data: object = None,
    *,
    id: str | None = None,  # noqa: A002 -- the documented name
    attempt: int = 0,
    retry: RetryOverride | None = None,
) -> Envelope:
    """A job's envelope, with an id no other has."""
    job_id = id or f"job-{next(_numbers)}"
    return Envelope(job_id, pack(data), 1_700_000_000_000, attempt, retry)


def an_override(
    max_attempts: int | None = None, backoff: BackoffSpec | None = None
) -> RetryOverride:
    """What a job says about its own retries."""
    return RetryOverride(max_attempts, backoff)


def a_delivery(
    envelope: Envelope | bytes | None = None, *, name: str = "", deliveries: int = 0
) -> Delivery:
    """A delivery of an entry that holds `envelope`, after so many earlier ones."""
    data = envelope if isinstance(envelope, bytes) else encode(envelope or an_envelope())
    return a_raw_delivery(job_fields(data, name), deliveries=deliveries)


def a_raw_delivery(fields: Sequence[bytes] | None, *, deliveries: int = 0) -> Delivery:
    """A delivery of an entry with these fields, None for an entry that was deleted."""
    return Delivery(b"%d-0" % next(_numbers), fields, 0, deliveries)


def a_run(
    data: object = None,
    *,
    id: str | None = None,  # noqa: A002 -- the documented name
    name: str = "",
    attempt: int = 1,
    retry: RetryOverride | None = None,
) -> Run:
    """A delivery that was admitted, as run number `attempt`."""
    envelope = an_envelope(data, id=id, attempt=attempt - 1, retry=retry)
    return Run(a_delivery(envelope, name=name), envelope, attempt, envelope.retry)
