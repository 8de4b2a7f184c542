"""Spark as a fleet of workers: the same as an ordinary worker, as far as a queue can tell."""

import asyncio
import re
import sys
import threading
import time

import pytest

from chasquimq import SyncQueue, UnrecoverableError, Worker
from chasquimq.cli.main import entry
from chasquimq.config import LEAST_LEASE_MS
from chasquimq.errors import ConfigError
from chasquimq.spark import SparkWorker, permit
from chasquimq.spark.slot import work
from chasquimq.wire.event import EventName
from chasquimq.wire.keys import QueueKeys
from tests.support.eventually import eventually, eventually_sync
from tests.support.raw_queue import RawQueue
from tests.support.spark import SPARK_MARKS

pytestmark = SPARK_MARKS

QUICK = {"linger_ms": 200}


@pytest.fixture
def fleet(spark, server, queue_name):
    """`fleet(handler, ...)`: a worker on the test's queue."""

    def make(handler, **options):
        given = {"spark": spark, "redis_url": server.url} | QUICK | options
        return SparkWorker(given.pop("queue", queue_name), handler, **given)

    return make


@pytest.fixture
def raw(server, queue_name):
    return RawQueue(server.client(), QueueKeys(queue_name))


def add_mixed(queue):
    """Jobs that succeed, fail once, fail for good, and cannot be retried."""
    backoff = {"kind": "fixed", "delay_ms": 1, "jitter_ms": 0}
    queue.add("ok", {"n": 1}, job_id="ok")
    queue.add("once", {"n": 2}, job_id="once", attempts=3, backoff=backoff)
    queue.add("never", {"n": 3}, job_id="never", attempts=2, backoff=backoff)
    queue.add("hopeless", {"n": 4}, job_id="hopeless")


def handle(job):
    if job.name == "hopeless":
        message = "there is no way"
        raise UnrecoverableError(message)
    if job.name == "never" or (job.name == "once" and job.attempt == 1):
        message = f"failed in run {job.attempt}"
        raise ValueError(message)
    job.update_progress(50)
    job.log(f"run {job.attempt}")
    return {"doubled": job.data["n"] * 2}


def told(queue_name, server):
    """Per job: what its events said, without times; and its dead letter, result and log."""
    raw = RawQueue(server.client(), QueueKeys(queue_name))
    timed = {"ts", "duration_us", "wait_ms", "created_at_ms"}
    by_job = {}
    for _, fields in raw.client.xrange(raw.keys.events):
        event = {name.decode(): value.decode() for name, value in fields.items()}
        if event.get("id"):
            kept = {name: value for name, value in event.items() if name not in timed}
            by_job.setdefault(event["id"], []).append(kept)
    own = {"source_id", "failed_at", "consumer", "d"}
    letters = sorted(
        sorted((name, value) for name, value in letter.items() if name not in own)
        for letter in raw.dlq()
    )
    with SyncQueue(queue_name, redis_url=server.url) as queue:
        results = {job_id: queue.get_job_result(job_id) for job_id in by_job}
        logs = {job_id: queue.get_job_logs(job_id) for job_id in by_job}
    return by_job, letters, results, logs, raw.stream(), raw.held(), raw.delayed()


def test_jobs_end_on_spark_as_they_end_in_a_worker(server, queue_name, queue, fleet, caplog):
    add_mixed(queue)
    caplog.set_level("INFO")
    fleet(handle, store_results=True, max_attempts=5).run(until_idle=True)
    eventually_sync(lambda: not queue.counts().delayed)
    fleet(handle, store_results=True, max_attempts=5).run(until_idle=True)

    other = f"{queue_name}-native"
    with SyncQueue(other, redis_url=server.url) as native:
        add_mixed(native)

        async def work():
            worker = Worker(other, handle, redis_url=server.url, store_results=True, max_attempts=5)
            working = asyncio.create_task(worker.run())
            await eventually(lambda: native.counts() == queue.counts())
            await worker.close()
            await working

        asyncio.run(work())
    # Each stint is told; the last run of the second job may have come in the first or in another.
    stints = re.findall(r"tell of (\d+) jobs completed, (\d+) runs failed \(\d+ jobs", caplog.text)
    assert tuple(map(sum, zip(*(map(int, stint) for stint in stints), strict=True))) == (2, 4)
    assert told(queue_name, server) == told(other, server)
    events = told(queue_name, server)[0]
    assert [each["e"] for each in events["never"]] == [
        EventName.WAITING, EventName.ACTIVE, EventName.FAILED, EventName.RETRY_SCHEDULED,
        EventName.WAITING, EventName.ACTIVE, EventName.FAILED, EventName.DLQ,
    ]  # fmt: skip


def has_found_nothing(spark, queue_name):
    """Whether every slot has had a stint, and the planner a look after that, in vain."""
    for query in spark.streams.active:
        if queue_name in query.name and query.lastProgress is not None:
            return query.status["message"] == "Waiting for data to arrive"
    return False


def test_a_paused_queue_is_left_alone_until_it_is_resumed(spark, queue, queue_name, fleet):
    queue.pause()
    queue.add("n", 1, job_id="a")
    worker = fleet(lambda job: job.data, store_results=True)
    running = threading.Thread(target=worker.run)
    running.start()
    try:
        eventually_sync(lambda: has_found_nothing(spark, queue_name), timeout=60)
        assert queue.counts().waiting == 1
        queue.resume()
        eventually_sync(lambda: queue.get_job_result("a") == 1, timeout=30)
    finally:
        worker.stop()
        running.join(60)
    assert not running.is_alive()


def test_every_job_runs_once_beside_an_ordinary_worker(server, queue_name, queue, fleet):
    client, done = server.client(), f"done-{queue_name}"
    url = server.url

    def count(job, by):
        import redis  # noqa: PLC0415 -- in an executor

        redis.Redis.from_url(url).hincrby(done, f"{by}:{job.data}", 1)

    queue.add_bulk([{"name": "n", "data": number} for number in range(400)])
    worker = Worker(queue_name, lambda job: count(job, "native"), redis_url=server.url,
                    concurrency=2, handle_signals=False)  # fmt: skip

    async def work():
        working = asyncio.create_task(worker.run())
        on_spark = fleet(lambda job: count(job, "spark"), concurrency=2)
        await asyncio.to_thread(on_spark.run, until_idle=True)
        await worker.close()
        await working

    asyncio.run(work())
    counted = client.hgetall(done)
    client.delete(done)
    numbers = sorted(int(field.split(b":")[1]) for field in counted)
    assert numbers == list(range(400))
    assert set(counted.values()) == {b"1"}


def test_a_handler_may_take_longer_than_its_lease(server, queue_name, queue, fleet):
    """Another worker with the same lease claims nothing, because the lease is renewed."""
    queue.add("slow", 1, job_id="a")
    seen = []

    def slow(job):
        time.sleep(LEAST_LEASE_MS / 1_000 + 2)
        return job.attempt

    worker = Worker(queue_name, seen.append, redis_url=server.url, claim_min_idle_ms=LEAST_LEASE_MS,
                    handle_signals=False)  # fmt: skip

    async def work():
        on_spark = fleet(slow, store_results=True, claim_min_idle_ms=LEAST_LEASE_MS)
        running = asyncio.create_task(asyncio.to_thread(on_spark.run, until_idle=True))
        await eventually(lambda: queue.counts().active, timeout=60)
        working = asyncio.create_task(worker.run())
        await running
        await worker.close()
        await working

    asyncio.run(work())
    assert queue.get_job_result("a") == 1
    assert seen == []


def test_a_stop_lets_running_handlers_finish_and_leaves_nothing_in_flight(queue, fleet, raw):
    def slow(job):
        time.sleep(0.5)

    queue.add_bulk([{"name": "n", "data": number} for number in range(200)])
    worker = fleet(slow, concurrency=2)
    running = threading.Thread(target=worker.run)
    running.start()
    eventually_sync(lambda: queue.counts().waiting < 196, timeout=60)
    worker.stop()
    running.join(60)
    assert not running.is_alive()
    # What was read ahead was handed back, uncounted; each is there once.
    assert 0 < len(raw.stream()) < 200
    assert [each.deliveries for each in raw.held()] == [0] * len(raw.held())
    assert queue.peek_dlq() == []


@pytest.mark.parametrize("shape", ["arrow", "pandas"])
def test_a_function_of_columns_gets_batches_and_answers_row_by_row(queue, fleet, shape):
    queue.add_bulk([{"name": "n", "data": {"x": number}, "job_id": f"j{number}"}
                    for number in range(500)])  # fmt: skip

    def double(table):
        if shape == "pandas":
            return table["x"] * 2
        return [x * 2 for x in table["x"].to_pylist()]

    worker = fleet(double, batch=shape, batch_size=100, schema="x long", store_results=True)
    worker.run(until_idle=True)
    assert [queue.get_job_result(f"j{number}") for number in range(500)] == [
        2 * number for number in range(500)
    ]


def test_pandas_that_is_not_there_is_asked_for_before_a_job_is_taken(monkeypatch):
    """By executors too: a slot makes its worker as the driver did."""
    recipe = SparkWorker("q", len, batch="pandas")._recipe  # noqa: SLF001 -- what travels
    monkeypatch.setitem(sys.modules, "pandas", None)  # as if it were not installed
    for refused in (lambda: SparkWorker("q", len, batch="pandas"), lambda: work(recipe, 0)):
        with pytest.raises(ConfigError, match="pip install 'pandas<3'"):
            refused()
    assert SparkWorker("q", len, batch="arrow").name == "q"


def test_a_bad_row_fails_its_batch_once_and_then_alone(queue, fleet):
    backoff = {"kind": "fixed", "delay_ms": 1, "jitter_ms": 0}
    queue.add_bulk([{"name": "n", "data": {"x": number}, "job_id": f"j{number}", "attempts": 2,
                     "backoff": backoff} for number in range(10)])  # fmt: skip

    def invert(table):
        return [1 / x for x in table["x"].to_pylist()]

    for _ in range(2):
        fleet(invert, batch="arrow", schema="x long", store_results=True).run(until_idle=True)
    [letter] = queue.peek_dlq()
    assert (letter["reason"], letter["attempts"]) == ("retries_exhausted", 2)
    assert "ZeroDivisionError" in letter["traceback"]
    assert [queue.get_job_result(f"j{number}") for number in range(1, 10)] == [
        1 / number for number in range(1, 10)
    ]


def test_two_drivers_cannot_run_one_fleet(queue, fleet, monkeypatch):
    first = fleet(handle)
    running = threading.Thread(target=first.run)
    running.start()
    monkeypatch.setattr("chasquimq.spark.permit._GRACE_S", 0.5 - permit.TTL_S)  # no patience
    try:
        eventually_sync(lambda: first.is_running, timeout=30)
        with pytest.raises(ConfigError, match="is run by another driver"):
            fleet(handle).run()
    finally:
        first.stop()
        running.join(60)


@pytest.mark.parametrize(
    ("handler", "options", "told"),
    [
        (handle, {"slots": 0}, "slots is 0"),
        (handle, {"batch": "rows"}, "batch is 'rows'"),
        (handle, {"schema": "x long"}, "schema is for batches"),
        (handle, {"max_attempts": -1}, "max_attempts"),
        (handle, {"name": " "}, "name is blank"),
        ("nowhere:handle", {}, "cannot be imported"),
        ("nowhere", {}, "write module:name"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_started(handler, options, told):
    with pytest.raises((ConfigError, ValueError), match=told):
        SparkWorker("q", handler, **options)


@pytest.fixture
def command(monkeypatch, capsys):
    """`command(...)`: what `chasqui worker` says and returns; it leaves our logging alone."""
    monkeypatch.setattr("chasquimq.cli.logs.set_up", lambda *_, **__: None)

    def run(*arguments):
        code = entry(["worker", *arguments])
        return code, capsys.readouterr().err

    return run


def test_the_command_runs_a_module_of_yours_on_spark(
    spark, server, queue_name, queue, tmp_path, command
):
    (tmp_path / "double.py").write_text("def handle(job):\n    return job.data * 2\n")
    queue.add("n", 21, job_id="a")
    done, told = command("double:handle", queue_name, "--redis-url", server.url, "--engine",
                         "spark", "--slots", "1", "--store-results", "--burst",
                         "--app-dir", str(tmp_path))  # fmt: skip
    assert done == 0, told
    assert "engine     spark" in told
    assert queue.get_job_result("a") == 42
    assert spark.range(1).count() == 1  # a session that ran before runs on


def test_the_command_runs_a_function_of_whole_batches(server, queue_name, queue, tmp_path, command):
    (tmp_path / "triple.py").write_text(
        "def handle(jobs):\n    return [3 * x.as_py() for x in jobs['x']]\n"
    )
    queue.add_bulk([{"name": "n", "data": {"x": x}, "job_id": f"j{x}"} for x in range(3)])
    done, told = command("triple:handle", queue_name, "--redis-url", server.url, "--engine",
                         "spark", "--batch", "arrow", "--batch-size", "2", "--schema", "x long",
                         "--store-results", "--burst", "--app-dir", str(tmp_path))  # fmt: skip
    assert done == 0, told
    assert [queue.get_job_result(f"j{x}") for x in range(3)] == [0, 3, 6]


def test_a_schema_that_is_none_is_told_with_an_example(fleet):
    with pytest.raises(ConfigError, match="schema is 'x nothing': use names and types, such as"):
        fleet(len, batch="arrow", schema="x nothing").run(until_idle=True)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--slots", "2"], "add --engine spark"),
        (["--batch", "arrow"], "add --engine spark"),
        (["--engine", "spark", "--batch", "rows"], "'rows' is not one of 'arrow', 'pandas'"),
        (
            ["--engine", "spark", "--batch", "arrow", "--batch-size", "0"],
            "'--batch-size': '0' is not",
        ),
        (["--engine", "spark", "--batch-size", "9"], "--batch-size is for whole batches: add"),
        (["--engine", "spark", "--schema", "x long"], "--schema is for whole batches: add"),
        (["--conf", "spark.executor.memory=2g"], "add --engine spark"),
        (["--engine", "spark", "--conf", "memory"], "--conf is 'memory': use KEY=VALUE"),
        (["--engine", "spark", "--master", "local", "--conf", "spark.master=yarn"], "give one"),
        (["--engine", "spark", "--processes", "2"], "with --engine spark use --slots"),
        (["--engine", "spark", "--metrics-port", "0"], "with --engine spark use --slots"),
        (["--engine", "spark", "--rate-limit-scope", "worker"], "with --engine spark use --slots"),
        (["--engine", "spark"], "there is no module 'nowhere'"),
    ],
)
def test_the_command_says_in_a_line_what_is_wrong_before_spark_starts(
    tmp_path, command, arguments, told
):
    done, said = command("nowhere:handle", "q", *arguments, "--app-dir", str(tmp_path))
    assert (done, told in said, "Traceback" in said) == (2, True, False), said
