"""`SparkWorker`: Spark's executors as the workers of a queue."""

import logging
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from chasquimq.app import Chasqui
from chasquimq.broker import inspect
from chasquimq.broker.blocking import BlockingConnection
from chasquimq.broker.options import ConnectionOptions
from chasquimq.broker.url import DEFAULT_URL, parse_url
from chasquimq.clock import monotonic_s
from chasquimq.config import RetryConfig
from chasquimq.errors import ChasquiError, ConfigError, ConnectionFailedError
from chasquimq.given import chosen
from chasquimq.spark.fleet_source import bound
from chasquimq.spark.leaders import Leaders
from chasquimq.spark.options import reachable
from chasquimq.spark.permit import Permit
from chasquimq.spark.session import session
from chasquimq.spark.slot import Recipe, SlotHandler, imported
from chasquimq.spark.source import server_of
from chasquimq.spark.stints import Stints, counted
from chasquimq.spark.vectors import SHAPES, Batching, Shape, vector_schema
from chasquimq.wire.keys import QueueKeys

log = logging.getLogger("chasquimq.spark")

# Between two looks at how the query stands.
_LOOK_S = 0.2
# Before a query that lost a process is started again.
_RESTART_S = 0.5
# A query that fails so often without finishing a batch is given up. A job that kills its process
# runs less often, unless it was given a larger budget.
_MOST_FAILURES = 50
# An error of Python, raised in a task, has one of these in its text; a process that died has not.
_TRACEBACK = "Traceback (most recent call last)"
# Errors of Python that pass: a server that is away, a Spark too busy to answer its own process.
_PASSING = (ConnectionFailedError.__name__, "CANNOT_OPEN_SOCKET")


class SparkWorker:
    """Runs a handler for every job of a queue, on Spark's executors.

    A streaming query whose every batch is a stint of each slot: a task in which an ordinary
    `Worker` takes jobs, runs them, and settles them by the engine's own rules. A job runs at least
    once, whatever is killed; after a kill at most what each slot had in hand runs again. Beside
    ordinary workers of the same group it is one of them. Its latency is Spark's, some 0.3 s after
    a time without work: it is for batches and for fleets, `Worker` is for speed of answer.

    The handler is a function of one `Job`, plain or async, that executors can unpickle; or the
    `module:name` of such a function, or of an app, that they can import.
    """

    def __init__(  # noqa: PLR0913 -- the documented arguments
        self,
        queue_name: str,
        handler: SlotHandler,
        *,
        spark: SparkSession | None = None,
        redis_url: str | None = None,
        name: str = "spark",
        slots: int = 2,
        concurrency: int = 8,
        batch: Shape | None = None,
        batch_size: int = 1_000,
        schema: StructType | str | None = None,
        max_jobs_per_slot: int = 1_000_000,
        max_secs_per_slot: float = 30.0,
        linger_ms: int = 1_000,
        max_attempts: int = 25,
        group: str = "default",
        store_results: bool = False,
        result_ttl_ms: int | None = None,
        read_count: int = 1_000,
        claim_min_idle_ms: int | None = None,
        max_payload_bytes: int | None = None,
        dlq_max_stream_len: int | None = None,
        retry: RetryConfig | None = None,
        events_enabled: bool = True,
        rate_limit_max: int | None = None,
        rate_limit_duration_ms: int = 1_000,
        delayed_enabled: bool = True,
        run_scheduler: bool = True,
        shutdown_deadline_secs: float = 30.0,
        app_dir: str | None = None,
    ) -> None:
        """Nothing runs before `run`; `docs/spark.md` has every argument.

        Arguments that `Worker` has mean what they mean there, in each slot.
        """
        self._spark = spark
        self._schema = schema
        self._deadline_s = shutdown_deadline_secs
        self._leading = {"promoter": delayed_enabled, "scheduler": run_scheduler}
        _require_positive(
            slots=slots,
            concurrency=concurrency,
            batch_size=batch_size,
            max_jobs_per_slot=max_jobs_per_slot,
            linger_ms=linger_ms,
        )
        _require_positive(kind=float, max_secs_per_slot=max_secs_per_slot)
        if not name.strip():
            msg = "name is blank: give the fleet a name, which its consumers begin with"
            raise ConfigError(msg)
        found = _checked(handler, app_dir)
        self._urls = redis_url, found.redis_url if isinstance(found, Chasqui) else None
        self._recipe = Recipe(
            queue=queue_name,
            fleet=name,
            holder=uuid.uuid4().hex,
            slots=slots,
            handler=handler,
            redis_url=server_of(None, *self._urls) or DEFAULT_URL,
            options=chosen(
                concurrency=concurrency,
                max_attempts=max_attempts,
                group=group,
                store_results=store_results,
                result_ttl_ms=result_ttl_ms,
                read_count=read_count,
                claim_min_idle_ms=claim_min_idle_ms,
                max_payload_bytes=max_payload_bytes,
                dlq_max_stream_len=dlq_max_stream_len,
                retry=retry,
                events_enabled=events_enabled,
                rate_limit_max=rate_limit_max,
                rate_limit_duration_ms=rate_limit_duration_ms,
            ),
            max_jobs_per_slot=max_jobs_per_slot,
            linger_ms=linger_ms,
            longest_ms=round(max_secs_per_slot * 1_000),
            app_dir=app_dir,
            batching=_batching(batch, batch_size, concurrency, schema),
        )
        # Refuses, here and now, what every slot would refuse.
        self._recipe.worker()
        self._stop = threading.Event()
        self._is_forced = False
        self._query: StreamingQuery | None = None

    def __repr__(self) -> str:
        """Show live state; never a secret."""
        state = "running" if self.is_running else "stopped" if self._stop.is_set() else "idle"
        return f"<SparkWorker {self._recipe.fleet} on {self.name}, {state}>"

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._recipe.queue

    @property
    def is_running(self) -> bool:
        """Whether its query is at work."""
        return self._query is not None and self._query.isActive

    def run(self, *, until_idle: bool = False) -> None:
        """Work until `stop`, and return when what was begun is settled.

        With `until_idle` it ends by itself once nothing waits, nothing is in flight and nothing
        delayed is due. A query that fails because a process died is started again; one that fails
        otherwise raises what Spark raised. Raises `ConfigError` if another driver runs a fleet of
        this name on this queue.
        """
        if self._stop.is_set():
            return
        with ExitStack() as afterwards:
            spark = self._spark or session()
            recipe = self._settled(spark)
            keys = QueueKeys(recipe.queue)
            target = reachable(parse_url(recipe.redis_url))
            options = ConnectionOptions(client_name=f"chasquimq-{recipe.fleet}")
            connection = BlockingConnection(target, options, slot_key=keys.tag)
            afterwards.callback(connection.close)
            connection.ready()
            permit = afterwards.enter_context(
                Permit(connection, recipe.queue, recipe.fleet, recipe.holder)
            )
            afterwards.enter_context(Leaders(recipe.redis_url, recipe.queue, **self._leading))
            log.info("fleet %s of %d slots on queue %s at %s", recipe.fleet, recipe.slots,
                     recipe.queue, target.safe_text)  # fmt: skip
            is_idle = inspect.is_idle(keys)
            self._work(spark, recipe, permit, lambda: until_idle and connection.run(is_idle))
            log.info("fleet %s has stopped", recipe.fleet)

    def stop(self, *, force: bool = False) -> None:
        """Take no more jobs, and return at once; `run` returns when those begun are settled.

        After `shutdown_deadline_secs`, or at once with `force`, tasks are cancelled instead: what
        they had in hand runs again. May be called from any thread, or from a signal's handler.
        """
        self._is_forced = self._is_forced or force
        self._stop.set()

    def __enter__(self) -> Self:
        """The worker itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """Stop."""
        self.stop()

    def _settled(self, spark: SparkSession) -> Recipe:
        """The recipe, with what only a session can say; the server is said in full.

        Executors have environments of their own.
        """
        recipe, batching = self._recipe, self._recipe.batching
        if batching is not None and isinstance(self._schema, str):
            try:
                parsed = spark.createDataFrame([], self._schema).schema
            except PySparkException as error:
                msg = (
                    f"schema is {self._schema!r}: use names and types, such as 'x long, who "
                    f"string' ({_first_line(error)})"
                )
                raise ConfigError(msg) from None
            vector_schema(parsed)
            recipe = replace(recipe, batching=replace(batching, schema=parsed))
        return replace(recipe, redis_url=server_of(spark, *self._urls) or DEFAULT_URL)

    def _work(
        self, spark: SparkSession, recipe: Recipe, permit: Permit, is_done: Callable[[], bool]
    ) -> None:
        source = bound(recipe)
        failures = 0
        while not self._stop.is_set():
            try:
                spark.dataSource.register(source)
                query = self._query = _started(spark, source.name(), recipe)
                stints = Stints(query, recipe.fleet, recipe.queue)
                try:
                    self._watch(query, stints, is_done)
                finally:
                    if self._stop.is_set() or query.isActive:
                        permit.release()
                        self._end(query)
                        stints.look()
            except (PySparkException, Py4JJavaError) as error:
                has_worked = self._query is not None and self._query.lastProgress is not None
                failures = 1 if has_worked else failures + 1
                if is_a_mistake(error) or failures > _MOST_FAILURES:
                    raise
                log.warning("fleet %s lost a process, its jobs are taken up again: %s",
                            recipe.fleet, _first_line(error),
                            extra={"queue": recipe.queue})  # fmt: skip
                self._stop.wait(_RESTART_S)

    def _watch(self, query: StreamingQuery, stints: Stints, is_done: Callable[[], bool]) -> None:
        """Return when it is time to stop; raise what ended the query."""
        while not self._stop.is_set():
            # Spark takes fractions of a second; its hints do not.
            if query.awaitTermination(_LOOK_S):  # type: ignore[arg-type]
                msg = f"somebody stopped the query {query.name!r} of fleet {self._recipe.fleet!r}"
                raise ChasquiError(msg)
            stints.look()
            if is_done():
                self._stop.set()

    def _end(self, query: StreamingQuery) -> None:
        """Let the stints that are under way come to their end, then stop the query.

        The permit is gone, so no other begins. One that begins all the same, because the planner
        had looked just before, takes nothing.
        """
        deadline = monotonic_s() + self._deadline_s
        try:
            while query.isActive and query.status["isTriggerActive"] and not self._is_forced:
                if monotonic_s() > deadline:
                    log.warning("handlers did not finish within %g s and are cut off: their jobs "
                                "will run again", self._deadline_s,
                                extra={"queue": self.name})  # fmt: skip
                    break
                time.sleep(_LOOK_S / 4)
        finally:
            query.stop()


def _started(spark: SparkSession, format_name: str, recipe: Recipe) -> StreamingQuery:
    """A query of the fleet, under a name that no other has had."""
    stints = counted(spark.readStream.format(format_name).load())
    return (
        stints.writeStream.format("noop")
        .queryName(f"chasquimq {recipe.fleet} {recipe.queue} {uuid.uuid4().hex[:8]}")
        .start()
    )


def _checked(handler: SlotHandler, app_dir: str | None) -> Any:  # noqa: ANN401 -- what it means
    """What the handler is, here on the driver."""
    if isinstance(handler, Chasqui):
        msg = "an app cannot be sent to executors: say where they find it, as in 'tasks:app'"
        raise TypeError(msg)
    return imported(handler, app_dir) if isinstance(handler, str) else handler


def _batching(
    shape: Shape | None, size: int, at_a_time: int, schema: StructType | str | None
) -> Batching | None:
    if shape is None:
        if schema is not None:
            msg = "schema is for batches: say batch='arrow' or batch='pandas' too"
            raise ConfigError(msg)
        return None
    if shape not in SHAPES:
        msg = f"batch is {shape!r}: use one of {', '.join(SHAPES)}, or None for job by job"
        raise ConfigError(msg)
    ready = schema if isinstance(schema, StructType) else None
    vector_schema(ready)
    return Batching(shape=shape, size=size, at_a_time=at_a_time, schema=ready)


def _require_positive(kind: type[int | float] = int, **given: float) -> None:
    asked = "a whole number" if kind is int else "a number"
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int | kind):
            msg = f"{name} must be {asked}, got {value!r}"
            raise TypeError(msg)
        if not value > 0:
            msg = f"{name} is {value}: use {asked} above 0"
            raise ConfigError(msg)


def is_a_mistake(error: Exception) -> bool:
    """Whether it would come again: what Python raised in a task, but for what passes."""
    text = str(error)
    return _TRACEBACK in text and not any(each in text for each in _PASSING)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
