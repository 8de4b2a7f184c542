"""`Job`: what a handler receives and what `Queue.add` returns."""

from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from chasquimq.engine.admission import Run
from chasquimq.engine.note import Note
from chasquimq.engine.scribe import Scribe
from chasquimq.errors import ChasquiError

_FULL = 100


class JobQueue(Protocol):
    """The queue a job came from, as far as the job needs it."""

    async def wait_for_result(self, job_id: str, *, timeout: float, poll_interval: float) -> Any:  # noqa: ANN401
        """Wait until the job has ended."""
        ...

    async def get_job_state(self, job_id: str) -> str:
        """Where the job is."""
        ...

    async def remove(self, job_id: str) -> bool:
        """Take the job out, if it waits or is delayed."""
        ...

    async def retry_job(self, job_id: str) -> bool:
        """Send the job round again, if it is a dead letter."""
        ...

    async def update_job_data(self, job_id: str, data: Any) -> bool:  # noqa: ANN401
        """Replace the job's data, if it waits or is delayed."""
        ...


@dataclass(slots=True)
class Job:
    """One unit of work.

    In a handler `attempt` is the number of this run, from 1. On a job returned by `add` it is 0.
    Changing an attribute changes nothing in Redis. What a job can be asked to do depends on where
    it comes from: a handler's job takes progress, log lines and `discard`; one that a `Queue`
    returned takes the rest.
    """

    id: str
    name: str
    data: Any
    attempt: int = 0
    created_at_ms: int = 0
    deduplicated: bool = field(default=False, compare=False)
    """True if `add` found the id taken: the job that is queued is the earlier one, not this."""
    _queue: JobQueue | None = field(default=None, repr=False, compare=False)
    progress: int | None = field(default=None, compare=False)
    """The last progress that this object knows of: what this handler said, or what was stored when
    `Queue.get_job` looked. `queue.get_job_progress` looks again."""
    _run: Run | None = field(default=None, repr=False, compare=False)
    _scribe: Scribe | None = field(default=None, repr=False, compare=False)

    def __reduce__(self) -> tuple[object, ...]:
        """A copy, here or in another process, is on its own: it has neither queue nor worker."""
        values = (self.id, self.name, self.data, self.attempt, self.created_at_ms)
        return Job, (*values, self.deduplicated, None, self.progress)

    @property
    def attempts_made(self) -> int:
        """The same as `attempt`."""
        return self.attempt

    def to_dict(self) -> dict[str, Any]:
        """What there is to show, as a plain dict; `data` is not copied."""
        return {
            "id": self.id,
            "name": self.name,
            "data": self.data,
            "attempt": self.attempt,
            "created_at_ms": self.created_at_ms,
            "deduplicated": self.deduplicated,
            "progress": self.progress,
        }

    # In a handler

    def update_progress(self, progress: int) -> Note[None]:
        """Say how far this run is, 0 to 100. Sent at once; await it to know that it is stored.

        In a thread, `wait()` does what `await` does. Kept for `result_ttl_ms`, told as event
        `progress`, and readable before the job is seen completed.
        """
        run, scribe = self._at_work("update_progress")
        if isinstance(progress, bool) or not isinstance(progress, int):
            msg = f"progress must be an int from 0 to 100, got {type(progress).__name__}"
            raise TypeError(msg)
        if not 0 <= progress <= _FULL:
            msg = f"progress must be from 0 to 100, got {progress}"
            raise ValueError(msg)
        self.progress = progress
        return scribe.progress(run, progress, self)

    def log(self, line: str) -> Note[int]:
        """Add a line to the job's log. Sent at once; await it for the number of lines kept.

        Lines over `log_max_line_bytes` are cut, with a mark. Lines of all runs stand in one log,
        which lives for `result_ttl_ms` after the last. After a broken connection a line may be
        there twice.
        """
        run, scribe = self._at_work("log")
        if not isinstance(line, str):
            msg = f"a log line must be a str, got {type(line).__name__}: format it first"
            raise TypeError(msg)
        return scribe.log(run, line)

    def discard(self) -> None:
        """Want no other run after this one: if it fails, the job is dead-lettered at once.

        Of this run only: a worker that dies forgets it.
        """
        run, _ = self._at_work("discard")
        run.is_discarded = True

    # On a job that a queue returned

    # Plain functions that return coroutines: without asyncio nobody would await the refusal.

    def wait_for_result(
        self, *, timeout: float = 30.0, poll_interval: float = 0.1
    ) -> Coroutine[Any, Any, Any]:
        """What the handler returned, once it has.

        None if it returned None or the worker stores no results. Raises `JobFailedError` when the
        job is dead-lettered, `TimeoutError` when it has not ended after `timeout` seconds. The wait
        is ended by the job's events; `poll_interval` is how soon we look without one.
        """
        if self._queue is None:
            msg = (
                "this job cannot wait for its result: only one that Queue.add returned can, not "
                "one in a handler, of a SyncQueue (use queue.wait_for_result(job.id)) or one that "
                "recurs"
            )
            raise ChasquiError(msg)
        return self._queue.wait_for_result(self.id, timeout=timeout, poll_interval=poll_interval)

    def get_state(self) -> Coroutine[Any, Any, str]:
        """Where the job is: see `Queue.get_job_state`."""
        return self._from("get_state", "get_job_state").get_job_state(self.id)

    def remove(self) -> Coroutine[Any, Any, bool]:
        """Take the job out of the queue, if it waits or is delayed: see `Queue.remove`."""
        return self._from("remove", "remove").remove(self.id)

    def retry(self) -> Coroutine[Any, Any, bool]:
        """Send the job round again, if it is a dead letter: see `Queue.retry_job`."""
        return self._from("retry", "retry_job").retry_job(self.id)

    def update_data(self, data: Any) -> Coroutine[Any, Any, bool]:  # noqa: ANN401 -- the user's
        """Replace the job's data, if it waits or is delayed: see `Queue.update_job_data`."""
        return self._update(self._from("update_data", "update_job_data"), data)

    def is_completed(self) -> Coroutine[Any, Any, bool]:
        """Whether it has completed; known only while its outcome is kept."""
        return self._is(self._from("is_completed", "get_job_state"), "completed")

    def is_failed(self) -> Coroutine[Any, Any, bool]:
        """Whether it is a dead letter."""
        return self._is(self._from("is_failed", "get_job_state"), "failed")

    def is_active(self) -> Coroutine[Any, Any, bool]:
        """Whether a worker has it."""
        return self._is(self._from("is_active", "get_job_state"), "active")

    def is_waiting(self) -> Coroutine[Any, Any, bool]:
        """Whether it waits for a worker."""
        return self._is(self._from("is_waiting", "get_job_state"), "waiting")

    def is_delayed(self) -> Coroutine[Any, Any, bool]:
        """Whether it waits for its time."""
        return self._is(self._from("is_delayed", "get_job_state"), "delayed")

    async def _update(self, queue: JobQueue, data: Any) -> bool:  # noqa: ANN401 -- the user's data
        if not await queue.update_job_data(self.id, data):
            return False
        self.data = data
        return True

    async def _is(self, queue: JobQueue, state: str) -> bool:
        return await queue.get_job_state(self.id) == state

    def _at_work(self, what: str) -> tuple[Run, Scribe]:
        if self._run is None or self._scribe is None:
            msg = f"{what} is for the job that a handler was given: call it there, while it runs"
            raise ChasquiError(msg)
        return self._run, self._scribe

    def _from(self, what: str, method: str) -> JobQueue:
        if self._queue is None:
            msg = (
                f"this job cannot {what}: only one that a Queue returned can, not one in a handler "
                f"or of a SyncQueue; use queue.{method}(job.id)"
            )
            raise ChasquiError(msg)
        return self._queue


# The two kinds of job that there are many of, filled without a call of the class, which would take
# as much again.
_new = object.__new__


def job_of_run(run: Run, data: Any, scribe: Scribe) -> Job:  # noqa: ANN401 -- the user's data
    """What a handler is given."""
    job = _new(Job)
    job.id, _, job.created_at_ms, _, _ = run.envelope
    job.name, job.data, job.attempt = run.name, data, run.attempt
    job.deduplicated, job._queue, job.progress = False, None, None  # noqa: SLF001 -- our own
    job._run, job._scribe = run, scribe  # noqa: SLF001
    return job


def job_added(
    job_id: str,
    created_at_ms: int,
    name: str,
    data: Any,  # noqa: ANN401 -- the user's data
    queue: JobQueue | None,
) -> Job:
    """What adding a fresh job returns."""
    job = _new(Job)
    job.id, job.name, job.data = job_id, name, data
    job.attempt, job.created_at_ms, job.deduplicated = 0, created_at_ms, False
    job._queue, job.progress = queue, None  # noqa: SLF001 -- our own
    job._run = job._scribe = None  # noqa: SLF001
    return job


def jobs_added(
    described: Iterable[tuple[str, str, Any]], created_at_ms: int, queue: JobQueue | None
) -> list[Job]:
    """What a bulk of fresh jobs returns, of the id, name and data of each."""
    return [job_added(job_id, created_at_ms, name, data, queue) for job_id, name, data in described]
