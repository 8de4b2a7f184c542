"""What a type checker sees of the public API. Never run: `test_typing.py` has mypy read it.

A line that must not pass carries an ignore; mypy complains if the error ever goes away.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from chasquimq import (
    BackoffSpec,
    Chasqui,
    Consumer,
    Counts,
    DlqReason,
    Handler,
    Job,
    JobFailedError,
    JobResult,
    JobState,
    OutcomeStatus,
    Producer,
    Queue,
    QueueEvent,
    QueueEvents,
    RetryConfig,
    Scheduler,
    SyncQueue,
    UnrecoverableError,
    Worker,
    encode_payload,
    engine,
    version,
)
from chasquimq.metrics import CompositeSink, JobOutcome
from chasquimq.opentelemetry import Tracing
from chasquimq.prometheus import PrometheusSink
from chasquimq.testing import RecordingSink, run_until_idle, running


async def adding() -> None:
    async with Queue("emails", redis_url="redis://localhost", overflow="wait") as queue:
        assert_type(queue, Queue)
        assert_type(queue.name, str)
        assert_type(queue.is_closed, bool)

        job = await queue.add("welcome", {"to": "ada"}, delay_ms=1.5)
        assert_type(job, Job)
        await queue.add("welcome", None, delay_ms=datetime.now(UTC), attempts=3, backoff=100)
        await queue.add("welcome", [1], delay=timedelta(hours=1), backoff=BackoffSpec.fixed(5))
        await queue.add("welcome", 1, backoff={"kind": "fixed", "delay_ms": 5}, job_id="mine")
        assert_type(await queue.add_unique("welcome", 1, job_id="mine"), Job)
        assert_type(await queue.add_bulk([{"name": "a", "data": 1}]), list[Job])

        await queue.add("welcome")  # type: ignore[call-arg]
        await queue.add("welcome", 1, 5)  # type: ignore[call-arg]
        await queue.add("welcome", 1, delay="1h")  # type: ignore[arg-type]
        await queue.add("welcome", 1, priority=1)  # type: ignore[arg-type]
        await queue.add_unique("welcome", 1)  # type: ignore[call-arg]
        Queue("emails", overflow="drop")  # type: ignore[arg-type]
        Queue("emails", "redis://localhost")  # type: ignore[call-arg]


async def managing(queue: Queue, job: Job) -> None:
    assert_type(await queue.pause(), bool)
    assert_type(await queue.is_paused(), bool)
    assert_type(await queue.remove(job.id), bool)
    assert_type(await queue.reschedule(job.id, delay=timedelta(hours=1)), bool)
    assert_type(await queue.update_job_data(job.id, {"k": 1}), bool)
    assert_type(await queue.drain(dry_run=True), int)
    assert_type(await queue.clean(60_000, 100, "failed"), list[str])
    assert_type(await queue.obliterate(force=True), int)
    assert_type(await queue.get_jobs(["waiting", JobState.ACTIVE], 0, 9), list[Job])
    assert_type(await queue.get_job_counts("waiting"), dict[str, int])
    page = await queue.get_jobs_page("failed", limit=10)
    assert_type(page.jobs, list[Job])
    assert_type(page.next_cursor, str | None)
    assert_type((await queue.get_job_logs(job.id)).lines, list[str])
    assert_type(await queue.get_job_progress(job.id), int | None)
    soon = datetime.now(UTC)
    await queue.upsert_repeatable_job("n", 1, repeat={}, start_after_ms=soon, end_before_ms=9)
    assert_type(SyncQueue("emails", default_job_options={"attempts": 3}).drain(), int)
    assert_type(encode_payload({"k": 1}), bytes)
    await queue.reschedule(job.id, 5)  # type: ignore[call-arg]


async def asking(queue: Queue, job: Job) -> None:
    assert_type(await queue.cancel_delayed(job.id), bool)
    assert_type(await queue.peek_dlq(5), list[dict[str, Any]])
    assert_type(await queue.replay_dlq(ids=[job.id], reason=DlqReason.UNRECOVERABLE), int)
    assert_type(await queue.discard_dlq(name="welcome"), int)
    assert_type(await queue.get_job_result_bulk([job.id]), list[Any])
    assert_type(await queue.counts(), Counts)
    assert_type((await queue.counts()).waiting, int)
    assert_type(await queue.get_job(job.id), Job | None)
    assert_type(await queue.get_job_state(job.id), JobState)

    outcome = await queue.get_outcome(job.id)
    assert_type(outcome, JobResult)
    assert_type(outcome.status, OutcomeStatus)
    assert_type(outcome.reason, str | None)


async def waiting(job: Job) -> None:
    try:
        number: int = await job.wait_for_result(timeout=5, poll_interval=0.5)
    except JobFailedError as failure:
        assert_type(failure.reason, str)
        assert_type(failure.code, str)
    else:
        assert_type(number, int)
    assert_type(job.id, str)
    assert_type(job.attempt, int)
    assert_type(job.attempts_made, int)
    assert_type(job.deduplicated, bool)
    job.attempts_made = 3  # type: ignore[misc]


async def coroutine_handler(job: Job) -> dict[str, int]:
    if not job.data:
        message = "nothing to do"
        raise UnrecoverableError(message)
    return {"attempt": job.attempt}


def plain_handler(job: Job) -> None:
    assert_type(job, Job)


def not_a_handler() -> None:
    pass


async def working() -> None:
    handlers: Sequence[Handler] = [coroutine_handler, plain_handler]
    for handler in handlers:
        async with Worker("emails", handler, retry=RetryConfig(jitter_ms=0)) as worker:
            assert_type(worker, Worker)
            assert_type(worker.is_running, bool)
            await worker.run()
    Worker("emails", not_a_handler)  # type: ignore[arg-type]
    Worker("emails", coroutine_handler, concurency=5)  # type: ignore[call-arg]


async def watching() -> None:
    async with QueueEvents("emails", last_event_id="0") as events:
        async for event in events:
            assert_type(event, QueueEvent)
            assert_type(event.job_id, str | None)
            assert_type(event.fields, dict[str, Any])
            event.name = "x"  # type: ignore[misc]


def without_asyncio() -> None:
    with SyncQueue("emails") as queue:
        assert_type(queue.add("welcome", 1), Job)
        assert_type(queue.counts(), Counts)
        assert_type(queue.add_bulk([]), list[Job])
        assert_type(queue.get_job_state("mine"), JobState)
    assert_type(version(), str)


async def testing(queue: Queue) -> None:
    sink = RecordingSink()
    worker = Worker("emails", coroutine_handler, metrics=sink)
    await run_until_idle(worker, queue, timeout=5)
    assert_type(await sink.next(JobOutcome), JobOutcome)
    assert_type(sink.of(JobOutcome), list[JobOutcome])
    async with running(worker) as same:
        assert_type(same, Worker)


async def observing(handler: Handler) -> None:
    sink = PrometheusSink("emails", max_names=10)
    tracing = Tracing(relation="parent")
    worker = Worker(
        "emails", handler, metrics=CompositeSink(sink, RecordingSink()), metrics_port=9100,
        tracing=tracing,
    )  # fmt: skip
    assert_type(worker.metrics_address, tuple[str, int] | None)
    SyncQueue("emails", tracing=tracing)
    Worker("emails", handler, metrics_port="9100")  # type: ignore[arg-type]
    Tracing(relation="child")  # type: ignore[arg-type]
    CompositeSink(Exception())  # type: ignore[arg-type]


async def engine_handler(job: engine.Job) -> bytes | None:
    assert_type(job.id, str)
    assert_type(job.attempt, int)
    assert_type(job.retry, engine.JobRetryOverride | None)
    if not job.payload:
        raise engine.HandlerError.unrecoverable(ValueError())
    return b"stored"


async def on_the_engines_level() -> None:
    config = engine.ProducerConfig(max_delay_secs=timedelta(days=1), overflow_timeout_ms=5)
    assert_type(config.max_delay_secs, int)
    producer = await Producer.connect(None, config, tls=True)
    assert_type(producer, Producer)
    assert_type(await producer.add(b"x"), str)
    assert_type(await producer.add_bulk([b"x", bytearray()]), list[str])
    assert_type(await producer.add_in(timedelta(hours=1), b"x"), str)
    assert_type(await producer.add_at(datetime.now(UTC), b"x"), str)
    assert_type(await producer.cancel_delayed_bulk(["a"]), list[bool])
    assert_type(await producer.peek_dlq(), list[engine.DlqEntry])
    assert_type(await producer.get_result("a"), bytes | None)
    assert_type(await producer.list_repeatable(), list[engine.RepeatableMeta])
    assert_type(producer.stream_key(), str)
    await producer.add("text")  # type: ignore[arg-type]
    await producer.add_in("1h", b"x")  # type: ignore[arg-type]
    engine.AddOptions("id")  # type: ignore[call-arg]
    engine.ConsumerConfig(block_ms="5")  # type: ignore[arg-type]
    config.max_delay_secs = 5  # type: ignore[misc]

    consumer = Consumer.from_config(None, engine.ConsumerConfig(block_ms=timedelta(seconds=1)))
    assert_type(consumer, Consumer)
    assert_type(consumer.config, engine.ConsumerConfig)
    assert_type(consumer.config.block_ms, int)
    assert_type(consumer.config.shutdown_deadline_secs, float)
    await consumer.run(engine_handler)
    await consumer.run(plain_handler)  # type: ignore[arg-type]
    Consumer.from_config(None, engine.SchedulerConfig())  # type: ignore[arg-type]
    await Scheduler("redis://localhost", "emails", tick_interval_ms=5).run()
    await engine.Promoter(None, "emails").run()


app = Chasqui("emails", redis_url="redis://localhost")


@app.task
async def bare(to: str, subject: str = "hi") -> int:
    return len(to + subject)


@app.task("other", attempts=3, timeout=timedelta(seconds=5))
def named(job: Job, to: str) -> str:
    return job.id + to


async def tasks() -> None:
    assert_type(await bare("ada"), int)
    assert_type(named(Job("1", "other", None), "ada"), str)
    assert_type(await bare.add("ada", subject="x"), Job)
    assert_type(await named.add("ada"), Job)
    assert_type(named.add_sync(to="ada"), Job)
    assert_type(await bare.options(delay=timedelta(hours=1)).add("ada"), Job)
    assert_type(app.worker(concurrency=5), Worker)
    assert_type(app.queue(), Queue)
    assert_type(app.sync_queue("other"), SyncQueue)

    await bare.add(5)  # type: ignore[arg-type]
    await bare.add("ada", to="ada")  # type: ignore[misc]
    await named.add()  # type: ignore[call-arg]
    bare.options(delay="1h")  # type: ignore[arg-type]
    app.task(retries=5)  # type: ignore[call-overload]
