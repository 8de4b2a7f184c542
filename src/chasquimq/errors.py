"""Every exception we raise and every dead-letter reason, each with its stable `CMQ-*` code.

One hierarchy: all engine errors derive from `ChasquiError`, which is a `RuntimeError` because that
is what the documented API promises. Argument mistakes are not in it: they stay `ValueError` and
`TypeError`. The code is an attribute and is also printed at the end of the message, so that a log
line alone is enough to find the section of `docs/errors.md`.
"""

from enum import StrEnum
from typing import ClassVar, Self

ANOTHER_SERVER = "name another with redis_url or CHASQUI_REDIS_URL, or use embedded://"
"""What to do where there is no server; the command line has words of its own for it."""


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
    not possible before the caller's patience ended, or was refused until then.
    """


class ServerReplyError(RedisError):
    """The server understood the request and refused it; `kind` is the first word of its answer."""

    def __init__(self, message: str) -> None:
        """Split the server's own word for the error (`WRONGTYPE`, `OOM`, ...) from `message`."""
        self.kind = message.split(" ", 1)[0]
        super().__init__(message)


class ReplyTooLargeError(RedisError):
    """The answer to what may be asked again is more than we take at once.

    The same again would get the same answer: ask for less. It may have been carried out.
    """


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


class QueueBusyError(ChasquiError):
    """Jobs of the queue are in flight, so what would take them away was not done."""

    code = "CMQ-007"
    prefix = "queue busy: "


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


class HandlerError(ChasquiError):
    """A failure that a handler reports for another error: to be retried, unless it says otherwise.

    Any exception will do as well; this one is for code that decides in one place and raises in
    another. Events and dead letters name the error it was made of, not this wrapper.
    """

    code = "CMQ-010"

    def __init__(self, source: BaseException | str, *, is_unrecoverable: bool = False) -> None:
        """Wrap what went wrong: an exception, or its message."""
        super().__init__(str(source))
        self.args = (source,)
        self._is_unrecoverable = is_unrecoverable
        self.__cause__ = source if isinstance(source, BaseException) else None

    @classmethod
    def unrecoverable(cls, source: BaseException | str) -> Self:
        """One that no retry can mend: the job is dead-lettered at once."""
        return cls(source, is_unrecoverable=True)

    def is_unrecoverable(self) -> bool:
        """Whether the job is dead-lettered at once."""
        return self._is_unrecoverable

    def source_err(self) -> BaseException:
        """What it was made of; a `RuntimeError` if that was only a message."""
        source = self.args[0]
        return source if isinstance(source, BaseException) else RuntimeError(source)

    def __str__(self) -> str:
        """The text of what it was made of."""
        return self.message

    def __reduce__(self) -> tuple[object, ...]:
        """Travel as what it was made of."""
        return type(self), self.args, vars(self)


class TaskError(UnrecoverableError):
    """A job that no task of the app can be given, now or later; the text ends with the code."""

    def __str__(self) -> str:
        """The message and the code: it is read in the dead letter, far from this class."""
        return f"{self.message} [{self.code}]"


class UnknownTaskError(TaskError):
    """The app has no task of the job's name, and no fallback."""

    code = "CMQ-013"


class TaskArgumentsError(TaskError):
    """The data of a job do not fit the parameters of its task."""

    code = "CMQ-014"


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


class RateLimitError(ChasquiError):
    """Raise this in a handler that ran into a rate limit: the job is postponed, no attempt spent.

    `retry_after_ms` is how long it waits in the delayed set; left out, the worker's
    `rate_limit_duration_ms`.
    """

    code = "CMQ-101"

    def __init__(self, message: str = "rate-limited", *, retry_after_ms: int | None = None) -> None:
        """Say why, and for how long."""
        if retry_after_ms is not None and (
            isinstance(retry_after_ms, bool)
            or not isinstance(retry_after_ms, int)
            or retry_after_ms < 1
        ):
            msg = f"retry_after_ms must be a whole number of ms, 1 or more; got {retry_after_ms!r}"
            raise ValueError(msg)
        super().__init__(message)
        self.retry_after_ms = retry_after_ms

    def __reduce__(self) -> tuple[object, ...]:
        """Travel as what it was made of."""
        return _rate_limit_error, (type(self), self.message, self.retry_after_ms)


def _rate_limit_error(
    kind: type[RateLimitError], message: str, retry_after_ms: int | None
) -> RateLimitError:
    return kind(message, retry_after_ms=retry_after_ms)


class NotSupportedError(ChasquiError):
    """The caller asked for a feature that exists in other bindings and not in this library."""

    code = "CMQ-200"


class DataLossError(ChasquiError):
    """Events that a query was to read next are gone: trimmed, or deleted with their stream."""

    code = "CMQ-300"
    prefix = "data loss: "


class QualityError(ChasquiError):
    """A table of the pipeline would break one of its promises, so it was not written."""

    code = "CMQ-301"
    prefix = "quality: "


class BackfillError(ChasquiError):
    """Rows could not be added as jobs: some cannot be any, or their source is not what it was."""

    code = "CMQ-302"
    prefix = "backfill: "


class RowError(ChasquiError):
    """A row that was written to a queue cannot be a job."""

    code = "CMQ-303"
    prefix = "row: "
