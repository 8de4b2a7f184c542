"""`chasquimq.testing`: the helpers that people use in tests of their own."""

import ast
import asyncio
import inspect
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from chasquimq import ConnectionFailedError, Counts, Queue, RetryConfig, UnrecoverableError, Worker
from chasquimq.metrics import (
    DlqRouted,
    JobOutcome,
    JobOutcomeKind,
    LockOutcome,
    MetricsSink,
    PromoterTick,
    ReaderBatch,
    RetryScheduled,
)
from chasquimq.testing import ManualClock, RecordingSink, run_until_idle, running, until_idle
from tests.api.conftest import NOWHERE
from tests.support.embedded_users import run_script


async def returns(_):
    return None


async def test_run_until_idle_runs_jobs_retries_and_what_is_due_soon(queue, make_worker):
    seen = []

    async def handler(job):
        seen.append((job.name, job.attempt))
        if job.name == "flaky" and job.attempt < 3:
            raise ValueError

    await queue.add("now", 1)
    await queue.add("flaky", 1)
    await queue.add("soon", 1, delay_ms=30)
    await queue.add("in an hour", 1, delay_ms=3_600_000)
    worker = make_worker(handler)
    await run_until_idle(worker, queue)
    assert sorted(seen) == [("flaky", 1), ("flaky", 2), ("flaky", 3), ("now", 1), ("soon", 1)]
    assert await queue.counts() == Counts(waiting=0, active=0, delayed=1, dead=0)
    assert worker.is_closed
    assert not worker.is_running


async def test_run_until_idle_leaves_what_is_due_later_than_asked_for(queue, make_worker):
    seen = []

    async def handler(job):
        seen.append(job.data)

    await queue.add("later", "later", delay_ms=5_000)
    await run_until_idle(make_worker(handler), queue, due_within_ms=100)
    assert seen == []


async def test_run_until_idle_runs_jobs_that_jobs_add(queue, make_worker):
    seen = []

    async def handler(job):
        seen.append(job.data)
        if job.data:
            await queue.add("countdown", job.data - 1, delay_ms=job.data)

    await queue.add("countdown", 3)
    await run_until_idle(make_worker(handler), queue)
    assert seen == [3, 2, 1, 0]


async def test_on_an_empty_queue_there_is_nothing_to_wait_for(queue, make_worker):
    await until_idle(queue, timeout=1)
    await run_until_idle(make_worker(returns), queue)


async def test_a_queue_that_does_not_become_idle_is_a_timeout_with_its_counts(queue, make_worker):
    job = await queue.add("stuck", 1)
    with pytest.raises(TimeoutError, match=r"not idle after 0\.05 s: Counts\(waiting=1"):
        await until_idle(queue, timeout=0.05)

    begun, may_end = asyncio.Event(), asyncio.Event()

    async def handler(_):
        begun.set()
        await may_end.wait()

    async with running(make_worker(handler)):
        await asyncio.wait_for(begun.wait(), 10)
        with pytest.raises(TimeoutError, match="active=1"):
            await until_idle(queue, timeout=0.05)
        may_end.set()
    assert await queue.get_job(job.id) is None, "what had begun was finished all the same"


async def test_run_until_idle_raises_what_the_worker_raises_at_once(queue):
    await queue.add("send", 1)
    worker = Worker(queue.name, returns, redis_url=NOWHERE)
    with pytest.raises(ConnectionFailedError, match=r"127\.0\.0\.1:1"):
        await run_until_idle(worker, queue, timeout=60)


async def test_running_closes_and_drains_the_worker_whatever_happens(queue, make_worker):
    begun, finished = asyncio.Event(), []

    async def handler(job):
        begun.set()
        await asyncio.sleep(0)
        finished.append(job.data)

    async def a_test_that_fails():
        async with running(make_worker(handler)) as worker:
            assert not worker.is_closed
            await queue.add("send", 7)
            await begun.wait()
            raise LookupError

    with pytest.raises(LookupError):
        await a_test_that_fails()
    assert finished == [7]


async def test_a_recording_sink_is_told_every_run_retry_and_dead_letter(queue, make_worker):
    async def handler(job):
        if job.name == "hopeless":
            raise UnrecoverableError
        if job.attempt == 1:
            raise ValueError

    sink = RecordingSink()
    retry = RetryConfig(initial_backoff_ms=5, jitter_ms=0)
    async with running(make_worker(handler, metrics=sink, retry=retry)):
        await queue.add("flaky", 1)
        first = await sink.next(JobOutcome)
        second = await sink.next(JobOutcome)
        assert await sink.next(RetryScheduled) == RetryScheduled(2, 5, "flaky")
        await queue.add("hopeless", 1)
        dead = await sink.next(DlqRouted)
    assert (first.kind, first.attempt, first.name) == (JobOutcomeKind.ERR, 1, "flaky")
    assert (second.kind, second.attempt, second.name) == (JobOutcomeKind.OK, 2, "flaky")
    assert (dead.reason, dead.attempt, dead.name) == ("unrecoverable", 1, "hopeless")
    assert len(sink.of(JobOutcome)) == 3
    assert sink.of(ReaderBatch)
    assert sink.of(PromoterTick)
    assert sink.of(LockOutcome) == [LockOutcome.ACQUIRED] * 2  # promoter and scheduler


async def test_a_report_that_does_not_come_is_a_timeout_with_what_came_instead():
    sink = RecordingSink()
    sink.reader_batch(ReaderBatch(1, 0))
    with pytest.raises(TimeoutError, match=r"no JobOutcome within 0\.01 s.*ReaderBatch\(size=1"):
        await sink.next(JobOutcome, timeout=0.01)


async def test_each_report_is_given_once_to_each_kind_that_is_asked_for():
    sink = RecordingSink()
    reports = [ReaderBatch(1, 0), PromoterTick(1, 0, 0), ReaderBatch(2, 0)]
    sink.reader_batch(reports[0])
    sink.promoter_tick(reports[1])
    waiting = asyncio.create_task(sink.next(PromoterTick))
    assert await sink.next(ReaderBatch) == reports[0]
    sink.reader_batch(reports[2])
    assert await sink.next(ReaderBatch) == reports[2]
    assert await waiting == reports[1]
    assert sink.reports == reports


def test_a_recording_sink_records_every_report_there_is():
    methods = [
        name for name, member in vars(MetricsSink).items()
        if inspect.isfunction(member) and not name.startswith("_")
    ]  # fmt: skip
    sink = RecordingSink()
    for name in methods:
        getattr(sink, name)(name)
    assert sink.reports == methods


def test_a_manual_clock_moves_when_it_is_told_to():
    clock = ManualClock(now_ms=1_000)
    clock.advance(250)
    assert clock.now_ms() == 1_250
    assert clock.monotonic_us() == 1_250_000
    with pytest.raises(ValueError, match="non-negative"):
        clock.advance(-1)


PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
SHOWN = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)

TESTS_OF_A_USER = """
    from chasquimq import Queue, SyncQueue, Worker
    from chasquimq.testing import run_until_idle
    import asyncio

    def test_one(chasqui_url):
        async def story():
            seen = []

            async def handler(job):
                seen.append(job.data)

            async with Queue("emails", redis_url=chasqui_url) as queue:
                await queue.add("send", "hello")
                await run_until_idle(Worker("emails", handler, redis_url=chasqui_url), queue)
            assert seen == ["hello"]

        asyncio.run(story())

    def test_two_shares_the_server(chasqui_url):
        assert chasqui_url.startswith("embedded:///")
        with SyncQueue("letters", redis_url=chasqui_url) as queue:
            queue.add("send", 1)
            assert queue.counts().waiting == 1
"""


@pytest.mark.parametrize(
    ("conftest", "tests", "count"),
    [
        (SHOWN[0], SHOWN[1], 1),
        ("from chasquimq.testing import chasqui_url", TESTS_OF_A_USER, 2),
    ],
    ids=["plugin, as the docs show it", "import"],
)
def test_the_fixture_gives_users_tests_a_real_server_that_ends_with_them(
    tmp_path, conftest, tests, count
):
    (tmp_path / "conftest.py").write_text(conftest)
    (tmp_path / "test_emails.py").write_text(textwrap.dedent(tests))
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp"]
    done = subprocess.run(
        [*command, "odd name %", "."],
        check=False, capture_output=True, text=True, timeout=60, cwd=tmp_path,
    )  # fmt: skip
    assert f"{count} passed" in done.stdout, done.stdout + done.stderr
    log = tmp_path / "odd name %" / "chasqui0" / "valkey.log"
    assert "bye bye" in log.read_text().lower()


async def test_the_fragments_in_the_docs_work_one_after_the_other(server, queue_name):
    async with Queue(queue_name, redis_url=server.url) as queue:
        world = {
            "Worker": Worker,
            "run_until_idle": run_until_idle,
            "handler": returns,
            "queue": queue,
            "chasqui_url": server.url,
        }
        for text in SHOWN[2:]:
            shown = text.replace("emails-1", queue_name)
            code = compile(shown, PAGE.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            await eval(code, world)  # noqa: S307 -- our own documentation
    assert {"worker", "outcome"} <= world.keys()


def test_without_pytest_only_the_fixture_is_missing_and_says_so():
    out = run_script(
        """if True:
        import sys
        sys.modules["pytest"] = None
        from chasquimq.testing import ManualClock, RecordingSink, run_until_idle
        try:
            from chasquimq.testing import chasqui_url
        except ImportError as error:
            print(error)
        import chasquimq.testing
        try:
            chasquimq.testing.nothing
        except AttributeError as error:
            print(error)
        """
    )
    assert out.splitlines() == [
        "the fixture chasqui_url needs pytest: run python -m pip install pytest",
        "module 'chasquimq.testing' has no attribute 'nothing'",
    ]


def test_the_library_itself_never_imports_pytest():
    out = run_script("import sys, chasquimq; print('pytest' in sys.modules)")
    assert out == "False\n"


async def test_until_idle_works_through_any_queue_object_of_that_name(server, queue, queue_name):
    job = await queue.add("send", 1, delay_ms=200)
    async with Queue(queue_name, redis_url=server.url) as other:
        idle = asyncio.create_task(until_idle(other, timeout=8))
        assert await queue.cancel_delayed(job.id)
        await idle
