"""Adds and runs as spans: a real SDK, real workers, spans collected in memory."""

import asyncio
import threading
from contextlib import contextmanager

import pytest
from opentelemetry import context as context_api
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

from chasquimq import (
    HandlerError,
    Queue,
    QueueFullError,
    RateLimitError,
    UnrecoverableError,
    Worker,
)
from chasquimq.config import TRACE_TTL_SECS
from chasquimq.opentelemetry import Tracing
from chasquimq.testing import run_until_idle
from chasquimq.tracing import RunSpan
from chasquimq.wire.keys import QueueKeys
from tests.api.conftest import Door
from tests.support.eventually import eventually

HOUR_MS = 3_600_000


class Spans:
    """Everything that ended, and a tracer that records into it."""

    def __init__(self, **options):
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(**options)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def tracing(self, relation="link"):
        return Tracing(relation=relation, tracer_provider=self.provider)

    def of(self, kind):
        ended = [span for span in self._exporter.get_finished_spans() if span.kind is kind]
        return sorted(ended, key=lambda span: span.start_time)

    @property
    def adds(self):
        return self.of(SpanKind.PRODUCER)

    @property
    def runs(self):
        return self.of(SpanKind.CONSUMER)


@pytest.fixture
def spans():
    return Spans()


@pytest.fixture(params=["link", "parent"])
def relation(request):
    return request.param


@pytest.fixture
def keys(queue_name):
    return QueueKeys(queue_name)


async def nothing(job):
    return None


def are_joined(add, run, relation):
    """Whether a run refers to the add of its job in the way that was chosen."""
    if relation == "parent":
        return run.parent is not None and run.parent.span_id == add.context.span_id
    return run.parent is None and [link.context.span_id for link in run.links] == [
        add.context.span_id
    ]


async def test_an_add_and_a_run_are_spans_joined_through_the_job(
    spans, relation, make_door, make_worker, queue, queue_name
):
    tracing = spans.tracing(relation)
    job = await make_door(tracing=tracing).add("mail", {"to": "ada"})
    await run_until_idle(make_worker(nothing, consumer_id="c-1", tracing=tracing), queue)

    (add,), (run,) = spans.adds, spans.runs
    assert (add.name, run.name) == (f"add {queue_name}", f"process {queue_name}")
    assert are_joined(add, run, relation)
    assert (add.context.trace_id == run.context.trace_id) is (relation == "parent")
    assert dict(add.attributes) == {
        "messaging.system": "chasquimq",
        "messaging.operation.name": "add",
        "messaging.operation.type": "send",
        "messaging.destination.name": queue_name,
        "messaging.message.id": job.id,
        "chasquimq.job.name": "mail",
    }
    assert dict(run.attributes) == {
        "messaging.system": "chasquimq",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": queue_name,
        "messaging.message.id": job.id,
        "messaging.message.body.size": 8,
        "messaging.consumer.group.name": "default",
        "messaging.client.id": "c-1",
        "chasquimq.job.name": "mail",
        "chasquimq.job.attempt": 1,
        "chasquimq.disposition": "complete",
    }
    assert {add.status.status_code, run.status.status_code} == {StatusCode.UNSET}


async def test_a_bulk_is_one_span_with_the_number_of_jobs_that_all_runs_refer_to(
    spans, make_door, make_worker, queue
):
    tracing = spans.tracing()
    kinds = [{}, {"job_id": "mine"}, {"delay_ms": 1}]
    jobs = [{"name": f"n{at}", "data": at, **kind} for at, kind in enumerate(kinds)]
    await make_door(tracing=tracing).add_bulk(jobs)
    await run_until_idle(make_worker(nothing, tracing=tracing), queue)

    (add,) = spans.adds
    assert add.attributes["messaging.batch.message_count"] == 3
    assert "messaging.message.id" not in add.attributes
    assert "chasquimq.job.name" not in add.attributes
    assert len(spans.runs) == 3
    assert all(are_joined(add, run, "link") for run in spans.runs)


async def test_adds_of_one_turn_that_travel_together_keep_their_own_spans(
    spans, make_worker, server, queue_name
):
    tracing = spans.tracing()
    async with Queue(queue_name, redis_url=server.url, tracing=tracing) as queue:
        jobs = await asyncio.gather(*(queue.add("mail", n) for n in range(20)))
        await run_until_idle(make_worker(nothing, tracing=tracing), queue)
    by_job = {span.attributes["messaging.message.id"]: span for span in spans.adds}
    assert by_job.keys() == {job.id for job in jobs}
    for run in spans.runs:
        assert are_joined(by_job[run.attributes["messaging.message.id"]], run, "link")


async def test_the_relation_survives_delay_retry_death_and_replay(
    spans, relation, make_door, make_worker, queue
):
    async def fails(job):
        raise RuntimeError(job.name)

    tracing = spans.tracing(relation)
    await make_door(tracing=tracing).add("mail", 1, delay_ms=5, attempts=2)
    await run_until_idle(make_worker(fails, tracing=tracing), queue)
    assert await queue.replay_dlq() == 1
    await run_until_idle(make_worker(nothing, tracing=tracing), queue)

    (add,) = spans.adds
    assert [run.attributes["chasquimq.job.attempt"] for run in spans.runs] == [1, 2, 1]
    assert all(are_joined(add, run, relation) for run in spans.runs)
    assert [run.attributes["chasquimq.disposition"] for run in spans.runs] == [
        "retry",
        "dead-letter",
        "complete",
    ]


async def test_a_failed_run_has_its_exception_its_status_and_what_follows(
    spans, make_worker, queue
):
    async def handler(job):
        raise UnrecoverableError("no such user") if job.name == "bad" else OSError("disk full")

    await queue.add("shaky", 1, attempts=2, backoff=HOUR_MS)
    await queue.add("bad", 1)
    await run_until_idle(make_worker(handler, tracing=spans.tracing()), queue)

    shaky, bad = sorted(spans.runs, key=lambda run: run.attributes["chasquimq.job.name"])[::-1]
    assert shaky.status.status_code is bad.status.status_code is StatusCode.ERROR
    assert shaky.status.description == "OSError: disk full"
    assert shaky.attributes["error.type"] == "OSError"
    assert bad.attributes["error.type"] == "chasquimq.UnrecoverableError"
    assert [event.name for event in shaky.events] == ["exception", "retry"]
    assert dict(shaky.events[1].attributes) == {"chasquimq.job.attempt": 2}
    assert [event.name for event in bad.events] == ["exception", "dead-letter"]
    assert dict(bad.events[1].attributes) == {"chasquimq.dlq.reason": "unrecoverable"}
    assert bad.events[0].attributes["exception.message"] == "no such user"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (HandlerError.unrecoverable("no such user"), "unrecoverable"),
        (HandlerError(UnrecoverableError("no such user")), "unrecoverable"),
        (HandlerError(HandlerError.unrecoverable(OSError("gone"))), "unrecoverable"),
        (HandlerError("disk full"), None),
    ],
    ids=["unrecoverable", "of an unrecoverable one", "nested", "to be retried"],
)
async def test_a_span_says_of_a_wrapped_error_what_becomes_of_its_job(
    spans, make_worker, queue, error, reason
):
    async def handler(job):
        raise error

    await queue.add("n", 1, attempts=2, backoff=HOUR_MS)
    await run_until_idle(make_worker(handler, tracing=spans.tracing()), queue)

    (run,) = spans.runs
    letters = await queue.peek_dlq()
    assert [letter["reason"] for letter in letters] == ([reason] if reason else [])
    assert run.attributes["chasquimq.disposition"] == ("dead-letter" if reason else "retry")
    assert dict(run.events[-1].attributes).get("chasquimq.dlq.reason") == reason


@pytest.mark.parametrize(("is_discarded", "disposition"), [(True, "dead-letter"), (False, "retry")])
def test_a_span_is_asked_after_the_failure_whether_another_run_is_wanted(
    spans, is_discarded, disposition
):
    wishes = []
    span = RunSpan(
        queue="q", group="default", consumer_id="c-1", job_id="j", name="n", attempt=1,
        is_last=False, size=0, is_discarded=lambda: bool(wishes),
    )  # fmt: skip

    def run():
        with spans.tracing().running(span, None):
            if is_discarded:
                wishes.append("no other run")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run()
    (ended,) = spans.runs
    assert ended.attributes["chasquimq.disposition"] == disposition


@pytest.mark.parametrize("is_async", [True, False], ids=["coroutine", "plain"])
async def test_a_failed_run_that_was_discarded_is_a_dead_letter_in_its_span(
    spans, make_worker, queue, is_async
):
    def plain(job):
        job.discard()
        raise OSError

    async def handler(job):
        plain(job)

    await queue.add("n", 1, attempts=2, backoff=HOUR_MS)
    tracing = spans.tracing()
    await run_until_idle(make_worker(handler if is_async else plain, tracing=tracing), queue)
    (run,) = spans.runs
    assert run.attributes["chasquimq.disposition"] == "dead-letter"
    assert dict(run.events[-1].attributes) == {"chasquimq.dlq.reason": "unrecoverable"}


async def test_a_handler_that_is_cut_off_by_a_stop_ends_its_span(spans, make_worker, queue):
    begun = asyncio.Event()

    async def handler(job):
        begun.set()
        await asyncio.Event().wait()

    await queue.add("n", None)
    worker = make_worker(handler, tracing=spans.tracing(), shutdown_deadline_secs=0)
    working = asyncio.create_task(worker.run())
    await begun.wait()
    await worker.close()
    await working
    (run,) = spans.runs
    assert run.attributes["error.type"].endswith("CancelledError")
    assert "chasquimq.disposition" not in run.attributes


@pytest.mark.parametrize("is_async", [True, False], ids=["coroutine", "plain"])
async def test_the_span_is_current_in_the_handler_and_nowhere_else(
    spans, make_worker, queue, is_async
):
    seen = []

    def plain(job):
        assert threading.current_thread() is not threading.main_thread()
        seen.append(trace.get_current_span().get_span_context().span_id)

    async def handler(job):
        seen.append(trace.get_current_span().get_span_context().span_id)

    await queue.add("n", None)
    tracer = spans.provider.get_tracer("test")
    with tracer.start_as_current_span("what was current when the worker was made"):
        worker = make_worker(handler if is_async else plain, tracing=spans.tracing())
        await run_until_idle(worker, queue)
    (run,) = spans.runs
    assert seen == [run.context.span_id]
    assert run.parent is None
    assert not trace.get_current_span().get_span_context().is_valid


async def test_an_add_is_a_child_of_what_is_current_where_it_is_called(spans, make_door):
    door = make_door(tracing=spans.tracing())
    with spans.provider.get_tracer("test").start_as_current_span("request") as request:
        await door.add("n", None)
    (add,) = spans.adds
    assert add.parent.span_id == request.get_span_context().span_id


async def test_an_add_that_is_refused_ends_its_span_with_the_error(spans, make_door):
    door = make_door(tracing=spans.tracing(), max_stream_len=1)
    await door.add("n", 1)
    with pytest.raises(QueueFullError):
        await door.add("n", 2)
    assert [span.status.status_code for span in spans.adds] == [StatusCode.UNSET, StatusCode.ERROR]


# --- the key


async def test_the_key_holds_w3c_text_expires_and_is_gone_when_the_job_has_succeeded(
    spans, make_door, make_worker, queue, server, keys
):
    door = make_door(tracing=spans.tracing())
    job = await door.add("n", 1)
    later = await door.add("n", 2, delay_ms=HOUR_MS)
    client = server.client()
    (now, then) = spans.adds
    assert client.get(keys.trace(job.id)).decode() == (
        f"00-{now.context.trace_id:032x}-{now.context.span_id:016x}-{now.context.trace_flags:02x}"
    )
    assert TRACE_TTL_SECS - 60 < client.ttl(keys.trace(job.id)) <= TRACE_TTL_SECS
    assert client.ttl(keys.trace(later.id)) > TRACE_TTL_SECS + 3_000
    assert f"{then.context.span_id:016x}" in client.get(keys.trace(later.id)).decode()
    await run_until_idle(make_worker(nothing, tracing=spans.tracing()), queue)
    assert not client.exists(keys.trace(job.id))
    assert client.exists(keys.trace(later.id))


async def test_a_second_add_of_a_taken_id_leaves_the_first_ones_trace(
    spans, make_door, server, keys
):
    door = make_door(tracing=spans.tracing())
    await door.add("n", 1, job_id="mine")
    first = server.client().get(keys.trace("mine"))
    again = await door.add("n", 1, job_id="mine")
    assert again.deduplicated
    assert server.client().get(keys.trace("mine")) == first


async def test_tracestate_travels_too(spans, make_door, make_worker, queue):
    parent = trace.SpanContext(
        1, 2, is_remote=True, trace_flags=trace.TraceFlags(1),
        trace_state=trace.TraceState([("vendor", "x")]),
    )  # fmt: skip
    token = context_api.attach(
        trace.set_span_in_context(trace.NonRecordingSpan(parent), context_api.Context())
    )
    try:
        await make_door(tracing=spans.tracing("parent")).add("n", None)
    finally:
        context_api.detach(token)
    await run_until_idle(make_worker(nothing, tracing=spans.tracing("parent")), queue)
    (run,) = spans.runs
    assert run.context.trace_id == 1
    assert run.context.trace_state["vendor"] == "x"


async def test_without_tracing_nothing_is_written_and_nothing_is_read(
    make_door, make_worker, queue, server, keys
):
    await make_door().add("n", None)
    assert not server.client().keys(f"{keys.tag.decode()}:trace:*")
    await run_until_idle(make_worker(nothing), queue)


async def test_a_job_that_carries_nothing_gets_a_span_without_relation(
    spans, relation, make_worker, queue
):
    await queue.add("n", None)
    await run_until_idle(make_worker(nothing, tracing=spans.tracing(relation)), queue)
    (run,) = spans.runs
    assert (run.parent, len(run.links)) == (None, 0)


async def test_what_a_job_carries_that_is_no_trace_is_ignored(
    spans, relation, make_worker, queue, server, keys
):
    job = await queue.add("n", None)
    server.client().set(keys.trace(job.id), b"\xff not a trace", ex=60)
    await run_until_idle(make_worker(nothing, tracing=spans.tracing(relation)), queue)
    (run,) = spans.runs
    assert (run.parent, len(run.links)) == (None, 0)
    assert run.attributes["chasquimq.disposition"] == "complete"


async def test_an_add_that_is_not_sampled_is_carried_only_where_it_decides_about_its_runs(
    make_door, make_worker, queue, server, keys
):
    unsampled = Spans(sampler=ALWAYS_OFF)
    linked = await make_door(tracing=unsampled.tracing("link")).add("n", 1)
    child = await make_door(tracing=unsampled.tracing("parent")).add("n", 2)
    assert not server.client().exists(keys.trace(linked.id))
    assert server.client().exists(keys.trace(child.id))
    sampled = Spans()
    await run_until_idle(make_worker(nothing, tracing=sampled.tracing("parent")), queue)
    (run,) = sampled.runs
    assert run.attributes["messaging.message.id"] == linked.id


# --- trouble


class Broken:
    """A tracer that fails at one of its four moments."""

    def __init__(self, moment):
        self._moment = moment

    @contextmanager
    def adding(self, span):
        self._fail("add begins")
        yield b"carried"
        self._fail("add ends")

    @contextmanager
    def running(self, span, carried):
        self._fail("run begins")
        try:
            yield
        finally:
            self._fail("run ends")

    def _fail(self, moment):
        if moment == self._moment:
            raise RuntimeError(moment)


@pytest.mark.parametrize("moment", ["add begins", "add ends", "run begins", "run ends"])
async def test_a_tracer_that_fails_reaches_neither_caller_nor_job(
    moment, make_door, make_worker, queue, caplog
):
    runs = []

    async def handler(job):
        runs.append(job.attempt)
        if job.attempt == 1:
            raise OSError

    tracer = Broken(moment)
    await make_door(tracing=tracer).add("n", None)
    await run_until_idle(make_worker(handler, tracing=tracer), queue)
    assert runs == [1, 2]
    assert any(moment in (record.exc_text or "") for record in caplog.records)


async def test_a_server_that_refuses_the_key_takes_the_job_and_runs_it_all_the_same(
    spans, kind, start_server, queue_name, caplog
):
    own = start_server()
    kinds = [
        "stream",
        "events",
        "sent:*",
        "delayed",
        "didx:*",
        "dlid:*",
        "wake",
        "promoter:lock",
        "paused",
        "resumed",
        "dlq",
        "probe",
    ]
    allowed = [f"~*:{each}" for each in kinds]
    own.client().execute_command("ACL", "SETUSER", "default", "resetkeys", *allowed)
    door = Door(kind(queue_name, redis_url=own.url, tracing=spans.tracing()))
    await door.add("n", None)
    await door.add("n", None, delay_ms=1)
    await door.close()
    async with Queue(queue_name, redis_url=own.url) as queue:
        worker = Worker(
            queue_name,
            nothing,
            redis_url=own.url,
            handle_signals=False,
            run_scheduler=False,
            tracing=spans.tracing(),
        )
        await run_until_idle(worker, queue)
    assert [len(run.links) for run in spans.runs] == [0, 0]
    assert any("not joined to their adds" in record.message for record in caplog.records)


async def test_a_key_of_another_kind_costs_one_job_its_relation_and_no_other(
    spans, make_door, make_worker, queue, server, keys
):
    server.client().rpush(keys.trace("odd"), "a list")
    server.client().expire(keys.trace("odd"), 60)
    door = make_door(tracing=spans.tracing())
    await door.add_bulk([{"name": "n", "data": 1, "job_id": each} for each in ("odd", "even")])
    await run_until_idle(make_worker(nothing, tracing=spans.tracing()), queue)
    links = {run.attributes["messaging.message.id"]: len(run.links) for run in spans.runs}
    assert links == {"odd": 0, "even": 1}


@pytest.mark.parametrize("relation", ["child", None])
def test_a_relation_that_does_not_exist_is_refused(relation):
    with pytest.raises(ValueError, match="use one of link, parent"):
        Tracing(relation=relation)


async def test_no_connection_or_task_is_left_by_a_traced_worker(spans, make_worker, queue, server):
    await queue.add("n", None)
    await run_until_idle(make_worker(nothing, tracing=spans.tracing()), queue)

    def names():
        return [client["name"] for client in server.client().client_list()]

    await eventually(lambda: not [name for name in names() if "chasquimq-worker" in name])


async def test_a_job_that_ran_into_a_rate_limit_is_postponed_and_keeps_its_relation(
    spans, make_door, make_worker, queue
):
    runs = []

    async def handler(job):
        runs.append(job.attempt)
        if len(runs) == 1:
            raise RateLimitError(retry_after_ms=1)

    tracing = spans.tracing()
    await make_door(tracing=tracing).add("n", None)
    await run_until_idle(make_worker(handler, tracing=tracing), queue)
    assert runs == [1, 1]
    assert [run.attributes["chasquimq.disposition"] for run in spans.runs] == [
        "postponed",
        "complete",
    ]
    assert all(are_joined(spans.adds[0], run, "link") for run in spans.runs)
