"""What broker calls take, with values a test need not care about unless it names them."""

from typing import Literal

from chasquimq.broker.delayed import DelayedJob, Relocation
from chasquimq.broker.ring import Ticket
from chasquimq.broker.stream import Completion, NewJob, Telling
from chasquimq.wire.envelope import Envelope, encode

BORN_MS = 1_700_000_000_000
TOLD_MS = 1_700_000_000_123
"""The time that events of producers and workers carry: theirs, not the server's."""

TELLING = Telling(TOLD_MS, 1_000)
SILENT = Telling(TOLD_MS, 0)

_DATA = b"\x81\xa1k\x01"


def an_envelope(job_id: str = "j1", *, attempt: int = 0, data: bytes = _DATA) -> bytes:
    """The bytes of a job."""
    return encode(Envelope(job_id, data, BORN_MS, attempt))


def a_job(job_id: str = "j1", name: str = "mail") -> NewJob:
    """A fresh job."""
    return NewJob(job_id, an_envelope(job_id), name)


def an_entry(job_id: str = "j1", name: str = "mail") -> dict[str, bytes]:
    """The fields of a job's entry."""
    fields = {"d": an_envelope(job_id)}
    return fields | {"n": name.encode()} if name else fields


def a_member(job_id: str = "j1", name: str = "mail", *, envelope: bytes | None = None) -> bytes:
    """A delayed member, put together by hand as the specification draws it."""
    raw = name.encode()
    return len(raw).to_bytes(4, "little") + raw + (envelope or an_envelope(job_id))


def a_delayed_job(
    job_id: str = "j1",
    name: str = "mail",
    *,
    delay_ms: int = 60_000,
    run_at_ms: int | None = None,
    is_unique: bool = False,
    data: bytes = _DATA,
) -> DelayedJob:
    """A job that waits for its time."""
    envelope = an_envelope(job_id, data=data)
    return DelayedJob(job_id, envelope, name, delay_ms, run_at_ms, is_unique)


def a_ticket(serial: int = 1, *, producer_id: str = "p1", slot: int | None = None) -> Ticket:
    """A call's place in a producer's ring."""
    return Ticket(producer_id, serial if slot is None else slot, serial)


def a_completion(
    entry_id: bytes,
    job_id: str = "j1",
    name: str = "mail",
    *,
    value: bytes | Literal[False] = False,
) -> Completion:
    """A delivery whose handler returned."""
    return Completion(entry_id, job_id, name, attempt=1, duration_us=250, value=value)


def a_relocation(
    entry_id: bytes,
    job_id: str = "j1",
    name: str = "mail",
    *,
    backoff_ms: int = 60_000,
    data: bytes = _DATA,
) -> Relocation:
    """A delivery that failed for the first time."""
    envelope = an_envelope(job_id, attempt=1, data=data)
    return Relocation(entry_id, job_id, name, envelope, backoff_ms, next_attempt=2)
