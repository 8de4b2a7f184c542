"""`Tracing`: adds and runs of jobs as OpenTelemetry spans. Needs the extra `otel`.

    tracing = Tracing()
    queue = Queue("emails", tracing=tracing)
    worker = Worker("emails", handler, tracing=tracing)

Names and attributes follow OpenTelemetry's conventions for messaging; what has no place there
begins with `chasquimq.`. Only the API is needed: without an SDK nothing is recorded, and nothing
carried.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Literal, TypeAlias

from chasquimq.engine.failure import reason_of
from chasquimq.errors import DlqReason, RateLimitError
from chasquimq.tracing import AddSpan, RunSpan, Tracer

try:
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
    from opentelemetry.util.types import AttributeValue
except ModuleNotFoundError as missing:
    message = (
        "tracing with OpenTelemetry needs the extra 'otel', which is not installed: run "
        "python -m pip install opentelemetry-api"
    )
    raise ModuleNotFoundError(message, name=missing.name) from None

__all__ = ["Relation", "Tracing"]

Relation: TypeAlias = Literal["link", "parent"]

_SYSTEM = "chasquimq"
_RELATIONS = ("link", "parent")
_PARENT, _STATE = "traceparent", "tracestate"


class Tracing(Tracer):
    """One span for each add, one for each run.

    `relation` says how a run refers to the add of its job: as a `link` from a trace of its own, the
    default, which suits jobs that wait long, are retried, or come by the thousand; or as a child
    of it (`parent`), which shows request and job as one trace. Give queue and worker the same:
    with `link`, an add that is not sampled carries nothing, since nobody could follow the link.
    Baggage is not carried.
    """

    def __init__(
        self, *, relation: Relation = "link", tracer_provider: TracerProvider | None = None
    ) -> None:
        """Without a provider the global one is used, as it is when the first span is opened."""
        if relation not in _RELATIONS:
            msg = f"relation is {relation!r}: use one of {', '.join(_RELATIONS)}"
            raise ValueError(msg)
        self._relation = relation
        self._tracer = trace.get_tracer("chasquimq", _own_version(), tracer_provider)
        self._w3c = TraceContextTextMapPropagator()

    def __repr__(self) -> str:
        """Show the relation."""
        return f"<Tracing by {self._relation}>"

    @contextmanager
    def adding(self, span: AddSpan) -> Iterator[bytes | None]:
        """A producer span, current during the add; of several jobs one span with their number."""
        attributes = _common("add", "send", span.queue)
        if len(span.job_ids) == 1:
            attributes["messaging.message.id"] = span.job_ids[0]
        else:
            attributes["messaging.batch.message_count"] = len(span.job_ids)
        if len(set(span.names)) == 1:
            attributes["chasquimq.job.name"] = span.names[0]
        with self._tracer.start_as_current_span(
            f"add {span.queue}", kind=SpanKind.PRODUCER, attributes=attributes,
            record_exception=False, set_status_on_exception=False,
        ) as opened:  # fmt: skip
            try:
                yield self._carried(opened)
            except BaseException as error:
                _fail(opened, error)
                raise

    @contextmanager
    def running(self, span: RunSpan, carried: bytes | None) -> Iterator[None]:
        """A consumer span, current in the handler, that says what becomes of the job."""
        attributes = _common("process", "process", span.queue)
        attributes |= {
            "messaging.message.id": span.job_id,
            "messaging.message.body.size": span.size,
            "messaging.consumer.group.name": span.group,
            "messaging.client.id": span.consumer_id,
            "chasquimq.job.name": span.name,
            "chasquimq.job.attempt": span.attempt,
        }
        context, links = self._origin(carried)
        with self._tracer.start_as_current_span(
            f"process {span.queue}", context=context, kind=SpanKind.CONSUMER,
            attributes=attributes, links=links,
            record_exception=False, set_status_on_exception=False,
        ) as opened:  # fmt: skip
            try:
                yield
            except BaseException as error:
                _fail(opened, error)
                _note_disposition(opened, span, error)
                raise
            opened.set_attribute("chasquimq.disposition", "complete")

    def _carried(self, span: Span) -> bytes | None:
        context = span.get_span_context()
        if not context.is_valid or (self._relation == "link" and not context.trace_flags.sampled):
            return None
        headers: dict[str, str] = {}
        self._w3c.inject(headers, trace.set_span_in_context(span, Context()))
        lines = [headers[_PARENT], *filter(None, [headers.get(_STATE)])]
        return "\n".join(lines).encode()

    def _origin(self, carried: bytes | None) -> tuple[Context, list[Link]]:
        """Where a run's span hangs. Never under what was current when the worker was started."""
        if carried is None:
            return Context(), []
        parent, _, state = carried.decode("utf-8", "replace").partition("\n")
        origin = self._w3c.extract({_PARENT: parent, _STATE: state}, Context())
        if self._relation == "parent":
            return origin, []
        context = trace.get_current_span(origin).get_span_context()
        return Context(), [Link(context)] if context.is_valid else []


def _common(operation: str, kind: str, queue: str) -> dict[str, AttributeValue]:
    return {
        "messaging.system": _SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
        "messaging.destination.name": queue,
    }


def _fail(span: Span, error: BaseException) -> None:
    span.record_exception(error)
    kind = type(error)
    # As `record_exception` names it.
    name = kind.__qualname__
    is_builtin = kind.__module__ in (None, "builtins")
    span.set_attribute("error.type", name if is_builtin else f"{kind.__module__}.{name}")
    span.set_status(Status(StatusCode.ERROR, f"{kind.__name__}: {error}"))


def _note_disposition(span: Span, run: RunSpan, error: BaseException) -> None:
    """What follows from a failure, by the rule that also decides it.

    Of a cancellation the rule cannot tell here: a stop hands the job back, a handler that cancels
    itself has failed.
    """
    if not isinstance(error, Exception | SystemExit):
        return
    if isinstance(error, RateLimitError):
        span.set_attribute("chasquimq.disposition", "postponed")
        return
    reason = reason_of(error)
    if reason is None and run.is_discarded():
        reason = DlqReason.UNRECOVERABLE
    elif reason is None and run.is_last:
        reason = DlqReason.RETRIES_EXHAUSTED
    if reason is None:
        span.set_attribute("chasquimq.disposition", "retry")
        span.add_event("retry", {"chasquimq.job.attempt": run.attempt + 1})
    else:
        span.set_attribute("chasquimq.disposition", "dead-letter")
        span.add_event("dead-letter", {"chasquimq.dlq.reason": str(reason)})


def _own_version() -> str | None:
    try:
        return version("chasquimq")
    except PackageNotFoundError:
        return None  # run from a source tree that was not installed
