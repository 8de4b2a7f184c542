"""The engine: the roles that run, the decisions they take, and the engine-level API.

Public are the names in `__all__`: jobs of bytes, settings as values, every part of a worker on its
own. `chasquimq.Queue` and `chasquimq.Worker` are the friendlier doors to the same rooms.
"""

from chasquimq.config import (
    ConsumerConfig,
    ProducerConfig,
    PromoterConfig,
    RetryConfig,
    SchedulerConfig,
)
from chasquimq.engine.consumer import Consumer, Handler
from chasquimq.engine.job import Job
from chasquimq.engine.options import AddOptions, JobId
from chasquimq.engine.producer import Producer
from chasquimq.engine.repeatable import RepeatableSpec
from chasquimq.engine.standalone import Promoter, Scheduler
from chasquimq.errors import DlqReason, HandlerError, UnrecoverableError
from chasquimq.wire.entry import DeadLetter as DlqEntry
from chasquimq.wire.repeat import MissedFiresPolicy, RepeatableMeta, RepeatPattern
from chasquimq.wire.retry import BackoffKind, BackoffSpec
from chasquimq.wire.retry import RetryOverride as JobRetryOverride

__all__ = [
    # What runs
    "Producer",
    "Consumer",
    "Promoter",
    "Scheduler",
    # How it runs
    "ProducerConfig",
    "ConsumerConfig",
    "PromoterConfig",
    "SchedulerConfig",
    "RetryConfig",
    # Jobs
    "Job",
    "JobId",
    "Handler",
    "AddOptions",
    "JobRetryOverride",
    "BackoffSpec",
    "BackoffKind",
    # Recurring jobs
    "RepeatableSpec",
    "RepeatableMeta",
    "RepeatPattern",
    "MissedFiresPolicy",
    # Failure
    "HandlerError",
    "UnrecoverableError",
    "DlqEntry",
    "DlqReason",
]

# As in the package above: public names present themselves under the module users import.
for _value in (Producer, Consumer, Promoter, Scheduler, Job, AddOptions, RepeatableSpec):
    _value.__module__ = "chasquimq.engine"
