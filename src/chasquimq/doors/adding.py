"""Adding jobs, through both doors: one, one of its kind, many."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Never

from chasquimq.arguments import (
    BackoffLike,
    DelayMsLike,
    MissedFiresLike,
    RepeatLike,
    bulk_wishes,
    plain_bulk,
    refuse_options,
    required_job_id,
    wish,
)
from chasquimq.doors.frame import Frame
from chasquimq.doors.recurring import Recurring, SyncRecurring
from chasquimq.engine import plain
from chasquimq.engine.limits import SURELY_SHORT
from chasquimq.engine.meanwhile import Meanwhile
from chasquimq.engine.orders import Order, Wish
from chasquimq.engine.plain import PlainBatch
from chasquimq.job import Job, job_added, jobs_added
from chasquimq.recurring import refuse_delay_of_recurring
from chasquimq.wire.codec import pack


class _Adding(Frame):
    def _wishes(self, jobs: Sequence[Mapping[str, Any]]) -> list[Wish]:
        return bulk_wishes(jobs, self._defaults)

    def _job(self, order: Order, data: Any, *, is_taken: bool) -> Job:  # noqa: ANN401
        source = self._source()
        return Job(order.id, order.name, data, 0, order.created_at_ms, is_taken, source)

    def _plain(self, jobs: Sequence[Mapping[str, Any]]) -> tuple[PlainBatch, Sequence[Any]] | None:
        """The jobs of a bulk that are plain, and few enough for one call, with their data."""
        bulk = plain_bulk(jobs, self._defaults)
        batch = None if bulk is None else plain.prepared(self._producing, bulk)
        return None if bulk is None or batch is None else (batch, bulk.data)

    def _plain_jobs(self, batch: PlainBatch, data: Sequence[Any]) -> list[Job]:
        described = zip(batch.ids, batch.names, data, strict=True)
        return jobs_added(described, batch.created_at_ms, self._source())

    def _jobs(self, added: list[tuple[Order, bool]], data: Sequence[Any]) -> list[Job]:
        source = self._source()
        return [
            Job(order.id, order.name, each, 0, order.created_at_ms, is_taken, source)
            for (order, is_taken), each in zip(added, data, strict=True)
        ]


class Adding(_Adding, Recurring):
    """The part of `Queue` that adds."""

    async def add(  # noqa: PLR0913 -- the documented arguments
        self,
        name: str,
        data: Any,  # noqa: ANN401 -- the user's data
        *,
        delay_ms: DelayMsLike | None = None,
        delay: timedelta | None = None,
        attempts: int | None = None,
        backoff: BackoffLike | None = None,
        job_id: str | None = None,
        repeat: RepeatLike | None = None,
        missed_fires: MissedFiresLike | None = None,
        **unsupported: Never,
    ) -> Job:
        """Add a job, now or later, and return it once the server has it.

        With a `job_id` of your own the job is added only if that id is not taken, in any process,
        until an hour after it was due; `Job.deduplicated` says which happened. A job that was
        returned is stored; if the connection broke and did not come back in time
        (`OutcomeUnknownError`) it may be.

        `delay_ms` is milliseconds or a `datetime`, `delay` a `timedelta`. `attempts` counts runs,
        the first one included; `backoff` is milliseconds between them, or a `BackoffSpec`. What is
        left out is taken from the queue's `default_job_options`. With `repeat` the job recurs: see
        `upsert_repeatable_job`. Options that only other bindings know raise `NotSupportedError`.
        """
        if unsupported:
            refuse_options("add", unsupported)
        if repeat is not None:
            refuse_delay_of_recurring(delay_ms, delay)
            return await self.upsert_repeatable_job(
                name,
                data,
                repeat=repeat,
                attempts=attempts,
                backoff=backoff,
                job_id=job_id,
                missed_fires=missed_fires,
            )
        is_now = delay_ms is None and delay is None
        has_rules = attempts is not None or backoff is not None or job_id is not None
        if (
            is_now
            and not (has_rules or missed_fires is not None)
            and self._adds_plainly
            and type(name) is str
            and len(name) <= SURELY_SHORT
            and name.isascii()
        ):
            # As nearly all are; the other road takes twice the time.
            payload = pack(data)
            adding = self._sender.add_plain(name, payload)
            if adding is not None:
                minted = await adding
                return job_added(*minted, name, data, self._source())
            asked = Wish(name, payload)
        else:
            asked = wish(
                name,
                data,
                delay_ms=delay_ms,
                delay=delay,
                attempts=attempts,
                backoff=backoff,
                job_id=job_id,
                missed_fires=missed_fires,
                defaults=self._defaults,
            )
        [(order, is_taken)] = await self._sender.add([asked])
        return self._job(order, data, is_taken=is_taken)

    async def add_unique(  # noqa: PLR0913 -- the documented arguments
        self,
        name: str,
        data: Any,  # noqa: ANN401 -- the user's data
        *,
        job_id: str,
        delay_ms: DelayMsLike | None = None,
        delay: timedelta | None = None,
        attempts: int | None = None,
        backoff: BackoffLike | None = None,
        repeat: RepeatLike | None = None,
        **unsupported: Never,
    ) -> Job:
        """`add` with an id that must be given."""
        return await self.add(
            name,
            data,
            job_id=required_job_id(job_id),
            delay_ms=delay_ms,
            delay=delay,
            attempts=attempts,
            backoff=backoff,
            repeat=repeat,
            **unsupported,
        )

    async def add_bulk(self, jobs: Sequence[Mapping[str, Any]]) -> list[Job]:
        """Add many jobs in one pipeline, each a dict with the arguments of `add`.

        Every dict is checked before anything is sent. When the queue is full, the jobs for now that
        have no `job_id` are added all or none, a thousand at a time; those with one, and jobs for
        later, may be in.
        """
        found = self._plain(jobs)
        if found is None:
            # The data as it is now: the list may be changed while we wait.
            wishes, given = self._wishes(jobs), [entry["data"] for entry in jobs]
            return self._jobs(await self._sender.add(wishes), given)
        batch, data = found
        # The server takes as long as we did: time to make what will be returned.
        made = Meanwhile(lambda: self._plain_jobs(batch, data))
        await self._sender.patiently(lambda: plain.add(self._producing, batch))
        return made.value()


class SyncAdding(_Adding, SyncRecurring):
    """The part of `SyncQueue` that adds."""

    def add(  # noqa: PLR0913 -- the documented arguments
        self,
        name: str,
        data: Any,  # noqa: ANN401 -- the user's data
        *,
        delay_ms: DelayMsLike | None = None,
        delay: timedelta | None = None,
        attempts: int | None = None,
        backoff: BackoffLike | None = None,
        job_id: str | None = None,
        repeat: RepeatLike | None = None,
        missed_fires: MissedFiresLike | None = None,
        **unsupported: Never,
    ) -> Job:
        """See `Queue.add`."""
        if unsupported:
            refuse_options("add", unsupported)
        if repeat is not None:
            refuse_delay_of_recurring(delay_ms, delay)
            return self.upsert_repeatable_job(
                name,
                data,
                repeat=repeat,
                attempts=attempts,
                backoff=backoff,
                job_id=job_id,
                missed_fires=missed_fires,
            )
        asked = wish(
            name,
            data,
            delay_ms=delay_ms,
            delay=delay,
            attempts=attempts,
            backoff=backoff,
            job_id=job_id,
            missed_fires=missed_fires,
            defaults=self._defaults,
        )
        [(order, is_taken)] = self._sender.add([asked])
        return self._job(order, data, is_taken=is_taken)

    def add_unique(  # noqa: PLR0913 -- the documented arguments
        self,
        name: str,
        data: Any,  # noqa: ANN401 -- the user's data
        *,
        job_id: str,
        delay_ms: DelayMsLike | None = None,
        delay: timedelta | None = None,
        attempts: int | None = None,
        backoff: BackoffLike | None = None,
        repeat: RepeatLike | None = None,
        **unsupported: Never,
    ) -> Job:
        """See `Queue.add_unique`."""
        return self.add(
            name,
            data,
            job_id=required_job_id(job_id),
            delay_ms=delay_ms,
            delay=delay,
            attempts=attempts,
            backoff=backoff,
            repeat=repeat,
            **unsupported,
        )

    def add_bulk(self, jobs: Sequence[Mapping[str, Any]]) -> list[Job]:
        """See `Queue.add_bulk`."""
        found = self._plain(jobs)
        if found is None:
            wishes, given = self._wishes(jobs), [entry["data"] for entry in jobs]
            return self._jobs(self._sender.add(wishes), given)
        batch, data = found
        self._sender.patiently(lambda: plain.add(self._producing, batch))
        return self._plain_jobs(batch, data)
