"""The public names, grouped: all that `chasquimq` itself offers, loaded when the first is used."""

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as _package_version

from chasquimq.answers import JobsPage
from chasquimq.app import Chasqui
from chasquimq.arguments import BackoffLike, DelayMsLike, MissedFiresLike, RepeatLike
from chasquimq.broker.browse import JobLogs
from chasquimq.broker.inspect import Counts, JobState
from chasquimq.broker.options import CredentialProvider
from chasquimq.config import RetryConfig
from chasquimq.engine import Consumer, Producer, Scheduler
from chasquimq.engine.outcomes import JobResult, OutcomeStatus
from chasquimq.errors import (
    ChasquiError,
    ConfigError,
    ConnectionFailedError,
    DecodeError,
    DlqReason,
    EncodeError,
    HandlerError,
    JobFailedError,
    NotSupportedError,
    OutcomeUnknownError,
    QueueBusyError,
    QueueFullError,
    RateLimitError,
    RedisError,
    ReplyTooLargeError,
    ServerReplyError,
    ServerTooOldError,
    ShutdownError,
    UnrecoverableError,
    WaitForResultTimeoutError,
)
from chasquimq.events import QueueEvents
from chasquimq.flows import FlowProducer
from chasquimq.handling import Handler
from chasquimq.job import Job
from chasquimq.payloads import decode_payload, encode_payload
from chasquimq.queue import Queue
from chasquimq.recurring import describe, next_fires
from chasquimq.sync_queue import SyncQueue
from chasquimq.task import Task
from chasquimq.wire.event import QueueEvent
from chasquimq.wire.repeat import MissedFiresPolicy, RepeatableMeta, RepeatPattern
from chasquimq.wire.retry import BackoffSpec
from chasquimq.worker import Worker

try:
    __version__ = _package_version("chasquimq")
except PackageNotFoundError:  # run from a source tree that was not installed
    __version__ = "0+unknown"

__all__ = [
    # Adding and running jobs
    "Queue",
    "SyncQueue",
    "Worker",
    "Job",
    "Handler",
    "RetryConfig",
    "BackoffSpec",
    # Tasks
    "Chasqui",
    "Task",
    "FlowProducer",
    "encode_payload",
    "decode_payload",
    # Watching them
    "QueueEvents",
    "QueueEvent",
    "Counts",
    "JobState",
    "JobsPage",
    "JobLogs",
    "JobResult",
    "OutcomeStatus",
    "DlqReason",
    # Recurring jobs
    "RepeatPattern",
    "RepeatableMeta",
    "MissedFiresPolicy",
    "next_fires",
    "describe",
    # The engine's own classes: `chasquimq.engine` has the rest
    "Producer",
    "Consumer",
    "Scheduler",
    # What arguments may be
    "DelayMsLike",
    "BackoffLike",
    "RepeatLike",
    "MissedFiresLike",
    "CredentialProvider",
    # Errors
    "ChasquiError",
    "RedisError",
    "ConnectionFailedError",
    "OutcomeUnknownError",
    "ReplyTooLargeError",
    "ServerReplyError",
    "ServerTooOldError",
    "EncodeError",
    "DecodeError",
    "ConfigError",
    "ShutdownError",
    "QueueFullError",
    "QueueBusyError",
    "UnrecoverableError",
    "HandlerError",
    "RateLimitError",
    "JobFailedError",
    "WaitForResultTimeoutError",
    "NotSupportedError",
    "version",
]


def version() -> str:
    """The version of this package."""
    return __version__


# Public names present themselves under the package, not under the module they happen to live in.
for _value in [globals()[_name] for _name in __all__]:
    if isinstance(_value, type) and _value.__module__.startswith("chasquimq."):
        _value.__module__ = "chasquimq"
