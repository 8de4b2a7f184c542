"""One slot of a fleet: a worker that runs inside a Spark task, for a stint.

It is the ordinary `Worker`, with its own event loop for as long as the task lasts. So what becomes
of a job, its events, its result and its lease are the engine's business and the same everywhere;
only how it takes jobs (`engine/stint.py`) is a slot's own.
"""

import functools
import gc
import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from chasquimq.app import Chasqui
from chasquimq.config import ConsumerConfig
from chasquimq.engine.batch_executor import BatchExecutor
from chasquimq.engine.stint import StintEnd, StintIntake, StintTerms
from chasquimq.errors import ConfigError
from chasquimq.loops import run_on_loop
from chasquimq.metrics import DlqRouted, JobOutcome, JobOutcomeKind, NoopSink, RetryScheduled
from chasquimq.spark.vectors import Batching, Vectors
from chasquimq.wire.keys import QueueKeys
from chasquimq.worker import Worker

# A stint that ends by itself waits for its handlers, however long they take.
_NO_HURRY_S = 10 * 365 * 86_400.0

SlotHandler: TypeAlias = Callable[[Any], Any] | str
"""A function, or `module:name` of a function or an app that every executor can import."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """All that a slot has to know; travels to the executors inside the plan, as a value."""

    queue: str
    fleet: str
    holder: str
    """Which driver runs the fleet: without its permit a slot takes nothing."""
    slots: int
    handler: SlotHandler = field(repr=False)
    redis_url: str = field(repr=False)
    options: Mapping[str, Any] = field(repr=False)
    """Of `Worker`."""
    max_jobs_per_slot: int
    linger_ms: int
    longest_ms: int
    app_dir: str | None = None
    batching: Batching | None = None

    def consumer(self, slot: int) -> str:
        """The slot's name in the group; the same in every stint, so that it finds its own."""
        return f"{self.fleet}-{slot}"

    @property
    def group(self) -> str:
        """The consumer group."""
        return str(self.options.get("group") or ConsumerConfig().group)

    @property
    def lease_ms(self) -> int:
        """How long a delivery may be silent before it is taken over."""
        return int(self.options.get("claim_min_idle_ms") or ConsumerConfig().claim_min_idle_ms)

    @property
    def permit(self) -> tuple[bytes, str]:
        """The lock of the fleet, and who has to hold it."""
        return QueueKeys(self.queue).fleet(self.fleet), self.holder

    def worker(self, **more: Any) -> Worker:  # noqa: ANN401 -- options of `Worker`
        """The worker of a slot; raises for what `Worker` refuses."""
        options = {
            **self.options,
            "delayed_enabled": False,
            "run_scheduler": False,
            "handle_signals": False,
            "shutdown_deadline_secs": _NO_HURRY_S,
            **more,
        }
        handler = self.handler
        if isinstance(handler, str):
            handler = imported(handler, self.app_dir)
        if isinstance(handler, Chasqui):
            if self.batching is not None:
                msg = "an app runs its tasks job by job: name a function for whole batches"
                raise ConfigError(msg)
            return handler.worker(self.queue, redis_url=self.redis_url, **options)
        if self.batching is None:
            return Worker(self.queue, handler, redis_url=self.redis_url, **options)
        options["concurrency"] = self.batching.size * self.batching.at_a_time
        keeps = bool(options.get("store_results"))
        vectors = Vectors(handler, self.batching, keeps_results=keeps)
        worker = Worker(self.queue, handler, redis_url=self.redis_url, **options)
        worker._make_slots = functools.partial(BatchExecutor, vectors, size=self.batching.size)  # noqa: SLF001 -- of the same package
        return worker


@dataclass(frozen=True, slots=True)
class Stinted:
    """What a slot did in one stint."""

    consumer: str
    completed: int
    failed: int
    retried: int
    dead: int
    ended: str


def work(recipe: Recipe, slot: int) -> Stinted:
    """In a task: run jobs until there is a reason to end.

    After a `kill -9` what was not settled is pending under the slot's name: the next stint takes it
    up at once, or any worker when its lease has run out.
    """
    _spare_collector()
    return run_on_loop(_work(recipe, slot))


@functools.cache
def _spare_collector() -> None:
    """Let the collector leave alone what is there to stay: Spark's modules and ours.

    It would look through them again every few thousand jobs. Once in a process, which Spark uses
    for many stints: what a stint leaves behind must not be kept with them.
    """
    gc.collect()
    gc.freeze()


async def _work(recipe: Recipe, slot: int) -> Stinted:
    tally, ends = _Tally(), [StintEnd.DISMISSED]
    worker = recipe.worker(consumer_id=recipe.consumer(slot), metrics=tally)
    terms = StintTerms(
        most=recipe.max_jobs_per_slot,
        linger_ms=recipe.linger_ms,
        longest_ms=recipe.longest_ms,
        permit=recipe.permit,
    )

    def end(reason: StintEnd) -> None:
        ends.append(reason)
        worker._begin_stop(f"the stint is over: {reason}")  # noqa: SLF001 -- of the same package

    worker._make_intake = functools.partial(StintIntake, terms=terms, on_end=end)  # noqa: SLF001
    # One that finds the queue paused when it begins does not get to take anything.
    worker.on("paused", lambda *_: end(StintEnd.PAUSED))
    await worker.run()
    counts = (tally.completed, tally.failed, tally.retried, tally.dead)
    return Stinted(recipe.consumer(slot), *counts, str(ends[-1]))


class _Tally(NoopSink):
    """Counts what becomes of jobs."""

    def __init__(self) -> None:
        self.completed = self.failed = self.retried = self.dead = 0

    def job_outcome(self, outcome: JobOutcome) -> None:
        if outcome.kind is JobOutcomeKind.OK:
            self.completed += 1
        else:
            self.failed += 1

    def retry_scheduled(self, event: RetryScheduled) -> None:  # noqa: ARG002 -- only that it was
        self.retried += 1

    def dlq_routed(self, event: DlqRouted) -> None:  # noqa: ARG002
        self.dead += 1


def imported(target: str, app_dir: str | None) -> Any:  # noqa: ANN401 -- whatever stands there
    """What `module:name` means here; `ConfigError` says why that is nothing."""
    module, _, path = target.partition(":")
    if not module or not path:
        msg = f"handler {target!r} names nothing: write module:name, as in tasks:handle"
        raise ConfigError(msg)
    if app_dir is not None and app_dir not in sys.path:
        sys.path.insert(0, app_dir)
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        msg = (
            f"handler {target!r} cannot be imported ({error}): install its module where the "
            "executors run"
        )
        raise ConfigError(msg) from error
    return found
