"""`Worker`: one handler, one queue, one `Crew`; a `Job` in, packed bytes out."""

import asyncio
import functools
import logging
import signal
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from chasquimq.broker.options import ConnectionOptions, CredentialProvider
from chasquimq.broker.url import parse_url
from chasquimq.config import ConsumerConfig, RateLimitScope, RetryConfig, SchedulerConfig, ttl_secs
from chasquimq.engine import signals
from chasquimq.engine.admission import NO_NAMES
from chasquimq.engine.crew import Crew
from chasquimq.engine.executor import Executor
from chasquimq.engine.intake import MakeIntake, intake
from chasquimq.engine.outlast import outlast
from chasquimq.engine.scribe import Scribe
from chasquimq.engine.slots import MakeSlots
from chasquimq.engine.threads import Threads
from chasquimq.engine.traces import Traces
from chasquimq.errors import ChasquiError, ConfigError, ShutdownError
from chasquimq.given import chosen
from chasquimq.handlers import is_async
from chasquimq.handling import Handler, adapted, checked_handler
from chasquimq.listeners import Listener, Listeners
from chasquimq.metrics import NO_METRICS, MetricsSink
from chasquimq.monitor import Watched, monitor
from chasquimq.tracing import Tracer, checked_tracer

log = logging.getLogger("chasquimq.worker")

EVENTS = (
    "ready", "active", "completed", "failed", "progress", "drained", "paused", "resumed", "error",
    "closing", "closed",
)  # fmt: skip
"""What a worker's listeners can be told of."""

_DEFAULT_MAX_ATTEMPTS = 25


class Worker:
    """Runs a handler for every job of a queue.

    The handler may be a coroutine function or a plain one, which then runs in a thread. What it
    raises is retried with backoff, up to `max_attempts` runs, and then dead-lettered;
    `UnrecoverableError` is dead-lettered at once. A job runs at least once, and never twice at the
    same time while its worker lives.
    """

    _make_slots: MakeSlots | None = None
    """How runs are made, if not by calling the handler for each."""

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
        rate_limit_max: int | None = None,
        rate_limit_duration_ms: int = 1_000,
        rate_limit_scope: RateLimitScope = "queue",
        log_max_stream_len: int = 1_000,
        log_max_line_bytes: int = 8_192,
        events_progress_enabled: bool = True,
        metrics_port: int | None = None,
        metrics_host: str = "127.0.0.1",
        tracing: Tracer | None = None,
    ) -> None:
        """Nothing runs before `run`; `docs/configuration.md` has every argument and default."""
        self._handler = checked_handler(handler)
        self._monitor = monitor(metrics_host, metrics_port, queue=queue_name, metrics=metrics)
        metrics = self._monitor.sink if self._monitor else metrics
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
        self._config = ConsumerConfig(
            queue_name=queue_name,
            concurrency=concurrency,
            max_attempts=max_attempts,
            group=group,
            events_enabled=events_enabled,
            delayed_enabled=delayed_enabled,
            run_scheduler=run_scheduler,
            scheduler=_scheduler(scheduler_tick_ms, metrics, events_enabled=events_enabled),
            store_results=store_results,
            rate_limit_max=rate_limit_max,
            rate_limit_duration_ms=rate_limit_duration_ms,
            rate_limit_scope=rate_limit_scope,
            log_max_stream_len=log_max_stream_len,
            log_max_line_bytes=log_max_line_bytes,
            events_progress_enabled=events_progress_enabled,
            **settings,
        )
        self._target = parse_url(redis_url, tls=tls)
        self._options = ConnectionOptions(
            credential_provider=credential_provider,
            reconnect_max_attempts=reconnect_max_attempts,
            client_name=f"chasquimq-worker-{self._config.consumer_id}",
        )
        self._tracing = checked_tracer(tracing)
        self._handle_signals = handle_signals
        self._was_signalled = False
        self._running: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._crew: Crew | None = None
        self._is_paused = self._is_ready = False
        self._decided = asyncio.Event()
        self._listeners = Listeners(EVENTS.__contains__, ", ".join(EVENTS))
        self._make_intake: MakeIntake = intake
        self._retry_by_name = NO_NAMES

    def __repr__(self) -> str:
        """Show live state."""
        state = "running" if self.is_running else "closed" if self.is_closed else "not started"
        return f"<Worker {self.name} {state}{f' {self._crew}' if self._crew else ''}>"

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

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """Host and port where metrics are served, while they are; port 0 has become a real one."""
        return self._monitor.address if self._monitor else None

    async def run(self) -> None:
        """Work until `close`, then drain and return.

        Calling it again while it runs waits for the same end. In the main thread SIGTERM and SIGINT
        stop the worker gracefully, a second one at once; `handle_signals=False` leaves them alone.
        Cancelling the caller drains too, however often it is done.
        """
        if self._running is None or self._running.done():
            self._running = asyncio.get_running_loop().create_task(self._work(), name="worker")
        await outlast(self._running, lambda: self._begin_stop("run was cancelled"))

    async def wait_until_ready(self) -> None:
        """Return once jobs are being read: connected, and in the group.

        Waits for somebody to call `run`. Raises what `run` raised if it failed before, and
        `ShutdownError` if the worker was closed.
        """
        await self._decided.wait()
        if self._is_ready:
            return
        if self._running is not None:
            await asyncio.shield(self._running)
        msg = f"the worker of queue {self.name!r} was closed before it was ready"
        raise ShutdownError(msg)

    def pause(self) -> None:
        """Let this worker take no more jobs; what runs goes on, what was not begun goes back."""
        self._is_paused = True
        if self._crew is not None:
            self._crew.pause()

    def resume(self) -> None:
        """End `pause`. If the queue is paused too (`Queue.pause`), that stays."""
        self._is_paused = False
        if self._crew is not None:
            self._crew.resume()

    def is_paused(self) -> bool:
        """Whether this worker takes no jobs because it was paused, or its queue."""
        return self._is_paused or (self._crew is not None and self._crew.is_paused)

    async def rate_limit(self, expire_time_ms: int) -> None:
        """Take no job for so long, because somebody else's limit was hit.

        With `rate_limit_max` and scope `"queue"` this holds for every worker that shares the limit;
        without, for this worker. Jobs that run go on. See `RateLimitError` for the job at hand.
        """
        if isinstance(expire_time_ms, bool) or not isinstance(expire_time_ms, int):
            msg = f"expire_time_ms must be an int, got {type(expire_time_ms).__name__}"
            raise TypeError(msg)
        if expire_time_ms < 1:
            msg = f"expire_time_ms must be 1 or more, got {expire_time_ms}"
            raise ValueError(msg)
        if self._crew is None or not self.is_running:
            msg = "the worker does not run: call rate_limit in a handler or a listener"
            raise ChasquiError(msg)
        await self._crew.rate_limit(expire_time_ms)

    def on(self, event: str, listener: Listener) -> None:
        """Call `listener`, plain or async, whenever `event` happens in this worker.

        It runs beside the jobs, after the fact; what it raises is logged. The events and their
        arguments are in `docs/workers.md`.
        """
        self._listeners.on(event, listener)

    def once(self, event: str, listener: Listener) -> None:
        """Call `listener` the next time only."""
        self._listeners.on(event, listener, once=True)

    def off(self, event: str, listener: Listener) -> bool:
        """Take back an `on` or `once`; False if there was none."""
        return self._listeners.off(event, listener)

    def remove_listener(self, event: str, listener: Listener) -> bool:
        """The same as `off`."""
        return self.off(event, listener)

    def listener_count(self, event: str) -> int:
        """How many listen to `event`."""
        return self._listeners.count(event)

    async def close(self, *, force: bool = False) -> None:
        """Tell the worker to stop, and return at once; `run` returns when it has drained.

        With `force` it does not wait for running handlers: they are cancelled now, and their jobs
        handed back with the run counted, as after a second signal.
        """
        self._begin_stop("close was called")
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
        self._decided.clear()
        try:
            async with AsyncExitStack() as afterwards:
                self._crew = self._assemble(afterwards)
                log.info("worker %s on queue %s at %s, %d at a time", self._config.consumer_id,
                         self.name, self._target.safe_text, self._config.concurrency)  # fmt: skip
                await self._crew.run(self._stop)
                log.info("worker %s has stopped", self._config.consumer_id)
        except Exception as error:
            self._tell("error", error)
            raise
        finally:
            self._is_ready = False
            self._decided.set()
            self._tell("closed")
            await self._listeners.drain(self._config.shutdown_deadline_secs)

    def _assemble(self, afterwards: AsyncExitStack) -> Crew:
        """A crew and what stands around it; `afterwards` undoes it all, the latest first."""
        threads = None
        if not is_async(self._handler):
            threads = Threads(self._config.concurrency, name=f"job-{self.name}")
            afterwards.callback(threads.close)
        handler = adapted(
            self._handler,
            threads=threads,
            keeps_results=self._config.store_results,
            scribe=self._scribe,
            listeners=self._listeners,
        )
        if self._tracing is not None:
            traces = Traces(self._tracing, self._config, self._target, self._options)
            traces.start()
            afterwards.push_async_callback(traces.end)
            handler = traces.around(handler)
        if self._monitor is not None:
            self._monitor.start(self._watched())
            afterwards.push_async_callback(self._monitor.end)
        crew = Crew(
            self._target,
            self._config,
            self._make_slots or functools.partial(Executor, handler),
            options=self._options,
            tell=self._tell,
            make_intake=self._make_intake,
            retry_by_name=self._retry_by_name,
        )
        if self._is_paused:
            crew.pause()
        if self._handle_signals:
            afterwards.callback(signals.catch(self._on_signal))
        return crew

    def _watched(self) -> Watched:
        """What the monitor is shown."""
        return Watched(
            self._config,
            self._target,
            self._options,
            vitals=lambda: self._crew.vitals if self._crew else None,
            is_stopping=self._stop.is_set,
            is_paused=self.is_paused,
            is_held=lambda: self._crew is not None and self._crew.is_held,
        )

    def _scribe(self) -> Scribe:
        assert self._crew is not None  # noqa: S101 -- who runs a handler is a crew
        return self._crew.scribe

    def _tell(self, event: str, *arguments: object) -> None:
        if event == "ready":
            self._is_ready = True
            self._decided.set()
        self._listeners.emit(event, *arguments)

    def _begin_stop(self, reason: str) -> None:
        if not self._stop.is_set():
            self._stop.set()
            self._decided.set()
            if self.is_running:
                self._tell("closing", reason)

    def _on_signal(self, number: signal.Signals) -> None:
        if not self._was_signalled:
            self._was_signalled = True
            log.info("%s: finishing %d running jobs; once more to stop at once", number.name,
                     self._crew.running if self._crew else 0)  # fmt: skip
            self._begin_stop(f"{number.name} was received")
        elif self._crew is not None:
            log.warning("%s again: stopping now", number.name)
            self._crew.cut()


def _scheduler(
    scheduler_tick_ms: int | None, metrics: MetricsSink | None, *, events_enabled: bool
) -> SchedulerConfig:
    if scheduler_tick_ms is not None and scheduler_tick_ms < 0:
        msg = f"scheduler_tick_ms must be non-negative; got {scheduler_tick_ms}"
        raise ConfigError(msg)
    return SchedulerConfig(
        tick_interval_ms=scheduler_tick_ms or SchedulerConfig().tick_interval_ms,
        events_enabled=events_enabled,
        metrics=metrics or NO_METRICS,
    )
