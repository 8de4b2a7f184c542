"""Recurring jobs, through both doors: store, list, remove, pause, run now."""

from typing import Any

from chasquimq.arguments import (
    BackoffLike,
    MissedFiresLike,
    RepeatLike,
    checked_job_id,
    checked_limit,
    required_job_id,
)
from chasquimq.broker.call import Steps
from chasquimq.doors.frame import AsyncFrame, Frame, SyncFrame
from chasquimq.given import InstantLike
from chasquimq.job import Job
from chasquimq.recurring import recurring_job, spec_of
from chasquimq.wire.repeat import RepeatableMeta, RepeatableSpec


class _Recurring(Frame):
    def _spec(  # noqa: PLR0913 -- the documented arguments of `upsert_repeatable_job`
        self,
        name: str,
        data: Any,  # noqa: ANN401 -- the user's data
        *,
        repeat: RepeatLike,
        limit: int | None,
        start_after_ms: InstantLike | None,
        end_before_ms: InstantLike | None,
        attempts: int | None,
        backoff: BackoffLike | None,
        missed_fires: MissedFiresLike | None,
    ) -> RepeatableSpec:
        return spec_of(
            name,
            data,
            repeat=repeat,
            limit=limit,
            start_after_ms=start_after_ms,
            end_before_ms=end_before_ms,
            attempts=self._defaults.attempts if attempts is None else attempts,
            backoff=self._defaults.backoff if backoff is None else backoff,
            missed_fires=missed_fires,
        )

    def _to_upsert(self, spec: RepeatableSpec, job_id: str | None) -> Steps[int]:
        return self._producing.repeating.upsert(spec, checked_job_id(job_id))

    def _to_list(self, limit: int) -> Steps[list[RepeatableMeta]]:
        return self._producing.repeating.listed(checked_limit(limit))

    def _to_remove_spec(self, key: str) -> Steps[bool]:
        return self._producing.repeating.remove(required_job_id(key))

    def _to_pause_spec(self, key: str, *, paused: bool) -> Steps[bool]:
        return self._producing.repeating.set_paused(required_job_id(key), paused=paused)

    def _to_run_now(self, key: str) -> Steps[str | None]:
        return self._producing.run_spec_now(required_job_id(key))


class Recurring(_Recurring, AsyncFrame):
    """The part of `Queue` that recurs."""

    async def upsert_repeatable_job(  # noqa: PLR0913 -- the documented arguments
        self,
        name: str,
        data: Any,  # noqa: ANN401 -- the user's data
        *,
        repeat: RepeatLike,
        limit: int | None = None,
        start_after_ms: InstantLike | None = None,
        end_before_ms: InstantLike | None = None,
        attempts: int | None = None,
        backoff: BackoffLike | None = None,
        job_id: str | None = None,
        missed_fires: MissedFiresLike | None = None,
    ) -> Job:
        """Store a recurring job; a worker's scheduler fires it. The returned job's id is its key.

        The key follows from the name and the pattern; storing it again replaces it and counts its
        next window anew. Each window fires once, whatever the number of workers. A fired job has
        the id `<key>@<window in epoch ms>`, with `job_id` in place of the key if there is one, and
        takes `attempts` and `backoff` along. No window comes before `start_after_ms`, none after
        `end_before_ms`: epoch milliseconds or a `datetime`, a naive one in UTC.
        """
        spec = self._spec(
            name,
            data,
            repeat=repeat,
            limit=limit,
            start_after_ms=start_after_ms,
            end_before_ms=end_before_ms,
            attempts=attempts,
            backoff=backoff,
            missed_fires=missed_fires,
        )
        await self._drive(self._to_upsert(spec, job_id))
        return recurring_job(spec, data)

    async def get_repeatable_jobs(self, limit: int = 100) -> list[RepeatableMeta]:
        """Recurring jobs, the one that fires next first: when, whether paused, how often so far."""
        return await self._drive(self._to_list(limit))

    async def remove_repeatable_by_key(self, key: str) -> bool:
        """Forget a recurring job; True if there was one. Jobs it has fired stay."""
        return await self._drive(self._to_remove_spec(key))

    async def pause_repeatable(self, key: str) -> bool:
        """Let the windows of a recurring job pass without firing; False if there is no such job."""
        return await self._drive(self._to_pause_spec(key, paused=True))

    async def resume_repeatable(self, key: str) -> bool:
        """Fire again from the next window on; False if there is no such job."""
        return await self._drive(self._to_pause_spec(key, paused=False))

    async def run_repeatable_now(self, key: str) -> str | None:
        """Fire a recurring job once, besides its windows; the job's id, None without such a key.

        It counts neither against the limit nor as one of the windows.
        """
        return await self._drive(self._to_run_now(key))


class SyncRecurring(_Recurring, SyncFrame):
    """The part of `SyncQueue` that recurs."""

    def upsert_repeatable_job(  # noqa: PLR0913 -- the documented arguments
        self,
        name: str,
        data: Any,  # noqa: ANN401 -- the user's data
        *,
        repeat: RepeatLike,
        limit: int | None = None,
        start_after_ms: InstantLike | None = None,
        end_before_ms: InstantLike | None = None,
        attempts: int | None = None,
        backoff: BackoffLike | None = None,
        job_id: str | None = None,
        missed_fires: MissedFiresLike | None = None,
    ) -> Job:
        """See `Queue.upsert_repeatable_job`."""
        spec = self._spec(
            name,
            data,
            repeat=repeat,
            limit=limit,
            start_after_ms=start_after_ms,
            end_before_ms=end_before_ms,
            attempts=attempts,
            backoff=backoff,
            missed_fires=missed_fires,
        )
        self._drive(self._to_upsert(spec, job_id))
        return recurring_job(spec, data)

    def get_repeatable_jobs(self, limit: int = 100) -> list[RepeatableMeta]:
        """See `Queue.get_repeatable_jobs`."""
        return self._drive(self._to_list(limit))

    def remove_repeatable_by_key(self, key: str) -> bool:
        """See `Queue.remove_repeatable_by_key`."""
        return self._drive(self._to_remove_spec(key))

    def pause_repeatable(self, key: str) -> bool:
        """See `Queue.pause_repeatable`."""
        return self._drive(self._to_pause_spec(key, paused=True))

    def resume_repeatable(self, key: str) -> bool:
        """See `Queue.resume_repeatable`."""
        return self._drive(self._to_pause_spec(key, paused=False))

    def run_repeatable_now(self, key: str) -> str | None:
        """See `Queue.run_repeatable_now`."""
        return self._drive(self._to_run_now(key))
