"""The engine's `Consumer`: what its handler is given, what becomes of its runs, how it stops."""

import asyncio
import pickle
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from chasquimq import ChasquiError, ConfigError, ConnectionFailedError, UnrecoverableError
from chasquimq.engine import (
    AddOptions,
    BackoffSpec,
    Consumer,
    ConsumerConfig,
    HandlerError,
    Job,
    JobRetryOverride,
    Producer,
    RepeatableSpec,
    RepeatPattern,
    RetryConfig,
    storable,
)
from chasquimq.metrics import DlqRouted, JobOutcome, JobOutcomeKind, RetryScheduled
from chasquimq.wire.keys import QueueKeys
from tests.support.eventually import eventually
from tests.support.scene import soon
from tests.support.sink import RecordingSink

QUICK = RetryConfig(initial_backoff_ms=1, jitter_ms=0)


@pytest.fixture
async def producer(server, queue_name):
    async with Producer(server.url, queue_name) as producer:
        yield producer


@pytest.fixture
def consuming(server, queue_name):
    """A consumer at work; it has drained when the block is left."""

    @asynccontextmanager
    async def run(handler, **options):
        sink = RecordingSink()
        usual = {"concurrency": 10, "retry": QUICK, "metrics": sink}
        consumer = Consumer(server.url, queue_name, **usual | options)
        working = asyncio.create_task(consumer.run(handler))
        try:
            yield sink
        finally:
            consumer.shutdown()
            await soon(working)

    return run


class Seen:
    """A handler that keeps the jobs it was given."""

    def __init__(self, failures=0):
        self.jobs = []
        self.failures = failures

    async def __call__(self, job):
        self.jobs.append(job)
        if job.attempt <= self.failures:
            msg = f"run {job.attempt}"
            raise RuntimeError(msg)


async def test_a_handler_gets_the_bytes_the_name_the_rules_and_its_run(producer, consuming):
    seen = Seen(failures=1)
    retry = JobRetryOverride(3, BackoffSpec.fixed(1, jitter_ms=0))
    job_id = await producer.add_with_options(b"\x00x", AddOptions(name="send", retry=retry))
    async with consuming(seen) as sink:
        await sink.next(JobOutcome)
        await sink.next(JobOutcome)
    first, second = seen.jobs
    assert first == Job(b"\x00x", job_id, "send", first.created_at_ms, 1, retry)
    assert second == Job(b"\x00x", job_id, "send", first.created_at_ms, 2, retry)
    assert second.attempts_made == 2


async def test_a_payload_that_is_no_bytes_is_the_value_it_is(consuming, server, queue_name):
    """Typed producers of the reference engine write such jobs (ruling R17 of the spec)."""
    seen = Seen()
    typed = b"\x94\xa2id" + b"\x92\xa3abc\x07" + b"\xcf\x00\x00\x01\x8b\xcf\xe5h\x00\x00"
    server.client().xadd(QueueKeys(queue_name).stream, {"d": typed})
    async with consuming(seen) as sink:
        await sink.next(JobOutcome)
    assert [(job.id, job.payload) for job in seen.jobs] == [("id", ["abc", 7])]


async def test_a_plain_function_runs_too(producer, consuming):
    seen = []
    await producer.add(b"x")
    async with consuming(seen.append) as sink:
        assert (await sink.next(JobOutcome)).kind is JobOutcomeKind.OK
    assert [job.payload for job in seen] == [b"x"]


async def test_a_value_that_is_no_bytes_is_not_stored_and_warned_about_once(
    producer, consuming, caplog
):
    async def handler(job):
        return {"not": "bytes"}

    ids = await producer.add_bulk([b"1", b"2"])
    async with consuming(handler, store_results=True) as sink:
        outcomes = [await sink.next(JobOutcome), await sink.next(JobOutcome)]
    assert {outcome.kind for outcome in outcomes} == {JobOutcomeKind.OK}
    assert await producer.get_result_bulk(ids) == [None, None]
    warned = [each for each in caplog.records if "return bytes or None" in each.getMessage()]
    assert len(warned) == 1


async def test_nothing_is_stored_unless_it_was_asked_for(producer, consuming):
    async def handler(job):
        return b"value"

    job_id = await producer.add(b"x")
    async with consuming(handler) as sink:
        await sink.next(JobOutcome)
    assert await producer.get_result(job_id) is None


async def test_a_result_that_no_server_takes_is_dead_lettered_at_once(
    producer, consuming, monkeypatch
):
    monkeypatch.setattr(storable, "MOST_RESULT_BYTES", 4)

    async def handler(job):
        return job.payload

    fits = await producer.add(b"four")
    await producer.add(b"fives")
    async with consuming(handler, store_results=True) as sink:
        assert (await sink.next(DlqRouted)).attempt == 1
    assert await producer.get_result(fits) == b"four"
    [entry] = await producer.peek_dlq()
    assert "it has 5 bytes, and a result may have 4" in entry.error


HOPELESS = {
    "unrecoverable": UnrecoverableError("no use"),
    "handler error": HandlerError.unrecoverable(ValueError("no use")),
    "handler error of text": HandlerError.unrecoverable("no use"),
    "handler error of unrecoverable": HandlerError(UnrecoverableError("no use")),
}


@pytest.mark.parametrize("what", HOPELESS)
async def test_a_hopeless_failure_is_dead_lettered_at_once(producer, consuming, what):
    failure = HOPELESS[what]

    async def handler(job):
        raise failure

    await producer.add(b"x")
    async with consuming(handler) as sink:
        routed = await sink.next(DlqRouted)
    assert (routed.reason, routed.attempt) == ("unrecoverable", 1)
    [entry] = await producer.peek_dlq()
    assert entry.error.endswith(": no use")
    assert not entry.error.startswith("HandlerError")


async def test_a_handler_error_is_retried_and_told_as_what_it_was_made_of(producer, consuming):
    async def handler(job):
        raise HandlerError(KeyError("lost"))

    await producer.add(b"x")
    async with consuming(handler, max_attempts=2) as sink:
        await sink.next(RetryScheduled)
        await sink.next(DlqRouted)
    [entry] = await producer.peek_dlq()
    assert (entry.reason, entry.error) == ("retries_exhausted", "KeyError: 'lost'")
    assert "raise HandlerError" in entry.traceback


def test_a_handler_error_says_what_it_is_here_and_in_another_process():
    source = ValueError("no")
    failure, hopeless = HandlerError(source), HandlerError.unrecoverable("text")
    assert (failure.is_unrecoverable(), hopeless.is_unrecoverable()) == (False, True)
    assert failure.source_err() is source is failure.__cause__
    assert (str(failure), failure.code) == ("no", "CMQ-010")
    assert isinstance(hopeless.source_err(), RuntimeError)
    copy = pickle.loads(pickle.dumps(hopeless))  # noqa: S301 -- our own
    assert (str(copy), copy.is_unrecoverable()) == ("text", True)


async def test_the_config_and_the_arguments_of_the_python_page_make_the_same(server, queue_name):
    made = Consumer(
        server.url,
        queue_name,
        concurrency=0,
        consumer_id="me",
        read_block_ms=timedelta(seconds=1),
        read_count=7,
        claim_min_idle_ms=9_000,
        max_payload_bytes=100,
        dlq_max_stream_len=10,
        events_enabled=False,
        delayed_enabled=False,
        run_scheduler=False,
        scheduler_tick_ms=500,
        store_results=True,
        result_ttl_ms=1_500,
    ).config
    assert made == ConsumerConfig(
        queue_name=queue_name,
        concurrency=1,
        max_attempts=25,
        consumer_id="me",
        block_ms=1_000,
        batch=7,
        claim_min_idle_ms=timedelta(seconds=9),
        max_payload_bytes=100,
        dlq_max_stream_len=10,
        events_enabled=False,
        delayed_enabled=False,
        run_scheduler=False,
        scheduler=made.scheduler,
        store_results=True,
        result_ttl_secs=2,
    )
    assert (made.scheduler.tick_interval_ms, made.scheduler.events_enabled) == (500, False)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"read_block_ms": -1}, "block_ms must be non-negative; got -1"),
        ({"claim_min_idle_ms": -1}, "claim_min_idle_ms must be non-negative"),
        ({"dlq_max_stream_len": -1}, "dlq_max_stream_len must be non-negative"),
        ({"scheduler_tick_ms": -1}, "tick_interval_ms must be non-negative"),
        ({"result_ttl_ms": 0}, "result_ttl_ms must be positive; got 0"),
        ({"result_ttl_ms": timedelta(0)}, "result_ttl_ms must be positive; got 0"),
        ({"concurrency": -1}, "concurrency must be non-negative"),
        ({"block": 1}, "unexpected keyword"),
    ],
)
def test_settings_that_cannot_work_are_refused(bad, says):
    with pytest.raises((ConfigError, TypeError), match=says):
        Consumer("redis://127.0.0.1:1", "emails", **bad)


# --- running and stopping


async def test_an_event_stops_it_after_what_runs_has_finished(producer, server, queue_name):
    began, may_end, stop = asyncio.Event(), asyncio.Event(), asyncio.Event()
    done = []

    async def handler(job):
        began.set()
        await may_end.wait()
        done.append(job.payload)

    await producer.add(b"x")
    consumer = Consumer.from_config(server.url, ConsumerConfig(queue_name=queue_name))
    working = asyncio.create_task(consumer.run(handler, stop))
    await soon(began.wait())
    assert consumer.is_running
    assert repr(consumer).startswith(f"<Consumer {queue_name} running at redis://")
    stop.set()
    may_end.set()
    await soon(working)
    assert done == [b"x"]
    assert not consumer.is_running
    assert server.client().xlen(producer.stream_key()) == 0


async def test_a_cancelled_run_drains_too(producer, server, queue_name):
    began, done = asyncio.Event(), []

    async def handler(job):
        began.set()
        await asyncio.sleep(0.05)
        done.append(job.payload)

    await producer.add(b"x")
    working = asyncio.create_task(Consumer(server.url, queue_name).run(handler))
    await soon(began.wait())
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(working)
    assert done == [b"x"]


async def test_one_that_was_told_to_stop_before_it_ran_does_nothing(producer, server, queue_name):
    seen = Seen()
    await producer.add(b"x")
    consumer = Consumer(server.url, queue_name)
    consumer.shutdown()
    await soon(consumer.run(seen))
    assert seen.jobs == []


async def test_it_does_not_run_twice_at_once(producer, server, queue_name):
    consumer, first, second = Consumer(server.url, queue_name), Seen(), Seen()
    working = asyncio.create_task(consumer.run(first))
    await eventually(lambda: consumer.is_running)
    with pytest.raises(ChasquiError, match="runs already"):
        await consumer.run(second)
    await producer.add(b"x")
    await eventually(lambda: first.jobs)
    consumer.shutdown()
    await soon(working)
    assert second.jobs == []


async def test_no_server_at_the_start_is_an_error():
    consumer = Consumer("redis://127.0.0.1:1", "emails", reconnect_max_attempts=1)
    with pytest.raises(ConnectionFailedError):
        await soon(consumer.run(Seen()))


async def test_a_handler_must_be_callable():
    with pytest.raises(TypeError, match="function of one Job"):
        await Consumer("redis://127.0.0.1:1", "emails").run("module:handler")


async def test_it_promotes_and_fires_by_itself_unless_told_not_to(producer, consuming):
    seen = Seen()
    spec = RepeatableSpec(job_name="tick", pattern=RepeatPattern.every(100), payload=b"tick")
    async with consuming(seen) as sink:
        await producer.add_in(20, b"later")
        await producer.upsert_repeatable(spec)
        while {job.payload for job in seen.jobs} != {b"later", b"tick"}:
            await sink.next(JobOutcome)
    await producer.remove_repeatable(spec.resolved_key())

    later = await producer.add_in(1, b"not promoted")
    async with consuming(seen, delayed_enabled=False, run_scheduler=False) as sink:
        await producer.add(b"now")
        while seen.jobs[-1].payload != b"now":
            await sink.next(JobOutcome)
        assert await producer.cancel_delayed(later)


def test_a_job_of_ones_own_is_fresh():
    job = Job(b"x", retry=JobRetryOverride(2))
    assert (job.payload, job.name, job.attempt) == (b"x", "", 0)
    assert len(job.id) == 26
    assert Job(b"x").id != job.id
    assert job == pickle.loads(pickle.dumps(job))  # noqa: S301 -- our own
