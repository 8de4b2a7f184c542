"""`Task`: a function that can be called here and now, or added to a queue as a job.

How a job's data become arguments is decided once, when the function is decorated, so that a run
costs two set comparisons. The convention, which other languages can follow too:

- a task with one parameter called `data` is given the job's data, whatever they are;
- any other task is given the data, an object, as keyword arguments;
- a first parameter annotated `Job`, or called `job` and not annotated, is the job itself, and not
  part of the data.
"""

import asyncio
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from inspect import Parameter
from typing import Any, Generic, Never, ParamSpec, Protocol, TypeVar, get_type_hints

from chasquimq.arguments import (
    BackoffLike,
    DelayMsLike,
    MissedFiresLike,
    RepeatLike,
    refuse_options,
    retry_of,
)
from chasquimq.engine.threads import Threads
from chasquimq.errors import TaskArgumentsError
from chasquimq.given import chosen
from chasquimq.handlers import in_thread, is_async
from chasquimq.job import Job
from chasquimq.queue import Queue
from chasquimq.sync_queue import SyncQueue

CallP = ParamSpec("CallP")
AddP = ParamSpec("AddP")
R_co = TypeVar("R_co", covariant=True)

_DATA = "data"


class Queues(Protocol):
    """Where a task finds the queues that its jobs go to."""

    def queue(self, name: str | None = None) -> Queue:
        """The queue of this name."""
        ...

    def sync_queue(self, name: str | None = None) -> SyncQueue:
        """The same without asyncio."""
        ...


class Task(Generic[CallP, AddP, R_co]):
    """A function under the name of its jobs, as `@app.task` makes it.

    Calling it runs the function, here and now. `add` puts a job into the task's queue.
    """

    def __init__(  # noqa: PLR0913 -- the documented arguments of `Chasqui.task`
        self,
        function: Callable[CallP, R_co],
        queues: Queues,
        *,
        name: str | None,
        queue: str | None,
        attempts: int | None,
        backoff: BackoffLike | None,
        timeout: float | timedelta | None,
    ) -> None:
        """Made by `Chasqui.task`, which says what the arguments mean."""
        self.name = _own_name(function) if name is None else name
        self.queue_name = queue
        self.timeout_s = _checked_timeout(timeout, function)
        self._shape = shape_of(function)
        self._function = function
        self._is_async = is_async(function)
        self._queues = queues
        self.retry = retry_of(attempts, backoff)
        """For its jobs that bring nothing of their own, however they were added."""
        self._defaults: dict[str, Any] = {"attempts": attempts, "backoff": backoff}
        functools.update_wrapper(self, function)

    def __repr__(self) -> str:
        """Show the name and the function behind it."""
        return f"<Task {self.name!r} {_shown(self._function)}>"

    def __call__(self, *args: CallP.args, **kwargs: CallP.kwargs) -> R_co:
        """Call the function itself, without any queue."""
        return self._function(*args, **kwargs)

    async def add(self, *args: AddP.args, **kwargs: AddP.kwargs) -> Job:
        """Add a job that will call the function with these arguments; see `Queue.add`.

        Arguments are bound to the function's parameters here, so that a missing one is a
        `TypeError` of the caller and not a dead letter. Those left out are not sent: the worker's
        own defaults apply.
        """
        return await self.options().add(*args, **kwargs)

    def add_sync(self, *args: AddP.args, **kwargs: AddP.kwargs) -> Job:
        """`add` for code without asyncio; blocks until the server has the job."""
        return self.options().add_sync(*args, **kwargs)

    def options(  # noqa: PLR0913 -- the documented arguments of `Queue.add`
        self,
        *,
        delay_ms: DelayMsLike | None = None,
        delay: timedelta | None = None,
        attempts: int | None = None,
        backoff: BackoffLike | None = None,
        job_id: str | None = None,
        repeat: RepeatLike | None = None,
        missed_fires: MissedFiresLike | None = None,
        **unsupported: Never,
    ) -> "Adding[AddP]":
        """The same task with options of `Queue.add`: `await task.options(delay=...).add(...)`."""
        if unsupported:
            refuse_options("options", unsupported)
        asked = chosen(
            delay_ms=delay_ms,
            delay=delay,
            attempts=attempts,
            backoff=backoff,
            job_id=job_id,
            repeat=repeat,
            missed_fires=missed_fires,
        )
        return Adding(self, self._queues, self._defaults | asked)

    def data_of(self, *args: AddP.args, **kwargs: AddP.kwargs) -> Any:  # noqa: ANN401 -- job data
        """The data of a job that will call the function with these arguments."""
        return self._shape.data_of(args, kwargs)

    async def run(self, job: Job, threads: Threads) -> Any:  # noqa: ANN401 -- the task's value
        """Do the job; a plain function runs in one of `threads`.

        Raises `TaskArgumentsError` for data that do not fit, `TimeoutError` after the task's
        `timeout`, and whatever the function raises.
        """
        args, kwargs = self._shape.arguments_of(job)
        if not self._is_async:
            return await in_thread(threads, functools.partial(self._function, *args, **kwargs))
        running: Any = self._function(*args, **kwargs)
        if self.timeout_s is None:
            return await running
        limit = asyncio.timeout(self.timeout_s)
        try:
            async with limit:
                return await running
        except TimeoutError:
            if not limit.expired():
                raise
            msg = f"task {self.name!r} was stopped: it ran for more than {self.timeout_s:g} s"
            raise TimeoutError(msg) from None


class Adding(Generic[AddP]):
    """A task together with the options that its next jobs are added with."""

    def __init__(self, task: Task[Any, AddP, Any], queues: Queues, options: dict[str, Any]) -> None:
        """Made by `Task.options`."""
        self._task = task
        self._queues = queues
        self._options = options

    def __repr__(self) -> str:
        """Show the task and the options."""
        return f"<Adding {self._task.name!r} {self._options}>"

    async def add(self, *args: AddP.args, **kwargs: AddP.kwargs) -> Job:
        """As `Task.add`, with these options."""
        data = self._task.data_of(*args, **kwargs)
        queue = self._queues.queue(self._task.queue_name)
        return await queue.add(self._task.name, data, **self._options)

    def add_sync(self, *args: AddP.args, **kwargs: AddP.kwargs) -> Job:
        """As `Task.add_sync`, with these options."""
        data = self._task.data_of(*args, **kwargs)
        queue = self._queues.sync_queue(self._task.queue_name)
        return queue.add(self._task.name, data, **self._options)


@dataclass(frozen=True, slots=True)
class Shape:
    """What a task's function wants to be called with."""

    signature: inspect.Signature
    """Of what comes from the data: without the parameter for the job."""
    takes_job: bool
    takes_data: bool
    """One parameter for all of the data."""
    required: frozenset[str]
    allowed: frozenset[str]
    takes_any: bool
    """Further keywords are welcome: `**kwargs`."""

    def data_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
        """The data that stand for these arguments; `TypeError` as a call would raise it."""
        bound = self.signature.bind(*args, **kwargs)
        if self.takes_data:
            bound.apply_defaults()
            return bound.arguments[_DATA]
        data: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            is_rest = self.signature.parameters[name].kind is Parameter.VAR_KEYWORD
            data |= value if is_rest else {name: value}
        return data

    def arguments_of(self, job: Job) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What to call the function with for a job, or `TaskArgumentsError`."""
        args: tuple[Any, ...] = (job,) if self.takes_job else ()
        if self.takes_data:
            return (*args, job.data), {}
        if self.takes_job and not self.allowed and not self.takes_any:
            return args, {}  # it looks into the job by itself
        data = {} if job.data is None else job.data
        if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
            kind = type(job.data).__name__
            msg = (
                f"the data of a {job.name!r} job are its arguments by name, {self.signature}, and "
                f"must be an object; got {kind}: add it with one, or call the parameter 'data'"
            )
            raise TaskArgumentsError(msg)
        given = data.keys()
        if not self.required <= given or not (self.takes_any or given <= self.allowed):
            raise TaskArgumentsError(self._misfit(job.name, set(given)))
        return args, data

    def _misfit(self, name: str, given: set[str]) -> str:
        missing = sorted(self.required - given)
        unknown = [] if self.takes_any else sorted(given - self.allowed)
        problems = [
            f"{word} {', '.join(map(repr, names))}"
            for word, names in (("lack", missing), ("have an unknown", unknown))
            if names
        ]
        return (
            f"the data of this {name!r} job {' and '.join(problems)}: its task takes "
            f"{self.signature}; correct the task and replay, or add the job anew"
        )


def shape_of(function: Callable[..., object]) -> Shape:
    """The shape of a function; `TypeError` if no data could ever be given to it."""
    if not callable(function) or isinstance(function, type):
        msg = f"a task is a function, got {function!r}: decorate a function"
        raise TypeError(msg)
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    annotations = _annotations(function)
    is_job = [_is_job(each, annotations) for each in parameters]
    takes_job = bool(is_job) and is_job[0]
    if any(is_job[1:]):
        msg = f"the Job must be the first parameter of {_shown(function)}: move it there"
        raise TypeError(msg)
    own = parameters[takes_job:]
    for each in own:
        if each.kind in {Parameter.POSITIONAL_ONLY, Parameter.VAR_POSITIONAL}:
            msg = (
                f"{_shown(function)} cannot be a task: a job gives its arguments by name, and "
                f"{str(each)!r} cannot be named; make it an ordinary parameter"
            )
            raise TypeError(msg)
    named = [each for each in own if each.kind is not Parameter.VAR_KEYWORD]
    return Shape(
        signature=inspect.Signature(own),
        takes_job=takes_job,
        takes_data=[each.name for each in own] == [_DATA] and named == own,
        required=frozenset(each.name for each in named if each.default is Parameter.empty),
        allowed=frozenset(each.name for each in named),
        takes_any=named != own,
    )


def _own_name(function: Callable[..., object]) -> str:
    name: str | None = getattr(function, "__name__", None)
    if name is None:
        msg = f'{function!r} has no name of its own: use @app.task("name")'
        raise TypeError(msg)
    return name


def _shown(function: Callable[..., object]) -> str:
    name = getattr(function, "__qualname__", None)
    return f"{function.__module__}.{name}" if name else repr(function)


def _annotations(function: Callable[..., object]) -> dict[str, Any]:
    """The annotations as types, where they can be had."""
    try:
        return get_type_hints(function)
    except Exception:  # noqa: BLE001 -- names that exist for type checkers only, and whatever else
        return {}


def _is_job(parameter: Parameter, annotations: dict[str, Any]) -> bool:
    annotation = annotations.get(parameter.name, parameter.annotation)
    if annotation is Parameter.empty:
        return parameter.name == "job"
    if isinstance(annotation, str):
        return annotation.rpartition(".")[2] == Job.__name__
    return annotation is Job


def _checked_timeout(
    timeout: float | timedelta | None, function: Callable[..., object]
) -> float | None:
    if timeout is None:
        return None
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        msg = f"timeout must be seconds above 0 or a timedelta, got {timeout!r}"
        raise ValueError(msg)
    if not is_async(function):
        msg = (
            f"timeout={timeout!r} cannot be kept for the plain function {_shown(function)}: "
            "a thread cannot be interrupted; make it a coroutine function, or leave timeout out"
        )
        raise TypeError(msg)
    return float(seconds)
