"""`Job`: what a handler receives and what `Queue.add` returns."""

from dataclasses import dataclass, field
from typing import Any, Protocol

from chasquimq.errors import ChasquiError


class ResultSource(Protocol):
    """Where a job added by this process can ask for its result."""

    async def wait_for_result(self, job_id: str, *, timeout: float, poll_interval: float) -> Any:  # noqa: ANN401
        """Wait until the job has ended."""
        ...


@dataclass(slots=True)
class Job:
    """One unit of work.

    In a handler `attempt` is the number of this run, from 1. On a job returned by `add` it is 0.
    Changing a job changes nothing in Redis.
    """

    id: str
    name: str
    data: Any
    attempt: int = 0
    created_at_ms: int = 0
    deduplicated: bool = field(default=False, compare=False)
    """True if `add` found the id taken: the job that is queued is the earlier one, not this."""
    _queue: ResultSource | None = field(default=None, repr=False, compare=False)

    def __reduce__(self) -> tuple[object, ...]:
        """A copy, here or in another process, is on its own: it cannot wait for its result."""
        values = (self.id, self.name, self.data, self.attempt, self.created_at_ms)
        return Job, (*values, self.deduplicated)

    @property
    def attempts_made(self) -> int:
        """The same as `attempt`."""
        return self.attempt

    async def wait_for_result(self, *, timeout: float = 30.0, poll_interval: float = 0.1) -> Any:  # noqa: ANN401
        """What the handler returned, once it has.

        None if it returned None or the worker stores no results. Raises `JobFailedError` when the
        job is dead-lettered, `TimeoutError` when it has not ended after `timeout` seconds. The wait
        is ended by the job's events; `poll_interval` is how soon we look without one.
        """
        if self._queue is None:
            msg = (
                "this job cannot wait for its result: only one that Queue.add returned can, not "
                "one in a handler, of a SyncQueue (use queue.wait_for_result) or one that recurs"
            )
            raise ChasquiError(msg)
        return await self._queue.wait_for_result(
            self.id, timeout=timeout, poll_interval=poll_interval
        )
