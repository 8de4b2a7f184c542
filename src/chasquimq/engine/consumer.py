"""`Consumer`: runs a handler of bytes for every job of a queue, as the documented engine does.

`chasquimq.Worker` is the same crew with a friendlier handler: it unpacks the data, runs plain
functions in threads, stops on signals. A consumer does none of that, and costs less.
"""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from inspect import isawaitable
from typing import Any, TypeAlias

from chasquimq.broker.options import CredentialProvider
from chasquimq.config import ConsumerConfig, RetryConfig, ttl_secs
from chasquimq.engine.admission import Run
from chasquimq.engine.crew import Crew
from chasquimq.engine.executor import Executor
from chasquimq.engine.executor import Handler as CrewHandler
from chasquimq.engine.job import Job
from chasquimq.engine.legible import legible
from chasquimq.engine.runnable import Runnable
from chasquimq.engine.storable import storable
from chasquimq.errors import DecodeError, UndecodableDataError
from chasquimq.given import BytesLike, chosen
from chasquimq.metrics import MetricsSink
from chasquimq.wire.codec import unpack
from chasquimq.wire.envelope import Envelope, Inline

log = logging.getLogger("chasquimq.engine")

Handler: TypeAlias = Callable[[Job], Awaitable[BytesLike | None] | BytesLike | None]
"""What a consumer calls: usually a coroutine function; a plain one runs on the event loop."""

# As in the reference package, whose native class differs from its config.
_NATIVE_CONCURRENCY = 1
_NATIVE_MAX_ATTEMPTS = 25


class Consumer(Runnable[ConsumerConfig]):
    """Reads, runs and settles jobs, and unless told not to promotes delayed ones and fires specs.

    What the handler raises is retried with backoff, up to `max_attempts` runs, and then
    dead-lettered; `UnrecoverableError` and `HandlerError.unrecoverable` are dead-lettered at once.
    A job runs at least once, and never twice at the same time while its consumer lives.
    """

    _config_kind = ConsumerConfig

    def __init__(  # noqa: PLR0913 -- the documented arguments, then ours
        self,
        redis_url: str | None,
        queue_name: str,
        *,
        concurrency: int = _NATIVE_CONCURRENCY,
        max_attempts: int = _NATIVE_MAX_ATTEMPTS,
        group: str = "default",
        consumer_id: str | None = None,
        read_block_ms: int | timedelta | None = None,
        read_count: int | None = None,
        claim_min_idle_ms: int | timedelta | None = None,
        max_payload_bytes: int | None = None,
        dlq_max_stream_len: int | None = None,
        events_enabled: bool = True,
        delayed_enabled: bool = True,
        run_scheduler: bool = True,
        scheduler_tick_ms: int | timedelta | None = None,
        store_results: bool = False,
        result_ttl_ms: int | timedelta | None = None,
        credential_provider: CredentialProvider | None = None,
        tls: bool = False,
        reconnect_max_attempts: int | None = None,
        retry: RetryConfig | None = None,
        shutdown_deadline_secs: float | timedelta | None = None,
        metrics: MetricsSink | None = None,
    ) -> None:
        """None takes the default of `ConsumerConfig`; a `concurrency` of 0 is 1."""
        settings = chosen(
            consumer_id=consumer_id,
            block_ms=read_block_ms,
            batch=read_count,
            claim_min_idle_ms=claim_min_idle_ms,
            max_payload_bytes=max_payload_bytes,
            dlq_max_stream_len=dlq_max_stream_len,
            result_ttl_secs=ttl_secs(result_ttl_ms),
            retry=retry,
            shutdown_deadline_secs=shutdown_deadline_secs,
            metrics=metrics,
        )
        config = ConsumerConfig(
            queue_name=queue_name,
            concurrency=concurrency or 1,
            max_attempts=max_attempts,
            group=group,
            events_enabled=events_enabled,
            delayed_enabled=delayed_enabled,
            run_scheduler=run_scheduler,
            store_results=store_results,
            **settings,
        )
        scheduler = replace(
            config.scheduler,
            events_enabled=events_enabled,
            metrics=config.metrics,
            tick_interval_ms=scheduler_tick_ms or config.scheduler.tick_interval_ms,
        )
        config = replace(config, scheduler=scheduler)
        self._set_up(redis_url, config, credential_provider, reconnect_max_attempts, tls=tls)

    async def run(self, handler: Handler, shutdown: asyncio.Event | None = None) -> None:
        """Work until `shutdown` is set, or `shutdown()` called; then drain and return.

        The handler gets a `Job` and returns bytes to store (with `store_results`), or None; empty
        bytes are None. A drain lets running handlers finish, for `shutdown_deadline_secs` at most.
        Raises if there is no server at the start.
        """
        if not callable(handler):
            msg = f"handler must be a function of one Job, got {type(handler).__name__}"
            raise TypeError(msg)

        async def work(stop: asyncio.Event) -> None:
            adapter = _adapter(handler, keeps_results=self._config.store_results)
            make = functools.partial(Executor, adapter)
            await Crew(self._target, self._config, make, options=self._options).run(stop)

        await self._run(work, shutdown)


def _adapter(handler: Handler, *, keeps_results: bool) -> CrewHandler:
    """What a crew calls: a `Job` in, bytes out."""
    is_warned = False

    async def run(run: Run) -> bytes | None:
        nonlocal is_warned
        envelope = run.envelope
        answer = handler(
            Job(
                _payload(envelope),
                envelope.id,
                run.name,
                envelope.created_at_ms,
                run.attempt,
                envelope.retry,
            )
        )
        value: object = await answer if isawaitable(answer) else answer
        if value is None or not keeps_results:
            return None
        if isinstance(value, bytes | bytearray | memoryview):
            return storable(bytes(value)) or None
        if not is_warned:
            is_warned = True
            log.warning("the handler returned %s, which is not stored: return bytes or None",
                        type(value).__name__, extra={"job_id": legible(envelope.id)})  # fmt: skip
        return None

    return run


def _payload(envelope: Envelope) -> Any:  # noqa: ANN401 -- the user's
    if not isinstance(envelope.payload, Inline):
        return envelope.payload
    try:
        return unpack(envelope.payload.packed)
    except DecodeError as error:
        raise UndecodableDataError(error.message) from error
