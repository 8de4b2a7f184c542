"""Changing what is queued, through both doors: pause, remove, move, rewrite, drain, clean."""

from datetime import timedelta
from typing import Any

from chasquimq.arguments import (
    DelayMsLike,
    checked_limit,
    checked_state,
    delay_of,
    required_job_id,
)
from chasquimq.broker.call import Steps
from chasquimq.doors.frame import AsyncFrame, Frame, SyncFrame
from chasquimq.wire.codec import pack

_CLEANABLE = ("completed", "failed", "waiting", "delayed")


class _Upkeep(Frame):
    def _to_be_ready(self) -> Steps[None]:
        return self._producing.upkeep.ready()

    def _to_pause(self, *, paused: bool) -> Steps[bool]:
        return self._producing.upkeep.set_paused(paused=paused)

    def _to_ask_paused(self) -> Steps[bool]:
        return self._producing.upkeep.is_paused()

    def _to_cancel(self, job_id: str) -> Steps[bool]:
        return self._producing.cancel(required_job_id(job_id))

    def _to_remove(self, job_id: str) -> Steps[bool]:
        return self._producing.upkeep.remove(required_job_id(job_id))

    def _to_promote(self, job_id: str) -> Steps[bool]:
        return self._producing.upkeep.promote(required_job_id(job_id))

    def _to_reschedule(
        self, job_id: str, delay_ms: DelayMsLike | None, delay: timedelta | None
    ) -> Steps[bool]:
        if delay_ms is None and delay is None:
            msg = "reschedule needs a time: pass delay_ms or delay (0 for now)"
            raise ValueError(msg)
        due = delay_of(delay_ms, delay)
        return self._producing.upkeep.reschedule(required_job_id(job_id), *due)

    def _to_update(self, job_id: str, data: Any) -> Steps[bool]:  # noqa: ANN401 -- the user's data
        return self._producing.upkeep.update_data(required_job_id(job_id), pack(data))

    def _to_drain(self, *, delayed: bool, dry_run: bool) -> Steps[int]:
        if not isinstance(delayed, bool):
            msg = f"delayed must be True or False, got {delayed!r}"
            raise TypeError(msg)
        return self._producing.clearing.drain(delayed_too=delayed, dry_run=dry_run)

    def _to_clean(
        self, grace_ms: int, limit: int, state: str, *, dry_run: bool
    ) -> Steps[list[str]]:
        remedy = ": jobs in flight cannot be cleaned" if state == "active" else ""
        return self._producing.clearing.clean(
            checked_state(state, _CLEANABLE, remedy),
            grace_ms=checked_limit(grace_ms, "grace_ms"),
            limit=checked_limit(limit),
            dry_run=dry_run,
        )

    def _to_obliterate(self, *, force: bool, dry_run: bool) -> Steps[int]:
        return self._producing.clearing.obliterate(force=force, dry_run=dry_run)


class Upkeep(_Upkeep, AsyncFrame):
    """The part of `Queue` that changes what is queued."""

    async def wait_until_ready(self) -> None:
        """Connect, and return once the server answers; what keeps it from doing so is raised."""
        await self._drive(self._to_be_ready())

    async def pause(self) -> bool:
        """Let workers, all of them, take no more jobs; what runs goes on, and jobs can be added.

        It holds until `resume`, whoever stops, starts or crashes meanwhile: it is a key in the
        server. True if the queue was not paused before.
        """
        return await self._drive(self._to_pause(paused=True))

    async def resume(self) -> bool:
        """Let workers take jobs again. True if the queue was paused."""
        return await self._drive(self._to_pause(paused=False))

    async def is_paused(self) -> bool:
        """Whether the queue is paused."""
        return await self._drive(self._to_ask_paused())

    async def cancel_delayed(self, job_id: str) -> bool:
        """Take a delayed job, or a retry that waits for its time, out of the queue.

        True if it was still delayed: then it will not run. False if it was promoted already or
        there is no such job.
        """
        return await self._drive(self._to_cancel(job_id))

    async def remove(self, job_id: str) -> bool:
        """Take a job out of the queue that waits or is delayed, and free its id for another add.

        True if it will not run. False if it runs, has ended, or is not there: in one step it is
        either removed or read by a worker, never both. A dead letter is removed by `discard_dlq`.

        A delayed job is found by its index. One that waits is looked for from about the time its id
        was made, one with an id of your own, or without an index, through the whole queue, a page
        of a few megabytes at a time.
        """
        return await self._drive(self._to_remove(job_id))

    async def promote_job(self, job_id: str) -> bool:
        """Let a delayed job, or a retry, run now: it goes to the tail of those that wait.

        True if it was delayed. A full queue does not prevent it; the id stays taken as it was. Jobs
        without an index (over 4 KB and without an id of your own) are looked for one by one.
        """
        return await self._drive(self._to_promote(job_id))

    async def reschedule(
        self, job_id: str, *, delay_ms: DelayMsLike | None = None, delay: timedelta | None = None
    ) -> bool:
        """Give a delayed job, or a retry, another time, counted from now or as a `datetime`.

        True if it was delayed. Its id stays taken until an hour after the new time. Found as in
        `promote_job`.
        """
        return await self._drive(self._to_reschedule(job_id, delay_ms, delay))

    async def update_job_data(self, job_id: str, data: Any) -> bool:  # noqa: ANN401 -- user's data
        """Give a job that waits or is delayed other data.

        A delayed one stays due when it was; one that waits goes to the tail. Its id, name, age and
        attempts stay. False if it runs, has ended, or is not there. Found as in `remove`.
        """
        return await self._drive(self._to_update(job_id, data))

    async def drain(self, delayed: bool = True, *, dry_run: bool = False) -> int:  # noqa: FBT001, FBT002 -- the documented argument
        """Remove all jobs that wait and, unless `delayed` is False, those that are delayed.

        Returns how many; with `dry_run` how many it would be, and nothing is changed. Jobs in
        flight stay, and so do recurring ones and those added to the stream after the call began.
        Unique ids are free again. Works in pages: one that was interrupted can be called again.
        """
        return await self._drive(self._to_drain(delayed=delayed, dry_run=dry_run))

    async def clean(
        self,
        grace_ms: int = 0,
        limit: int = 1000,
        state: str = "completed",
        *,
        dry_run: bool = False,
    ) -> list[str]:
        """Remove up to `limit` jobs of a state that have been in it for `grace_ms`; their ids.

        - `completed`: what is kept of their end. Found by walking through all keys of the server.
          With a grace, results that workers of the reference engine wrote stay: they have no time.
        - `failed`: dead letters. One that holds no job is named by its id as a dead letter.
        - `waiting`: oldest first; ids are free again. Jobs in flight stay.
        - `delayed`: by when they were created, in no order; ids are free again.

        With `dry_run` nothing is changed. Active jobs cannot be cleaned: `ValueError`.
        """
        return await self._drive(self._to_clean(grace_ms, limit, state, dry_run=dry_run))

    async def obliterate(self, *, force: bool = False, dry_run: bool = False) -> int:
        """Delete every key of the queue, with all jobs, results, recurring jobs; how many keys.

        `QueueBusyError` while jobs are in flight; with `force` they are dropped too, and what their
        handlers do is not recorded. With `dry_run` nothing is changed. All jobs go in one step;
        what is kept of single jobs is then looked for among all keys of the server, so one that was
        interrupted can be called again. Workers that run go on: they make their group anew. Stop
        those who add, or part of what they add meanwhile may go as well. Keys under the queue's tag
        that no queue has are somebody else's: they stay, and are not counted.
        """
        return await self._drive(self._to_obliterate(force=force, dry_run=dry_run))


class SyncUpkeep(_Upkeep, SyncFrame):
    """The part of `SyncQueue` that changes what is queued."""

    def wait_until_ready(self) -> None:
        """See `Queue.wait_until_ready`."""
        self._drive(self._to_be_ready())

    def pause(self) -> bool:
        """See `Queue.pause`."""
        return self._drive(self._to_pause(paused=True))

    def resume(self) -> bool:
        """See `Queue.resume`."""
        return self._drive(self._to_pause(paused=False))

    def is_paused(self) -> bool:
        """See `Queue.is_paused`."""
        return self._drive(self._to_ask_paused())

    def cancel_delayed(self, job_id: str) -> bool:
        """See `Queue.cancel_delayed`."""
        return self._drive(self._to_cancel(job_id))

    def remove(self, job_id: str) -> bool:
        """See `Queue.remove`."""
        return self._drive(self._to_remove(job_id))

    def promote_job(self, job_id: str) -> bool:
        """See `Queue.promote_job`."""
        return self._drive(self._to_promote(job_id))

    def reschedule(
        self, job_id: str, *, delay_ms: DelayMsLike | None = None, delay: timedelta | None = None
    ) -> bool:
        """See `Queue.reschedule`."""
        return self._drive(self._to_reschedule(job_id, delay_ms, delay))

    def update_job_data(self, job_id: str, data: Any) -> bool:  # noqa: ANN401 -- the user's data
        """See `Queue.update_job_data`."""
        return self._drive(self._to_update(job_id, data))

    def drain(self, delayed: bool = True, *, dry_run: bool = False) -> int:  # noqa: FBT001, FBT002 -- the documented argument
        """See `Queue.drain`."""
        return self._drive(self._to_drain(delayed=delayed, dry_run=dry_run))

    def clean(
        self,
        grace_ms: int = 0,
        limit: int = 1000,
        state: str = "completed",
        *,
        dry_run: bool = False,
    ) -> list[str]:
        """See `Queue.clean`."""
        return self._drive(self._to_clean(grace_ms, limit, state, dry_run=dry_run))

    def obliterate(self, *, force: bool = False, dry_run: bool = False) -> int:
        """See `Queue.obliterate`."""
        return self._drive(self._to_obliterate(force=force, dry_run=dry_run))
