"""Every exception we raise and every dead-letter reason, each with its stable `CMQ-*` code.

One hierarchy: all engine errors derive from `ChasquiError`, which is a `RuntimeError` because that
is what the documented API promises. Argument mistakes are not in it: they stay `ValueError` and
`TypeError`. The code is an attribute and is also printed at the end of the message, so that a log
line alone is enough to find the section of `docs/errors.md`.
"""

from enum import StrEnum
from typing import ClassVar


class DlqReason(StrEnum):
    """Why a job was dead-lettered. The values are what the wire and the events carry."""

    RETRIES_EXHAUSTED = "retries_exhausted"
    DECODE_FAILED = "decode_failed"
    MALFORMED = "malformed"
    OVERSIZE_PAYLOAD = "oversize_payload"
    UNRECOVERABLE = "unrecoverable"
    STALLED = "stalled"

    @property
    def code(self) -> str:
        """The stable code of this reason; `stalled` is reserved and has none of its own."""
        return _REASON_CODES[self]


_REASON_CODES = {
    DlqReason.RETRIES_EXHAUSTED: "CMQ-020",
    DlqReason.DECODE_FAILED: "CMQ-021",
    DlqReason.MALFORMED: "CMQ-022",
    DlqReason.OVERSIZE_PAYLOAD: "CMQ-023",
    DlqReason.UNRECOVERABLE: "CMQ-024",
    DlqReason.STALLED: "CMQ-020",
}


class ChasquiError(RuntimeError):
    """Base of every error this library raises on purpose."""

    code: ClassVar[str] = "CMQ-000"
    prefix: ClassVar[str] = ""

    def __init__(self, message: str) -> None:
        """Keep the bare `message`; `str()` adds the documented prefix and the code."""
        self.message = message
        super().__init__(f"{self.prefix}{message} [{self.code}]")

    def __reduce__(self) -> tuple[object, ...]:
        """Travel to other processes as the bare message: prefix and code come with the class."""
        return type(self), (self.message,)


class RedisError(ChasquiError):
    """The server could not be reached, or answered with an error."""

    code = "CMQ-001"
    prefix = "redis: "


class ConnectionFailedError(RedisError):
    """No connection could be had within the time or the attempts allowed. Nothing was sent."""


class OutcomeUnknownError(RedisError):
    """The connection broke after a request was sent and before its reply arrived.

    The server may or may not have carried it out. Sending it again would not be harmless, or was
    not possible before the caller's patience ended.
    """


class ServerReplyError(RedisError):
    """The server understood the request and refused it; `kind` is the first word of its answer."""

    def __init__(self, message: str) -> None:
        """Split the server's own word for the error (`WRONGTYPE`, `OOM`, ...) from `message`."""
        self.kind = message.split(" ", 1)[0]
        super().__init__(message)


class ServerTooOldError(RedisError):
    """The server lacks commands that no script can stand in for (before Redis 6.2, Valkey 7.2)."""


class EncodeError(ChasquiError):
    """A value of ours could not be written as MessagePack."""

    code = "CMQ-002"
    prefix = "encode: "


class DecodeError(ChasquiError):
    """Bytes that should be one of our wire shapes are not."""

    code = "CMQ-003"
    prefix = "decode: "


class ConfigError(ChasquiError):
    """A setting or an argument that the engine cannot work with."""

    code = "CMQ-004"
    prefix = "config: "


class ShutdownError(ChasquiError):
    """The object was told to stop, so the call was not carried out."""

    code = "CMQ-005"
    prefix = "shutdown: "


class QueueFullError(ChasquiError):
    """The queue holds as many jobs as `max_stream_len` allows; the job was not added."""

    code = "CMQ-006"
    prefix = "queue full: "


class UnrecoverableError(ChasquiError):
    """Raise this (or a subclass) in a handler to dead-letter the job at once, without retries.

    Its text is the bare message: it becomes the reason in events and dead letters, where nobody
    wants our prefix.
    """

    code = "CMQ-011"
    dlq_reason: ClassVar[DlqReason] = DlqReason.UNRECOVERABLE

    def __init__(self, *arguments: object) -> None:
        """Keep the message bare; like any exception it takes any arguments."""
        super().__init__(str(arguments[0]) if arguments else "")
        self.args = arguments

    def __reduce__(self) -> tuple[object, ...]:
        """Travel as exceptions do: a subclass may have arguments of its own."""
        return type(self), self.args, vars(self)


class UndecodableDataError(UnrecoverableError):
    """The data of a job is not MessagePack: no handler can be given it, now or later."""

    code = "CMQ-021"
    dlq_reason = DlqReason.DECODE_FAILED


class JobFailedError(ChasquiError):
    """The job that was waited for ended in the dead-letter queue; `reason` says why."""

    code = "CMQ-012"

    def __init__(self, job_id: str, reason: str, error: str = "") -> None:
        """Name the job, the dead-letter `reason` and the handler's last `error`, if it is known."""
        self.job_id = job_id
        self.reason = reason
        self.error = error
        detail = f": {error}" if error else ""
        super().__init__(f"job {job_id} failed ({reason}){detail}")

    def __reduce__(self) -> tuple[object, ...]:
        """Travel as what it was made of."""
        return type(self), (self.job_id, self.reason, self.error)


class WaitForResultTimeoutError(ChasquiError, TimeoutError):
    """The job did not finish within the time the caller was ready to wait. It may still run."""

    code = "CMQ-102"


class NotSupportedError(ChasquiError):
    """The caller asked for a feature that exists in other bindings and not in this library."""

    code = "CMQ-200"


class DataLossError(ChasquiError):
    """Events that a query was to read next are gone: trimmed, or deleted with their stream."""

    code = "CMQ-300"
    prefix = "data loss: "
