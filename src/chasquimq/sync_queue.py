"""`SyncQueue`: the same calls as `Queue` without await, for Django, Flask and scripts."""

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
from chasquimq.engine.sender import SyncSender
from chasquimq.job import Job
from chasquimq.recurring import recurring_job, refuse_delay_of_recurring, spec_of
from chasquimq.tracing import Tracer
from chasquimq.wire.codec import unpack
from chasquimq.wire.repeat import RepeatableMeta


class SyncQueue:
    """Adds jobs to one queue and answers questions about it, from ordinary functions.

    Every method does what the method of the same name in `Queue` does. Threads may share one; a
    forked child (gunicorn, Celery-style pre-fork) opens a connection of its own.
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
        """Name the queue and where it is, as for `Queue`."""
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
        self._sender = SyncSender(
            parse_url(redis_url, tls=tls), config, options=options, tracer=tracing
        )
        self._group = group
        self._is_closed = False

    def __repr__(self) -> str:
        """Show the queue, where it is, and whether it was closed."""
        return f"<SyncQueue {self.name}{' (closed)' if self._is_closed else ''} {self._sender!r}>"

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._sender.producing.keys.name

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

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
    ) -> Job:
        """See `Queue.add`."""
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
        )
        [(order, is_taken)] = self._sender.add([asked])
        return _job(order, data, is_taken=is_taken)

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
        )

    def add_bulk(self, jobs: Sequence[Mapping[str, Any]]) -> list[Job]:
        """See `Queue.add_bulk`."""
        asked = [bulk_wish(position, entry) for position, entry in enumerate(jobs)]
        added = self._sender.add(asked)
        return [
            _job(order, entry["data"], is_taken=is_taken)
            for (order, is_taken), entry in zip(added, jobs, strict=True)
        ]

    def upsert_repeatable_job(  # noqa: PLR0913 -- the documented arguments
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
        """See `Queue.upsert_repeatable_job`."""
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
        self._sender.drive(repeating.upsert(spec, checked_job_id(job_id)))
        return recurring_job(spec, data)

    def get_repeatable_jobs(self, limit: int = 100) -> list[RepeatableMeta]:
        """See `Queue.get_repeatable_jobs`."""
        repeating = self._sender.producing.repeating
        return self._sender.drive(repeating.listed(checked_limit(limit)))

    def remove_repeatable_by_key(self, key: str) -> bool:
        """See `Queue.remove_repeatable_by_key`."""
        repeating = self._sender.producing.repeating
        return self._sender.drive(repeating.remove(required_job_id(key)))

    def pause_repeatable(self, key: str) -> bool:
        """See `Queue.pause_repeatable`."""
        repeating = self._sender.producing.repeating
        return self._sender.drive(repeating.set_paused(required_job_id(key), paused=True))

    def resume_repeatable(self, key: str) -> bool:
        """See `Queue.resume_repeatable`."""
        repeating = self._sender.producing.repeating
        return self._sender.drive(repeating.set_paused(required_job_id(key), paused=False))

    def run_repeatable_now(self, key: str) -> str | None:
        """See `Queue.run_repeatable_now`."""
        producing = self._sender.producing
        return self._sender.drive(producing.run_spec_now(required_job_id(key)))

    def cancel_delayed(self, job_id: str) -> bool:
        """See `Queue.cancel_delayed`."""
        return self._sender.drive(self._sender.producing.cancel(required_job_id(job_id)))

    def peek_dlq(self, limit: int = 20) -> list[dict[str, Any]]:
        """See `Queue.peek_dlq`."""
        if not checked_limit(limit):
            return []
        letters = self._sender.drive(self._sender.producing.letters.peek(limit))
        return [letter.to_dict() for letter in letters]

    def replay_dlq(
        self,
        limit: int = 100,
        *,
        ids: Collection[str] | None = None,
        name: str | None = None,
        reason: str | None = None,
    ) -> int:
        """See `Queue.replay_dlq`."""
        steps = self._sender.producing.replay_dlq(
            checked_limit(limit), letter_filter(ids, name, reason)
        )
        return self._sender.drive(steps)

    def discard_dlq(
        self,
        limit: int = 100,
        *,
        ids: Collection[str] | None = None,
        name: str | None = None,
        reason: str | None = None,
    ) -> int:
        """See `Queue.discard_dlq`."""
        steps = self._sender.producing.letters.discard(
            checked_limit(limit), letter_filter(ids, name, reason)
        )
        return self._sender.drive(steps)

    def get_job_result(self, job_id: str) -> Any:  # noqa: ANN401 -- the handler's value
        """See `Queue.get_job_result`."""
        return self.get_job_result_bulk([job_id])[0]

    def get_job_result_bulk(self, job_ids: Sequence[str]) -> list[Any]:
        """See `Queue.get_job_result_bulk`."""
        job_ids = required_job_ids(job_ids)
        kept = self._sender.drive(self._sender.producing.read_results(job_ids))
        return [None if each.value is None else unpack(each.value) for each in kept]

    def get_outcome(self, job_id: str) -> JobResult:
        """See `Queue.get_outcome`."""
        job_ids = [required_job_id(job_id)]
        kept = self._sender.drive(self._sender.producing.read_results(job_ids))
        result = from_kept(kept[0])
        if result.status is not OutcomeStatus.UNKNOWN:
            return result
        return outcome_of(self._locate(job_id))

    def wait_for_result(
        self, job_id: str, *, timeout: float = 30.0, poll_interval: float = 0.1
    ) -> Any:  # noqa: ANN401 -- the handler's value
        """See `Queue.wait_for_result`; a `Job` made here cannot wait by itself."""
        checked_wait(timeout, poll_interval)
        required_job_id(job_id)
        result = self._sender.wait_for_result(job_id, timeout_s=timeout, poll_s=poll_interval)
        return value_of(job_id, result)

    def counts(self) -> Counts:
        """See `Queue.counts`."""
        return self._sender.run(counts(self._sender.producing.keys, self._group))

    def get_job(self, job_id: str) -> Job | None:
        """See `Queue.get_job`."""
        return stored_job(self._locate(job_id))

    def get_job_state(self, job_id: str) -> JobState:
        """See `Queue.get_job_state`."""
        return self._locate(job_id).state

    def close(self) -> None:
        """Drop the connection. Idempotent; a later call opens another."""
        self._is_closed = True
        self._sender.close()

    def __enter__(self) -> Self:
        """The queue itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()

    def _locate(self, job_id: str) -> Located:
        keys = self._sender.producing.keys
        return self._sender.drive(locate(keys, self._group, required_job_id(job_id)))


def _job(order: Order, data: Any, *, is_taken: bool) -> Job:  # noqa: ANN401 -- the user's data
    return Job(order.id, order.name, data, 0, order.created_at_ms, deduplicated=is_taken)
