"""Makes of a user's handler what the engine calls: a `Job` in, packed bytes out."""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from chasquimq.engine.admission import Run
from chasquimq.engine.executor import Handler as EngineHandler
from chasquimq.engine.scribe import Scribe
from chasquimq.engine.storable import storable
from chasquimq.engine.threads import Threads
from chasquimq.errors import (
    DecodeError,
    NotSupportedError,
    RateLimitError,
    UndecodableDataError,
    UnrecoverableError,
)
from chasquimq.handlers import in_thread, takes_one
from chasquimq.job import Job, job_of_run
from chasquimq.listeners import Listeners
from chasquimq.wire.codec import pack, unpack
from chasquimq.wire.envelope import Envelope

Handler: TypeAlias = Callable[[Job], Awaitable[Any]] | Callable[[Job], Any]


def checked_handler(handler: Handler) -> Handler:
    """The same handler, if it can be called with a job."""
    if isinstance(handler, str):
        msg = (
            "a handler that is a path to a file (a sandboxed processor) is not supported: pass the "
            "function itself, and run more worker processes for more cores"
        )
        raise NotSupportedError(msg)
    if not callable(handler):
        msg = f"handler must be a function of one Job, got {type(handler).__name__}"
        raise TypeError(msg)
    if not takes_one(handler):
        msg = f"handler {handler!r} must take one argument, the Job"
        raise TypeError(msg)
    return handler


def adapted(
    handler: Handler,
    *,
    threads: Threads | None,
    keeps_results: bool,
    scribe: Callable[[], Scribe],
    listeners: Listeners,
) -> EngineHandler:
    """What the engine calls. Listeners are told in turns of their own, so they delay no job."""
    listened = listeners.by_event
    own_scribe: Scribe | None = None

    async def run(run: Run) -> bytes | None:
        nonlocal own_scribe
        if own_scribe is None:
            own_scribe = scribe()  # there is none before the first job
        job = job_of_run(run, unpacked(run.envelope), own_scribe)
        if "active" in listened:
            listeners.emit("active", job, "")
        try:
            if threads is None:
                value = await handler(job)
            else:
                value = await in_thread(threads, functools.partial(handler, job))
            stored = packed(value) if keeps_results and value is not None else None
        except (RateLimitError, asyncio.CancelledError, KeyboardInterrupt, GeneratorExit):
            raise  # it goes on later, or the worker was cut: this run has not failed
        except BaseException as error:
            listeners.emit("failed", job, error, "active")
            raise
        if "completed" in listened:
            listeners.emit("completed", job, value, "active")
        return stored

    return run


def unpacked(envelope: Envelope) -> Any:  # noqa: ANN401 -- the job's data
    """The data of a job; a job whose data is not MessagePack fails for good."""
    payload = envelope.payload
    try:
        return unpack(payload if type(payload) is bytes else envelope.packed_data)
    except DecodeError as error:
        raise UndecodableDataError(error.message) from error


def packed(value: Any) -> bytes:  # noqa: ANN401 -- the handler's value
    """What is stored of a handler's value; the job of one that cannot be fails for good."""
    try:
        return storable(pack(value, name="result"))
    except (TypeError, ValueError) as error:
        # The work is done, and doing it again would not make its result storable.
        msg = f"the handler's return value cannot be stored: {error}"
        raise UnrecoverableError(msg) from error
