"""`Worker`: one handler, one queue, one `Crew`; a `Job` in, packed bytes out."""

import asyncio
import functools
import logging
import signal
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self, TypeAlias

from chasquimq.broker.options import ConnectionOptions, CredentialProvider
from chasquimq.broker.url import parse_url
from chasquimq.config import ConsumerConfig, RetryConfig, SchedulerConfig
from chasquimq.engine import signals
from chasquimq.engine.admission import Run
from chasquimq.engine.crew import Crew
from chasquimq.engine.executor import Handler as EngineHandler
from chasquimq.engine.threads import Threads
from chasquimq.errors import ConfigError, DecodeError, UndecodableDataError, UnrecoverableError
from chasquimq.handlers import in_thread, is_async, takes_one
from chasquimq.job import Job
from chasquimq.metrics import NO_METRICS, MetricsSink
from chasquimq.wire.codec import pack, unpack

log = logging.getLogger("chasquimq.worker")

Handler: TypeAlias = Callable[[Job], Awaitable[Any]] | Callable[[Job], Any]

_DEFAULT_MAX_ATTEMPTS = 25


class Worker:
    """Runs a handler for every job of a queue.

    The handler may be a coroutine function or a plain one, which then runs in a thread. What it
    raises is retried with backoff, up to `max_attempts` runs, and then dead-lettered;
    `UnrecoverableError` is dead-lettered at once. A job runs at least once, and never twice at the
    same time while its worker lives.
    """

    def __init__(  # noqa: PLR0913 -- the documented arguments
        self,
        queue_name: str,
        handler: Handler,
        *,
        redis_url: str | None = None,
        concurrency: int = 100,
        max_attempts: int = _DEFAULT_MAX_ATTEMPTS,
        group: str = "default",
        consumer_id: str | None = None,
        read_block_ms: int | None = None,
        read_count: int | None = None,
        claim_min_idle_ms: int | None = None,
        max_payload_bytes: int | None = None,
        dlq_max_stream_len: int | None = None,
        events_enabled: bool = True,
        delayed_enabled: bool = True,
        run_scheduler: bool = True,
        scheduler_tick_ms: int | None = None,
        store_results: bool = False,
        result_ttl_ms: int | None = None,
        tls: bool = False,
        credential_provider: CredentialProvider | None = None,
        reconnect_max_attempts: int | None = None,
        retry: RetryConfig | None = None,
        shutdown_deadline_secs: float | None = None,
        handle_signals: bool = True,
        metrics: MetricsSink | None = None,
    ) -> None:
        """Nothing runs before `run`; `docs/configuration.md` has every argument and default."""
        if not callable(handler):
            msg = f"handler must be a function of one Job, got {type(handler).__name__}"
            raise TypeError(msg)
        if not takes_one(handler):
            msg = f"handler {handler!r} must take one argument, the Job"
            raise TypeError(msg)
        if scheduler_tick_ms is not None and scheduler_tick_ms < 0:
            msg = f"scheduler_tick_ms must be non-negative; got {scheduler_tick_ms}"
            raise ConfigError(msg)
        scheduler = SchedulerConfig(
            tick_interval_ms=scheduler_tick_ms or SchedulerConfig().tick_interval_ms,
            events_enabled=events_enabled,
            metrics=metrics or NO_METRICS,
        )
        given: dict[str, Any] = {
            "consumer_id": consumer_id,
            "block_ms": read_block_ms,
            "batch": read_count,
            "claim_min_idle_ms": claim_min_idle_ms,
            "max_payload_bytes": max_payload_bytes,
            "dlq_max_stream_len": dlq_max_stream_len,
            "result_ttl_secs": _whole_seconds(result_ttl_ms),
            "retry": retry,
            "shutdown_deadline_secs": shutdown_deadline_secs,
            "metrics": metrics,
        }
        self._config = ConsumerConfig(
            queue_name=queue_name,
            concurrency=concurrency,
            max_attempts=max_attempts,
            group=group,
            events_enabled=events_enabled,
            delayed_enabled=delayed_enabled,
            run_scheduler=run_scheduler,
            scheduler=scheduler,
            store_results=store_results,
            **{key: value for key, value in given.items() if value is not None},
        )
        self._target = parse_url(redis_url, tls=tls)
        self._options = ConnectionOptions(
            credential_provider=credential_provider,
            reconnect_max_attempts=reconnect_max_attempts,
            client_name=f"chasquimq-worker-{self._config.consumer_id}",
        )
        self._handler = handler
        self._handle_signals = handle_signals
        self._was_signalled = False
        self._running: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._crew: Crew | None = None

    def __repr__(self) -> str:
        """Show live state."""
        state = "running" if self.is_running else "closed" if self.is_closed else "not started"
        return f"<Worker {self.name} {state} {self._crew or ''}>"

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._config.queue_name

    @property
    def is_running(self) -> bool:
        """Whether jobs are being worked on."""
        return self._running is not None and not self._running.done()

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._stop.is_set()

    async def run(self) -> None:
        """Work until `close`, then drain and return.

        Calling it again while it runs waits for the same end. In the main thread SIGTERM and SIGINT
        stop the worker gracefully, a second one at once; `handle_signals=False` leaves them alone.
        Cancelling the caller drains too.
        """
        if self._running is None or self._running.done():
            self._running = asyncio.get_running_loop().create_task(self._work(), name="worker")
        running = self._running
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            self._stop.set()
            await asyncio.wait([running])
            raise

    async def close(self, *, force: bool = False) -> None:
        """Tell the worker to stop, and return at once; `run` returns when it has drained.

        With `force` it does not wait for running handlers: they are cancelled now, and their jobs
        handed back with the run counted, as after a second signal.
        """
        self._stop.set()
        if force and self._crew is not None:
            self._crew.cut()

    async def __aenter__(self) -> Self:
        """The worker itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        await self.close()

    async def _work(self) -> None:
        if self._stop.is_set():
            return
        threads = None
        if not is_async(self._handler):
            threads = Threads(self._config.concurrency, name=f"job-{self.name}")
        self._crew = Crew(self._target, self._config, self._adapter(threads), options=self._options)
        restore = signals.catch(self._on_signal) if self._handle_signals else None
        log.info("worker %s on queue %s at %s, %d at a time", self._config.consumer_id, self.name,
                 self._target.safe_text, self._config.concurrency)  # fmt: skip
        try:
            await self._crew.run(self._stop)
            log.info("worker %s has stopped", self._config.consumer_id)
        finally:
            if restore is not None:
                restore()
            if threads is not None:
                threads.close()

    def _adapter(self, threads: Threads | None) -> EngineHandler:
        """What the engine calls: a `Job` in, packed bytes out."""
        handler, keeps_results = self._handler, self._config.store_results

        async def run(run: Run) -> bytes | None:
            envelope = run.envelope
            try:
                data = unpack(envelope.packed_data)
            except DecodeError as error:
                raise UndecodableDataError(error.message) from error
            job = Job(envelope.id, run.name, data, run.attempt, envelope.created_at_ms)
            if threads is None:
                value = await handler(job)
            else:
                value = await in_thread(threads, functools.partial(handler, job))
            return _packed(value) if keeps_results and value is not None else None

        return run

    def _on_signal(self, number: signal.Signals) -> None:
        if not self._was_signalled:
            self._was_signalled = True
            log.info("%s: finishing %d running jobs; once more to stop at once", number.name,
                     self._crew.running if self._crew else 0)  # fmt: skip
            self._stop.set()
        elif self._crew is not None:
            log.warning("%s again: stopping now", number.name)
            self._crew.cut()


def _packed(value: Any) -> bytes:  # noqa: ANN401 -- the handler's value
    try:
        return pack(value, name="result")
    except (TypeError, ValueError) as error:
        # The work is done, and doing it again would not make its result storable.
        msg = f"the handler's return value cannot be stored: {error}"
        raise UnrecoverableError(msg) from error


def _whole_seconds(result_ttl_ms: int | None) -> int | None:
    if result_ttl_ms is None:
        return None
    if isinstance(result_ttl_ms, bool) or result_ttl_ms <= 0:
        msg = f"result_ttl_ms must be positive; got {result_ttl_ms}"
        raise ConfigError(msg)
    return -(-result_ttl_ms // 1_000)
