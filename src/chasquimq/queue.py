"""`Queue`: turns friendly arguments into one engine call."""

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from chasquimq.answers import outcome_of, stored_job, value_of
from chasquimq.arguments import (
    BackoffLike,
    DelayMsLike,
    MissedFiresLike,
    RepeatLike,
    bulk_wish,
    checked_job_id,
    checked_limit,
    checked_wait,
    letter_filter,
    producer_config,
    required_job_id,
    required_job_ids,
    wish,
)
from chasquimq.broker.inspect import Counts, JobState, Located, counts, locate
from chasquimq.broker.options import ConnectionOptions, CredentialProvider
from chasquimq.broker.url import parse_url
from chasquimq.config import Overflow
from chasquimq.engine.outcomes import JobResult, OutcomeStatus, from_kept
from chasquimq.engine.producing import Order
from chasquimq.engine.sender import Sender
from chasquimq.job import Job
from chasquimq.recurring import recurring_job, refuse_delay_of_recurring, spec_of
from chasquimq.tracing import Tracer
from chasquimq.wire.codec import unpack
from chasquimq.wire.repeat import RepeatableMeta


class Queue:
    """Adds jobs to one queue and answers questions about it.

    Cheap to make: the connection is opened by the first call and shared by all tasks of an event
    loop. A `Queue` may be used from several event loops, in several threads; each gets its own
    connection.
    """

    def __init__(  # noqa: PLR0913 -- the documented arguments
        self,
        name: str,
        *,
        redis_url: str | None = None,
        max_stream_len: int | None = None,
        max_delay_secs: int | None = None,
        tls: bool = False,
        credential_provider: CredentialProvider | None = None,
        reconnect_max_attempts: int | None = None,
        overflow: Overflow = "reject",
        overflow_timeout_ms: int | None = None,
        max_payload_bytes: int | None = None,
        events_enabled: bool = True,
        group: str = "default",
        tracing: Tracer | None = None,
    ) -> None:
        """Name the queue and where it is; `docs/configuration.md` has every argument."""
        config = producer_config(
            name,
            max_stream_len=max_stream_len,
            max_delay_secs=max_delay_secs,
            overflow=overflow,
            overflow_timeout_ms=overflow_timeout_ms,
            max_payload_bytes=max_payload_bytes,
            events_enabled=events_enabled,
        )
        options = ConnectionOptions(
            credential_provider=credential_provider,
            reconnect_max_attempts=reconnect_max_attempts,
        )
        self._sender = Sender(
            parse_url(redis_url, tls=tls), config, options=options, tracer=tracing
        )
        self._group = group
        self._is_closed = False

    def __repr__(self) -> str:
        """Show the queue, where it is, and whether it was closed."""
        return f"<Queue {self.name}{' (closed)' if self._is_closed else ''} {self._sender!r}>"

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """The queue itself: it is shared, so that `dataclasses.asdict(job)` can work."""
        return self

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._sender.producing.keys.name

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

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
    ) -> Job:
        """Add a job, now or later, and return it once the server has it.

        With a `job_id` of your own the job is added only if that id is not taken, in any process,
        until an hour after it was due; `Job.deduplicated` says which happened. A job that was
        returned is stored; if the connection broke and did not come back in time
        (`OutcomeUnknownError`) it may be.

        `delay_ms` is milliseconds or a `datetime`, `delay` a `timedelta`. `attempts` counts runs,
        the first one included; `backoff` is milliseconds between them, or a `BackoffSpec`. With
        `repeat` the job recurs: see `upsert_repeatable_job`.
        """
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
        asked = wish(
            name,
            data,
            delay_ms=delay_ms,
            delay=delay,
            attempts=attempts,
            backoff=backoff,
            job_id=job_id,
            missed_fires=missed_fires,
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
        )

    async def add_bulk(self, jobs: Sequence[Mapping[str, Any]]) -> list[Job]:
        """Add many jobs in one pipeline, each a dict with the arguments of `add`.

        Every dict is checked before anything is sent. When the queue is full, the jobs for now that
        have no `job_id` are added all or none, a thousand at a time; those with one, and jobs for
        later, may be in.
        """
        asked = [bulk_wish(position, entry) for position, entry in enumerate(jobs)]
        added = await self._sender.add(asked)
        return [
            self._job(order, entry["data"], is_taken=is_taken)
            for (order, is_taken), entry in zip(added, jobs, strict=True)
        ]

    async def upsert_repeatable_job(  # noqa: PLR0913 -- the documented arguments
        self,
        name: str,
        data: Any,  # noqa: ANN401 -- the user's data
        *,
        repeat: RepeatLike,
        limit: int | None = None,
        start_after_ms: int | None = None,
        end_before_ms: int | None = None,
        attempts: int | None = None,
        backoff: BackoffLike | None = None,
        job_id: str | None = None,
        missed_fires: MissedFiresLike | None = None,
    ) -> Job:
        """Store a recurring job; a worker's scheduler fires it. The returned job's id is its key.

        The key follows from the name and the pattern; storing it again replaces it and counts its
        next window anew. Each window fires once, whatever the number of workers. A fired job has
        the id `<key>@<window in epoch ms>`, with `job_id` in place of the key if there is one, and
        takes `attempts` and `backoff` along.
        """
        spec = spec_of(
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
        repeating = self._sender.producing.repeating
        await self._sender.drive(repeating.upsert(spec, checked_job_id(job_id)))
        return recurring_job(spec, data)

    async def get_repeatable_jobs(self, limit: int = 100) -> list[RepeatableMeta]:
        """Recurring jobs, the one that fires next first."""
        repeating = self._sender.producing.repeating
        return await self._sender.drive(repeating.listed(checked_limit(limit)))

    async def remove_repeatable_by_key(self, key: str) -> bool:
        """Forget a recurring job; True if there was one. Jobs it has fired stay."""
        repeating = self._sender.producing.repeating
        return await self._sender.drive(repeating.remove(required_job_id(key)))

    async def pause_repeatable(self, key: str) -> bool:
        """Let the windows of a recurring job pass without firing; False if there is no such job."""
        repeating = self._sender.producing.repeating
        return await self._sender.drive(repeating.set_paused(required_job_id(key), paused=True))

    async def resume_repeatable(self, key: str) -> bool:
        """Fire again from the next window on; False if there is no such job."""
        repeating = self._sender.producing.repeating
        return await self._sender.drive(repeating.set_paused(required_job_id(key), paused=False))

    async def run_repeatable_now(self, key: str) -> str | None:
        """Fire a recurring job once, besides its windows; the job's id, None without such a key.

        It counts neither against the limit nor as one of the windows.
        """
        producing = self._sender.producing
        return await self._sender.drive(producing.run_spec_now(required_job_id(key)))

    async def cancel_delayed(self, job_id: str) -> bool:
        """Take a delayed job, or a retry that waits for its time, out of the queue.

        True if it was still delayed: then it will not run. False if it was promoted already or
        there is no such job.
        """
        return await self._sender.drive(self._sender.producing.cancel(required_job_id(job_id)))

    async def peek_dlq(self, limit: int = 20) -> list[dict[str, Any]]:
        """The oldest dead letters, as dicts, without touching them."""
        if not checked_limit(limit):
            return []
        letters = await self._sender.drive(self._sender.producing.letters.peek(limit))
        return [letter.to_dict() for letter in letters]

    async def replay_dlq(
        self,
        limit: int = 100,
        *,
        ids: Collection[str] | None = None,
        name: str | None = None,
        reason: str | None = None,
    ) -> int:
        """Send up to `limit` dead letters round again, with a full budget of attempts.

        All, or those that match: `ids` (of dead letters or of jobs), job `name`, dead-letter
        `reason`. Returns how many were moved; two replays at once never move the same one.
        """
        steps = self._sender.producing.replay_dlq(
            checked_limit(limit), letter_filter(ids, name, reason)
        )
        return await self._sender.drive(steps)

    async def discard_dlq(
        self,
        limit: int = 100,
        *,
        ids: Collection[str] | None = None,
        name: str | None = None,
        reason: str | None = None,
    ) -> int:
        """Delete up to `limit` dead letters for good, chosen as in `replay_dlq`."""
        steps = self._sender.producing.letters.discard(
            checked_limit(limit), letter_filter(ids, name, reason)
        )
        return await self._sender.drive(steps)

    async def get_job_result(self, job_id: str) -> Any:  # noqa: ANN401 -- the handler's value
        """The stored value, or None.

        None means one of several things and cannot tell which; `get_outcome` can.
        """
        return (await self.get_job_result_bulk([job_id]))[0]

    async def get_job_result_bulk(self, job_ids: Sequence[str]) -> list[Any]:
        """The stored values of many jobs in one round trip, None where there is none."""
        job_ids = required_job_ids(job_ids)
        kept = await self._sender.drive(self._sender.producing.read_results(job_ids))
        return [None if each.value is None else unpack(each.value) for each in kept]

    async def get_outcome(self, job_id: str) -> JobResult:
        """How a job stands: pending, ok, failed, expired or unknown."""
        job_ids = [required_job_id(job_id)]
        kept = await self._sender.drive(self._sender.producing.read_results(job_ids))
        result = from_kept(kept[0])
        if result.status is not OutcomeStatus.UNKNOWN:
            return result
        return outcome_of(await self._locate(job_id))

    async def wait_for_result(
        self,
        job_id: str,
        *,
        timeout: float = 30.0,
        poll_interval: float = 0.1,
    ) -> Any:  # noqa: ANN401 -- the handler's value
        """What the handler of a job returned, once it has; see `Job.wait_for_result`."""
        checked_wait(timeout, poll_interval)
        required_job_id(job_id)
        result = await self._sender.wait_for_result(job_id, timeout_s=timeout, poll_s=poll_interval)
        return value_of(job_id, result)

    async def counts(self) -> Counts:
        """How many jobs wait, run, are delayed, are dead: a moment's view."""
        return await self._sender.run(counts(self._sender.producing.keys, self._group))

    async def get_job(self, job_id: str) -> Job | None:
        """The job as it is stored now, or None if it is nowhere in the queue (or completed)."""
        located = await self._locate(job_id)
        return stored_job(located)

    async def get_job_state(self, job_id: str) -> JobState:
        """Where a job is: waiting, active, delayed, completed, failed or unknown.

        Completed is known only of jobs whose worker stores results, and only while it keeps them.
        """
        return (await self._locate(job_id)).state

    async def close(self) -> None:
        """Drop the connection. Idempotent; a later call opens another."""
        self._is_closed = True
        await self._sender.close()

    async def __aenter__(self) -> Self:
        """The queue itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        await self.close()

    async def _locate(self, job_id: str) -> Located:
        keys = self._sender.producing.keys
        return await self._sender.drive(locate(keys, self._group, required_job_id(job_id)))

    def _job(self, order: Order, data: Any, *, is_taken: bool) -> Job:  # noqa: ANN401
        return Job(
            order.id, order.name, data, 0, order.created_at_ms, deduplicated=is_taken, _queue=self
        )
