"""`Chasqui`: the tasks of a program by name, their queues, and workers that run them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import timedelta
from types import MappingProxyType, TracebackType
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeAlias, TypeVar, overload

from chasquimq.arguments import BackoffLike, checked_name
from chasquimq.broker.options import CredentialProvider
from chasquimq.broker.url import parse_url
from chasquimq.engine.threads import Threads
from chasquimq.errors import UnknownTaskError
from chasquimq.given import queue_name
from chasquimq.handlers import in_thread, is_async, takes_one
from chasquimq.handling import Handler
from chasquimq.job import Job
from chasquimq.queue import Queue
from chasquimq.sync_queue import SyncQueue
from chasquimq.task import Task
from chasquimq.wire.retry import RetryOverride
from chasquimq.worker import Worker

P = ParamSpec("P")
R = TypeVar("R")

Lifespan: TypeAlias = Callable[[], AsyncIterator[None]]

_MOST_NAMES_SHOWN = 20


class Chasqui:
    """A registry of tasks: job names on one side, functions on the other.

        app = Chasqui("emails")

        @app.task(attempts=5)
        async def welcome(to: str) -> None: ...

        await welcome.add("ada@example.com")   # in one process
        await app.worker().run()               # in another: or `chasqui worker module:app`

    A worker of the app runs whatever job of its queue has the name of a task. A job of another name
    is dead-lettered at once, with the names there are, unless there is a `fallback`.
    """

    def __init__(
        self,
        queue: str = "default",
        *,
        redis_url: str | None = None,
        tls: bool = False,
        credential_provider: CredentialProvider | None = None,
    ) -> None:
        """`queue` is where tasks go that name no other; the rest is as for `Queue`."""
        self.default_queue = queue_name(queue)
        self.redis_url = redis_url
        """Where the queues are. Change it before anything is connected, or not at all."""
        parse_url(redis_url, tls=tls)  # a mistake is told here, not by the first `add`
        self._connection: dict[str, Any] = {"tls": tls, "credential_provider": credential_provider}
        self._tasks: dict[str, Task[..., ..., Any]] = {}
        self._fallback: Handler | None = None
        self._queues: dict[str, Queue] = {}
        self._sync_queues: dict[str, SyncQueue] = {}
        self._life = _Life()

    def __repr__(self) -> str:
        """Show the queues and how many tasks there are."""
        return f"<Chasqui {', '.join(self.queue_names)}, {len(self._tasks)} tasks>"

    @property
    def tasks(self) -> Mapping[str, Task[..., ..., Any]]:
        """Every task by its name."""
        return MappingProxyType(self._tasks)

    @property
    def retry_by_name(self) -> Mapping[str, RetryOverride]:
        """What tasks say about retries, by their name; those that say nothing are left out."""
        return {name: task.retry for name, task in self._tasks.items() if task.retry is not None}

    @property
    def has_fallback(self) -> bool:
        """Whether jobs of any name can be run."""
        return self._fallback is not None

    @property
    def queue_names(self) -> list[str]:
        """Every queue that a task of this app goes to; the default one, where there is no task."""
        named = dict.fromkeys(
            task.queue_name or self.default_queue for task in self._tasks.values()
        )
        return list(named) or [self.default_queue]

    @overload
    def task(self, name: Callable[Concatenate[Job, P], R]) -> Task[Concatenate[Job, P], P, R]: ...

    @overload
    def task(self, name: Callable[P, R]) -> Task[P, P, R]: ...

    @overload
    def task(
        self,
        name: str | None = None,
        *,
        queue: str | None = None,
        attempts: int | None = None,
        backoff: BackoffLike | None = None,
        timeout: float | timedelta | None = None,
    ) -> "_Decorator": ...

    def task(
        self,
        name: str | Callable[..., Any] | None = None,
        *,
        queue: str | None = None,
        attempts: int | None = None,
        backoff: BackoffLike | None = None,
        timeout: float | timedelta | None = None,
    ) -> Any:
        """Make a function a task: `@app.task`, `@app.task("name")` or `@app.task(attempts=3)`.

        The job's name is the function's, unless `name` says otherwise; `queue` is where its jobs
        go, if not to the app's. `attempts` and `backoff` hold for every job of this name that
        brings none of its own, however it was added. `timeout`, in seconds, ends a run of a
        coroutine function; that is a failure like any other. Raises `ValueError` for a name that
        is taken, `TypeError` for a function that cannot be given arguments by name.
        """
        if queue is not None:
            queue_name(queue)

        def register(function: Callable[..., Any]) -> Task[..., ..., Any]:
            made: Task[..., ..., Any] = Task(
                function, self, name=None if callable(name) else name, queue=queue,
                attempts=attempts, backoff=backoff, timeout=timeout,
            )  # fmt: skip
            if not checked_name(made.name):
                msg = f"the name of {made!r} is empty: give the task a name"
                raise ValueError(msg)
            if made.name in self._tasks:
                msg = (
                    f"the name {made.name!r} is taken by {self._tasks[made.name]!r}: give one of "
                    'them another, with @app.task("name")'
                )
                raise ValueError(msg)
            self._tasks[made.name] = made
            return made

        return register(name) if callable(name) else register

    def fallback(self, function: Handler) -> Handler:
        """Let a function of one `Job`, plain or async, run the jobs that no task is named for."""
        if self._fallback is not None:
            msg = f"there is a fallback already, {self._fallback!r}: an app has one"
            raise ValueError(msg)
        if not callable(function) or not takes_one(function):
            msg = f"fallback {function!r} must be a function of one argument, the Job"
            raise TypeError(msg)
        self._fallback = function
        return function

    def lifespan(self, function: Lifespan) -> Lifespan:
        """Let an async generator prepare what tasks need, `yield` once, and tidy up after.

        It runs once per process and not per worker: up to its `yield` before the first job is read,
        the rest after the last one is settled. Several are entered in the order they were given and
        left in the reverse. What one raises before its `yield` ends `Worker.run`; after a
        `kill -9` nothing is tidied up.
        """
        self._life.add(function)
        return function

    def queue(self, name: str | None = None) -> Queue:
        """The queue of this name, or the app's; made once and shared."""
        name = name or self.default_queue
        if name not in self._queues:
            self._queues[name] = Queue(name, redis_url=self.redis_url, **self._connection)
        return self._queues[name]

    def sync_queue(self, name: str | None = None) -> SyncQueue:
        """The same for code without asyncio."""
        name = name or self.default_queue
        if name not in self._sync_queues:
            self._sync_queues[name] = SyncQueue(name, redis_url=self.redis_url, **self._connection)
        return self._sync_queues[name]

    def worker(self, queue: str | None = None, **options: Any) -> Worker:  # noqa: ANN401
        """A `Worker` for one queue of this app; `options` are those of `Worker`.

        It runs any task of the app, wherever that task's own jobs go. Its lifespan begins with
        `run`, and is shared by all workers of this app that run in one event loop.
        """
        given = {"redis_url": self.redis_url, **self._connection, **options}
        return _AppWorker(self, self._life, queue or self.default_queue, given)

    async def run_job(self, job: Job, threads: Threads) -> Any:  # noqa: ANN401 -- the task's value
        """Give a job to the task of its name; plain functions run in `threads`."""
        task = self._tasks.get(job.name)
        if task is not None:
            return await task.run(job, threads)
        if self._fallback is None:
            raise UnknownTaskError(_unknown(job.name, sorted(self._tasks)))
        if is_async(self._fallback):
            return await self._fallback(job)
        fallback = self._fallback
        return await in_thread(threads, lambda: fallback(job))

    async def close(self) -> None:
        """Drop the connections of the queues. Idempotent; a later `add` opens others."""
        for queue in self._queues.values():
            await queue.close()
        for sync_queue in self._sync_queues.values():
            await asyncio.to_thread(sync_queue.close)

    async def __aenter__(self) -> Self:
        """The app itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        await self.close()


class _Decorator(Protocol):
    """What `@app.task(...)` gives."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[Job, P], R], /
    ) -> Task[Concatenate[Job, P], P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, P, R]: ...


class _AppWorker(Worker):
    """A worker whose handler is the app, and which is inside the app's lifespan while it runs."""

    def __init__(self, app: Chasqui, life: "_Life", queue: str, options: dict[str, Any]) -> None:
        self._app = app
        self._life = life
        self._threads: Threads | None = None
        super().__init__(queue, self._handle, **options)

    async def _handle(self, job: Job) -> Any:  # noqa: ANN401 -- the task's value
        assert self._threads is not None  # noqa: S101 -- there are no jobs outside `_work`
        return await self._app.run_job(job, self._threads)

    async def _work(self) -> None:
        async with self._life.lived():
            # Not before: a task may be registered after its worker was made.
            self._retry_by_name = self._app.retry_by_name
            self._threads = Threads(self._config.concurrency, name=f"job-{self.name}")
            try:
                await super()._work()
            finally:
                self._threads.close()


class _Life:
    """The lifespans of an app, entered by its first worker and left by its last.

    They are entered and left in one task of their own, because a `TaskGroup` or a cancel scope held
    across the `yield` demands it, and the first worker need not be the last.
    """

    def __init__(self) -> None:
        self._spans: list[Callable[[], AbstractAsyncContextManager[None]]] = []
        # Below: of the event loop in which workers run.
        self._users = 0
        self._task: asyncio.Task[None] | None = None
        self._is_over = asyncio.Event()
        self._is_ready = asyncio.Event()

    def add(self, span: Lifespan) -> None:
        self._spans.append(asynccontextmanager(span))

    @asynccontextmanager
    async def lived(self) -> AsyncIterator[None]:
        """Be inside all of them; waits for whoever is entering, or leaving, them."""
        if not self._spans:
            yield
            return
        while self._task is not None and self._is_over.is_set():
            await asyncio.wait([self._task])
        if self._task is None:
            self._is_over, self._is_ready = asyncio.Event(), asyncio.Event()
            self._task = asyncio.get_running_loop().create_task(self._live(), name="lifespan")
        task, self._users = self._task, self._users + 1
        try:
            ready = asyncio.ensure_future(self._is_ready.wait())
            await asyncio.wait([ready, task], return_when=asyncio.FIRST_COMPLETED)
            ready.cancel()
            if task.done():
                task.result()
            yield
        finally:
            self._users -= 1
            if not self._users:
                self._is_over.set()
                await asyncio.wait([task])
                # Last of all, so that its error is the one seen; that of the body is its context.
                task.result()

    async def _live(self) -> None:
        try:
            async with AsyncExitStack() as stack:
                for span in self._spans:
                    await stack.enter_async_context(span())
                self._is_ready.set()
                await self._is_over.wait()
        finally:
            self._task = None


def _unknown(name: str, known: list[str]) -> str:
    listed = ", ".join(known[:_MOST_NAMES_SHOWN]) or "none at all"
    more = f" and {len(known) - _MOST_NAMES_SHOWN} more" if len(known) > _MOST_NAMES_SHOWN else ""
    return (
        f"no task is named {name!r}; this app has {listed}{more}: correct the name where the job "
        "is added, or deploy the task, then replay"
    )
