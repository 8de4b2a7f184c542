"""Stream-entry fields to and from values, for the main stream and the dead-letter stream.

A reply gives the fields of an entry as one flat list, `[field, value, field, value, ...]`, and that
is also how they are sent. The short field names of the wire appear here and nowhere above.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from chasquimq.errors import DecodeError
from chasquimq.wire.envelope import decode
from chasquimq.wire.record import Record

_ENVELOPE = b"d"
_NAME = b"n"
_NAMED_JOB = 4  # fields and values of the usual entry
_UNNAMED_JOB = 2

MAX_NAME_BYTES = 256
"""How long a job's name may be, in UTF-8; producers check it."""

MAX_ID_BYTES = 1_024
"""How long an id of the caller's choosing may be, in UTF-8; it becomes part of keys."""


def job_fields(envelope: bytes, name: str) -> list[bytes]:
    """The fields of a job's entry; the name has none if it is empty."""
    return [_ENVELOPE, envelope, _NAME, name.encode()] if name else [_ENVELOPE, envelope]


def parse_job_fields(fields: Sequence[bytes]) -> tuple[bytes | None, str]:
    """The envelope, or None if the entry has none, and the name, empty if it has none.

    The first of each counts; fields we do not know are ignored. Never raises: bytes of a name that
    are not UTF-8 are replaced.
    """
    if len(fields) == _NAMED_JOB and fields[0] == _ENVELOPE and fields[2] == _NAME:
        name = fields[3]
        try:
            return fields[1], name.decode()  # without the word for errors, which costs half of it
        except UnicodeDecodeError:
            return fields[1], name.decode("utf-8", "replace")
    if len(fields) == _UNNAMED_JOB and fields[0] == _ENVELOPE:
        return fields[1], ""
    found = _first_values(fields)
    return found.get(_ENVELOPE), _decode(found.get(_NAME)) or ""


@dataclass(frozen=True, slots=True)
class DeadLetter(Record):
    """An entry of the dead-letter stream: a job that was given up, and why.

    `payload` is the job's whole envelope, empty if there was none. `source_id` is the id its entry
    had in the main stream, not the id of the job. The fields from `error` to `consumer` are ours:
    the reference engine does not write them, and then they are None.
    """

    source_id: str
    reason: str
    payload: bytes
    name: str = ""
    detail: str | None = None
    error: str | None = None
    """Type and message of what the handler raised last."""
    traceback: str | None = None
    attempts: int | None = None
    """How often the job ran."""
    failed_at: int | None = None
    """When it was given up, epoch milliseconds."""
    consumer: str | None = None
    """Who gave it up."""
    dlq_id: str = ""
    """The id in the dead-letter stream; empty before it is written."""

    @property
    def job_id(self) -> str | None:
        """The id of the job, read from its envelope; None if that cannot be read."""
        try:
            return decode(self.payload).id
        except DecodeError:
            return None

    def to_dict(self) -> dict[str, Any]:
        """The documented keys of `Queue.peek_dlq`, then ours; what is not known is None."""
        return {
            "dlq_id": self.dlq_id,
            "source_id": self.source_id,
            "reason": str(self.reason),
            "detail": self.detail,
            "name": self.name,
            "payload": self.payload,
            "error": self.error,
            "traceback": self.traceback,
            "attempts": self.attempts,
            "failed_at": self.failed_at,
            "consumer": self.consumer,
            "job_id": self.job_id,
        }


def dead_letter_fields(letter: DeadLetter) -> list[bytes]:
    """The fields of a dead letter's entry, in the documented order; what is None is left out.

    Never raises: characters of a message that UTF-8 cannot carry are written as escapes.
    """
    fields = [_ENVELOPE, letter.payload]
    if letter.name:
        fields += [_NAME, _encode(letter.name)]
    fields += [b"source_id", _encode(letter.source_id), b"reason", _encode(letter.reason)]
    optional: tuple[tuple[bytes, str | int | None], ...] = (
        (b"detail", letter.detail),
        (b"error", letter.error),
        (b"traceback", letter.traceback),
        (b"attempts", letter.attempts),
        (b"failed_at", letter.failed_at),
        (b"consumer", letter.consumer),
    )
    for field, value in optional:
        if value is not None:
            fields += [field, _encode(str(value))]
    return fields


def parse_dead_letter(entry_id: str | bytes, fields: Sequence[bytes]) -> DeadLetter:
    """The dead letter in an entry, whoever wrote it; never raises, what is missing stays empty."""
    found = _first_values(fields)
    return DeadLetter(
        source_id=_decode(found.get(b"source_id")) or "",
        reason=_decode(found.get(b"reason")) or "",
        payload=found.get(_ENVELOPE, b""),
        name=_decode(found.get(_NAME)) or "",
        detail=_decode(found.get(b"detail")),
        error=_decode(found.get(b"error")),
        traceback=_decode(found.get(b"traceback")),
        attempts=_number(found.get(b"attempts")),
        failed_at=_number(found.get(b"failed_at")),
        consumer=_decode(found.get(b"consumer")),
        dlq_id=entry_id if isinstance(entry_id, str) else entry_id.decode("utf-8", "replace"),
    )


def _first_values(fields: Sequence[bytes]) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for field, value in zip(fields[::2], fields[1::2], strict=False):
        found.setdefault(field, value)
    return found


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def _decode(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode("utf-8", "replace")


def _number(raw: bytes | None) -> int | None:
    try:
        return None if raw is None else int(raw)
    except ValueError:
        return None
