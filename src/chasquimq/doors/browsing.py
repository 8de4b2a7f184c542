"""Looking at a queue, through both doors: counts, single jobs, lists, what jobs said."""

from collections.abc import Sequence

from chasquimq.answers import JobsPage, stored_job, stored_jobs
from chasquimq.arguments import checked_limit, checked_state, required_job_id
from chasquimq.broker import browse
from chasquimq.broker.browse import JobLogs
from chasquimq.broker.call import Steps
from chasquimq.broker.inspect import Counts, JobState, counts, locate
from chasquimq.doors.frame import AsyncFrame, Frame, SyncFrame
from chasquimq.job import Job

STATES = (
    JobState.WAITING,
    JobState.ACTIVE,
    JobState.DELAYED,
    JobState.COMPLETED,
    JobState.FAILED,
)


class _Browsing(Frame):
    def _to_count(self) -> Steps[Counts]:
        depths: Counts = yield counts(self._producing.keys, self._group)
        return depths

    def _to_count_states(self, states: Sequence[str]) -> Steps[dict[str, int]]:
        return self._counted(_known(states))

    def _counted(self, states: Sequence[JobState]) -> Steps[dict[str, int]]:
        now: Counts = yield counts(self._producing.keys, self._group)
        depths = {
            JobState.WAITING: now.waiting,
            JobState.ACTIVE: now.active,
            JobState.DELAYED: now.delayed,
            JobState.FAILED: now.dead,
        }
        if JobState.COMPLETED in states:
            depths[JobState.COMPLETED] = yield from browse.count_completed(self._producing.keys)
        return {str(state): depths[state] for state in states}

    def _to_count_one(self, state: JobState) -> Steps[int]:
        depths = yield from self._counted([state])
        return depths[state]

    def _to_count_ahead(self) -> Steps[int]:
        now: Counts = yield counts(self._producing.keys, self._group)
        return now.waiting + now.delayed

    def _to_find(self, job_id: str) -> Steps[Job | None]:
        return self._found(required_job_id(job_id))

    def _found(self, job_id: str) -> Steps[Job | None]:
        located = yield from locate(self._producing.keys, self._group, job_id)
        job = stored_job(located, self._source())
        if job is not None:
            job.progress = yield from self._progress(job_id)
        return job

    def _to_locate(self, job_id: str) -> Steps[JobState]:
        return self._state(required_job_id(job_id))

    def _state(self, job_id: str) -> Steps[JobState]:
        return (yield from locate(self._producing.keys, self._group, job_id)).state

    def _to_list_jobs(
        self, states: Sequence[str] | str | None, start: int, end: int, *, asc: bool
    ) -> Steps[list[Job]]:
        asked = [states] if isinstance(states, str) else states or ()
        first, last = checked_limit(start, "start"), checked_limit(end, "end", -1)
        return self._listed(_known(asked), first, last, asc=asc)

    def _listed(
        self, states: Sequence[JobState], start: int, end: int, *, asc: bool
    ) -> Steps[list[Job]]:
        found = yield from browse.jobs(
            self._producing.keys, self._group, states, start, end, asc=asc
        )
        return stored_jobs(found, self._source())

    def _to_turn_page(self, state: str, cursor: str | None, limit: int) -> Steps[JobsPage]:
        [known] = _known([state])
        return self._page(known, _place(known, cursor), checked_limit(limit, least=1))

    def _page(self, state: JobState, place: str | None, limit: int) -> Steps[JobsPage]:
        page = yield from browse.page(self._producing.keys, self._group, state, place, limit)
        jobs = stored_jobs(page.found, self._source())
        return JobsPage(jobs, None if page.place is None else f"{state}:{page.place}")

    def _to_read_logs(self, job_id: str, start: int, end: int, *, asc: bool) -> Steps[JobLogs]:
        keys = self._producing.keys
        return browse.logs(keys, required_job_id(job_id), start, end, asc=asc)

    def _to_read_progress(self, job_id: str) -> Steps[int | None]:
        return self._progress(required_job_id(job_id))

    def _progress(self, job_id: str) -> Steps[int | None]:
        value: int | None = yield browse.progress(self._producing.keys, job_id)
        return value


def _known(states: Sequence[str]) -> list[JobState]:
    """The states that are meant, each once; all of them if none is named."""
    chosen = [JobState(checked_state(state, STATES)) for state in states]
    return list(dict.fromkeys(chosen or STATES))


def _place(state: JobState, cursor: str | None) -> str | None:
    if cursor is None:
        return None
    kind, _, place = str(cursor).partition(":")
    if kind != state:
        msg = f"cursor {str(cursor)[:64]!r} is none of a page of {state} jobs: pass its next_cursor"
        raise ValueError(msg)
    return browse.check_place(state, place)


class Browsing(_Browsing, AsyncFrame):
    """The part of `Queue` that looks."""

    async def counts(self) -> Counts:
        """How many jobs wait, run, are delayed, are dead: a moment's view."""
        return await self._drive(self._to_count())

    async def get_job_counts(self, *states: str) -> dict[str, int]:
        """How many jobs are in each of these states, or in each state, by its name.

        One round trip, except for `completed`: these are counted by walking through all keys of the
        server, and known only where workers store results, and for as long as they keep them.
        """
        return await self._drive(self._to_count_states(states))

    async def get_waiting_count(self) -> int:
        """How many jobs wait."""
        return await self._drive(self._to_count_one(JobState.WAITING))

    async def get_active_count(self) -> int:
        """How many jobs are in flight: read by a worker, and not settled."""
        return await self._drive(self._to_count_one(JobState.ACTIVE))

    async def get_delayed_count(self) -> int:
        """How many jobs are delayed, retries included."""
        return await self._drive(self._to_count_one(JobState.DELAYED))

    async def get_completed_count(self) -> int:
        """How many jobs are known to have completed, at the cost that `get_job_counts` names."""
        return await self._drive(self._to_count_one(JobState.COMPLETED))

    async def get_failed_count(self) -> int:
        """How many dead letters there are."""
        return await self._drive(self._to_count_one(JobState.FAILED))

    async def count(self) -> int:
        """How many jobs are yet to run: those that wait, and those that are delayed."""
        return await self._drive(self._to_count_ahead())

    async def get_job(self, job_id: str) -> Job | None:
        """The job as it is stored now, or None if it is nowhere in the queue (or completed).

        Its `progress` is what its handler said last; jobs that are listed have none.
        """
        return await self._drive(self._to_find(job_id))

    async def get_job_state(self, job_id: str) -> JobState:
        """Where a job is: waiting, active, delayed, completed, failed or unknown.

        Completed is known only of jobs whose worker stores results, and only while it keeps them.
        Cheap for recent jobs and delayed ones; else the queue is read, a page of a few megabytes at
        a time.
        """
        return await self._drive(self._to_locate(job_id))

    async def get_jobs(
        self,
        states: Sequence[str] | str | None = None,
        start: int = 0,
        end: int = -1,
        *,
        asc: bool = True,
    ) -> list[Job]:
        """Jobs of one state, of several, or of all, from position `start` to `end` (-1 = the last).

        One state after the other, each oldest first, delayed jobs by due time; with `asc=False`
        each the other way round. Positions count through all of them. What stands before `start` is
        read and dropped, so `get_jobs_page` is the better way through a long queue. Of completed
        jobs only the id is known, they have no order, and finding them means walking through all
        keys of the server.
        """
        return await self._drive(self._to_list_jobs(states, start, end, asc=asc))

    async def get_jobs_page(
        self, state: str, *, cursor: str | None = None, limit: int = 100
    ) -> JobsPage:
        """Some jobs of a state, and the cursor with which the next call goes on after them.

        A job that stays where it is all the while is on exactly one page, whatever is added and
        removed meanwhile; a `completed` one may be on two while the server's table of keys grows
        or shrinks. A page has `limit` jobs at most. It may be short, even empty, although there is
        another: go on until `next_cursor` is None. Entries that are no jobs are left out.
        """
        return await self._drive(self._to_turn_page(state, cursor, limit))

    async def get_job_logs(
        self,
        job_id: str,
        start: int = 0,
        end: int = -1,
        asc: bool = True,  # noqa: FBT001, FBT002 -- the documented argument
    ) -> JobLogs:
        """Lines `start` to `end` of what a job logged, and how many are kept in all.

        Positions count from the oldest line, or with `asc=False` from the newest, which then comes
        first; below 0 they count from the other end.
        """
        return await self._drive(self._to_read_logs(job_id, start, end, asc=asc))

    async def get_job_progress(self, job_id: str) -> int | None:
        """How far a job last said it is, 0 to 100; None if it never did, or it is forgotten."""
        return await self._drive(self._to_read_progress(job_id))


class SyncBrowsing(_Browsing, SyncFrame):
    """The part of `SyncQueue` that looks."""

    def counts(self) -> Counts:
        """See `Queue.counts`."""
        return self._drive(self._to_count())

    def get_job_counts(self, *states: str) -> dict[str, int]:
        """See `Queue.get_job_counts`."""
        return self._drive(self._to_count_states(states))

    def get_waiting_count(self) -> int:
        """See `Queue.get_waiting_count`."""
        return self._drive(self._to_count_one(JobState.WAITING))

    def get_active_count(self) -> int:
        """See `Queue.get_active_count`."""
        return self._drive(self._to_count_one(JobState.ACTIVE))

    def get_delayed_count(self) -> int:
        """See `Queue.get_delayed_count`."""
        return self._drive(self._to_count_one(JobState.DELAYED))

    def get_completed_count(self) -> int:
        """See `Queue.get_completed_count`."""
        return self._drive(self._to_count_one(JobState.COMPLETED))

    def get_failed_count(self) -> int:
        """See `Queue.get_failed_count`."""
        return self._drive(self._to_count_one(JobState.FAILED))

    def count(self) -> int:
        """See `Queue.count`."""
        return self._drive(self._to_count_ahead())

    def get_job(self, job_id: str) -> Job | None:
        """See `Queue.get_job`."""
        return self._drive(self._to_find(job_id))

    def get_job_state(self, job_id: str) -> JobState:
        """See `Queue.get_job_state`."""
        return self._drive(self._to_locate(job_id))

    def get_jobs(
        self,
        states: Sequence[str] | str | None = None,
        start: int = 0,
        end: int = -1,
        *,
        asc: bool = True,
    ) -> list[Job]:
        """See `Queue.get_jobs`."""
        return self._drive(self._to_list_jobs(states, start, end, asc=asc))

    def get_jobs_page(self, state: str, *, cursor: str | None = None, limit: int = 100) -> JobsPage:
        """See `Queue.get_jobs_page`."""
        return self._drive(self._to_turn_page(state, cursor, limit))

    def get_job_logs(
        self,
        job_id: str,
        start: int = 0,
        end: int = -1,
        asc: bool = True,  # noqa: FBT001, FBT002 -- the documented argument
    ) -> JobLogs:
        """See `Queue.get_job_logs`."""
        return self._drive(self._to_read_logs(job_id, start, end, asc=asc))

    def get_job_progress(self, job_id: str) -> int | None:
        """See `Queue.get_job_progress`."""
        return self._drive(self._to_read_progress(job_id))
