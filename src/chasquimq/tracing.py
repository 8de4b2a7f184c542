"""The `Tracer` protocol: how adds and runs of jobs are traced, whatever the library.

`chasquimq.opentelemetry` has the one that most will want. The engine opens a span around an add,
lets the jobs carry what it gives, and opens another around each run with what the job carried.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

log = logging.getLogger("chasquimq.tracing")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AddSpan:
    """One call that adds jobs: `job_ids` and `names` go together, in order."""

    queue: str
    job_ids: tuple[str, ...]
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunSpan:
    """One run of a handler, from just before it to just after it."""

    queue: str
    group: str
    consumer_id: str
    job_id: str
    name: str
    attempt: int
    """Counts from 1."""
    is_last: bool
    """If this run fails there is no other: the job becomes a dead letter."""
    size: int
    """Bytes of the job's packed data."""
    is_discarded: Callable[[], bool] = field(default=lambda: False, repr=False, compare=False)
    """Whether the handler wants no other run by now (`job.discard`): if so, this is the last."""


class Tracer(Protocol):
    """Opens spans. What its methods raise is logged and reaches neither caller nor job."""

    def adding(self, span: AddSpan) -> AbstractContextManager[bytes | None]:
        """Surround an add; gives what each job carries to its runs, None for nothing.

        What the add raises passes through. Entered and left in the caller's task or thread.
        """
        ...

    def running(self, span: RunSpan, carried: bytes | None) -> AbstractContextManager[None]:
        """Surround a run, with what the job carried: None if that is nothing or is lost.

        What the handler raises passes through. Entered and left in the run's own context, which the
        handler sees, also in a thread.
        """
        ...


def checked_tracer(tracer: Tracer | None) -> Tracer | None:
    """The same tracer, if it has the methods of one."""
    for method in ("adding", "running"):
        if tracer is not None and not callable(getattr(tracer, method, None)):
            msg = f"tracing must be a tracer, got {tracer!r}, without {method!r}: see metrics.md"
            raise TypeError(msg)
    return tracer


@contextmanager
def quietly(open_span: Callable[[], AbstractContextManager[T]]) -> Iterator[T | None]:
    """A tracer's span, None if it cannot be opened; only what the block raises comes out."""
    try:
        manager = open_span()
        opened = manager.__enter__()
    except Exception:
        log.exception("a span was not opened; the job is not affected")
        yield None
        return
    try:
        yield opened
    except BaseException as error:
        _close(manager, error)
        raise
    _close(manager, None)


def _close(manager: AbstractContextManager[T], error: BaseException | None) -> None:
    trace = None if error is None else error.__traceback__
    try:
        manager.__exit__(type(error) if error else None, error, trace)
    except Exception as raised:
        if raised is not error:
            log.exception("a span was not closed; the job is not affected")
