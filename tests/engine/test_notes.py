"""Progress and log lines: stored when awaited, and in any case before the job is settled."""

# ruff: noqa: SLF001 -- that a note is on its way is seen only inside

import asyncio
import logging
import threading

import pytest

from chasquimq import ChasquiError, ShutdownError
from chasquimq.broker import scripts
from chasquimq.engine.scribe import CUT_MARK
from chasquimq.metrics import JobOutcome
from tests.support.eventually import eventually
from tests.support.scene import Scene, running, soon


def progress_of(scene, job):
    return scene.client.get(scene.keys.progress(job.id))


def log_of(scene, job):
    return [fields[b"line"] for _, fields in scene.client.xrange(scene.keys.log(job.id))]


async def test_what_is_awaited_is_stored(scene):
    seen = []

    async def handler(job):
        await job.update_progress(30)
        seen.append((job.progress, progress_of(scene, job)))
        seen.append([await job.log("one"), await job.log("two")])
        seen.append(log_of(scene, job))

    await scene.queue.add("n", 1)
    async with scene.working(handler) as sink:
        await sink.next(JobOutcome)
    assert seen == [(30, b"30"), [1, 2], [b"one", b"two"]]


async def test_who_sees_a_job_completed_sees_its_last_progress_and_line(scene):
    async def handler(job):
        for step in range(101):
            job.update_progress(step)
            job.log(f"step {step}")

    jobs = await scene.queue.add_bulk([{"name": "n", "data": n} for n in range(20)])
    async with scene.working(handler):
        for job in jobs:
            await eventually(lambda job=job: "completed" in scene.story(job.id))
            assert progress_of(scene, job) == b"100"
            assert log_of(scene, job) == [b"step %d" % step for step in range(101)]
    story = scene.story(jobs[0].id)
    assert story == ["waiting", "active", *["progress"] * 101, "completed"]
    told = [event.fields["progress"] for event in scene.events("progress", job_id=jobs[0].id)]
    assert told == list(range(101))


async def test_a_server_has_the_script_of_completions_before_the_first_job_is_read(
    server, start_server, queue_name
):
    """Else the first one is sent twice, and `active` that rides with it comes after progress."""
    scene = Scene(start_server(), queue_name)
    seen = []

    async def handler(job):
        seen.append(scene.client.script_exists(scripts.COMPLETE.sha.decode()))

    await scene.queue.add("n", 1)
    async with scene.working(handler) as sink:
        await sink.next(JobOutcome)
    await scene.queue.close()
    assert seen == [[True]]


async def test_the_notes_of_a_run_that_failed_are_there_before_it_is_told(scene):
    async def handler(job):
        job.log(f"run {job.attempt}")
        job.update_progress(job.attempt)
        message = "no"
        raise RuntimeError(message)

    job = await scene.queue.add("n", 1, attempts=2)
    async with scene.working(handler):
        await eventually(scene.dead)
    assert log_of(scene, job) == [b"run 1", b"run 2"]
    story = scene.story(job.id)
    once = ["active", "progress", "failed"]
    assert [each for each in story if each in once] == once * 2


async def test_a_plain_function_in_a_thread_can_wait_for_what_it_wrote(scene):
    seen = []

    def handler(job):
        job.update_progress(50).wait(timeout=5)
        seen.append(progress_of(scene, job))
        seen.append(job.log("from a thread").wait(5))
        job.update_progress(100)

    job = await scene.queue.add("n", 1)
    async with scene.working(handler) as sink:
        await sink.next(JobOutcome)
        await eventually(lambda: "completed" in scene.story(job.id))
        assert progress_of(scene, job) == b"100"
    assert seen == [b"50", 1]


async def test_waiting_in_the_event_loop_is_refused_because_it_would_never_end(scene):
    refused = []

    async def handler(job):
        try:
            job.log("x").wait(5)
        except ChasquiError as error:
            refused.append(error.message)

    await scene.queue.add("n", 1)
    async with scene.working(handler) as sink:
        await sink.next(JobOutcome)
    assert "await it" in refused[0]


async def test_notes_live_as_long_as_results(scene):
    async def handler(job):
        job.update_progress(1)
        job.log("x")

    job = await scene.queue.add("n", 1)
    async with scene.working(handler, result_ttl_ms=60_000) as sink:
        await sink.next(JobOutcome)
    for key in (scene.keys.progress(job.id), scene.keys.log(job.id)):
        assert 0 < scene.client.ttl(key) <= 60


async def test_a_log_is_capped_and_long_lines_are_cut_with_a_mark(scene):
    async def handler(job):
        for number in range(400):
            job.log(f"line {number}")
        await job.log("é" * 40)

    job = await scene.queue.add("n", 1)
    async with scene.working(handler, log_max_stream_len=50, log_max_line_bytes=31) as sink:
        await sink.next(JobOutcome)
    lines = log_of(scene, job)
    assert 50 <= len(lines) <= 200
    assert lines[-2] == b"line 399"
    assert lines[-1] == "é".encode() * 12 + CUT_MARK
    assert len(lines[-1]) <= 31


@pytest.mark.parametrize("off", [{"events_enabled": False}, {"events_progress_enabled": False}])
async def test_progress_is_stored_without_being_told(scene, off):
    async def handler(job):
        await job.update_progress(7)

    job = await scene.queue.add("n", 1)
    async with scene.working(handler, **off) as sink:
        await sink.next(JobOutcome)
    assert (progress_of(scene, job), scene.events("progress")) == (b"7", [])


async def test_a_note_that_is_refused_is_logged_and_raised_to_whoever_awaits_only(scene, caplog):
    job_id = "j-refused"
    scene.client.set(scene.keys.log(job_id), "not a stream", ex=60)
    raised = []

    async def handler(job):
        job.log("nobody waits for this")
        try:
            await job.log("somebody does")
        except ChasquiError as error:
            raised.append(error)
        await job.update_progress(100)

    await scene.queue.add("n", 1, job_id=job_id)
    with caplog.at_level(logging.WARNING, "chasquimq.engine"):
        async with scene.working(handler) as sink:
            outcome = await sink.next(JobOutcome)
    assert outcome.kind == "ok"
    assert raised[0].kind == "WRONGTYPE"
    assert "events and notes were not written" in caplog.text


async def test_a_note_ends_though_what_is_told_beside_it_cannot_be_sent(scene, caplog):
    answers = []

    async def handler(job):
        worker._crew._teller._add([object()])
        for line in ("beside it", "after it"):
            try:
                answers.append(await soon(job.log(line)))
            except ChasquiError as error:
                answers.append(error.message)

    worker = scene.worker(handler)
    job = await scene.queue.add("n", 1)
    async with running(worker):
        await eventually(lambda: "completed" in scene.story(job.id))
    assert answers[0].startswith("this was not written: TypeError")
    assert answers[1:] == [1]
    assert log_of(scene, job) == [b"after it"]
    assert "teller: a batch of 3 was not written" in caplog.text


@pytest.mark.parametrize(
    ("wrong", "error"),
    [(-1, ValueError), (101, ValueError), (1.5, TypeError), (True, TypeError), ("5", TypeError)],
)
async def test_progress_is_a_whole_number_up_to_100(scene, wrong, error):
    caught = []

    async def handler(job):
        try:
            job.update_progress(wrong)
        except (TypeError, ValueError) as mistake:
            caught.append(type(mistake))
        try:
            job.log(wrong)
        except TypeError as mistake:
            caught.append(type(mistake))

    await scene.queue.add("n", 1)
    async with scene.working(handler) as sink:
        await sink.next(JobOutcome)
    assert caught[0] is error


async def test_a_handler_that_was_left_behind_is_told_that_nothing_more_is_written(scene):
    kept, begun = [], asyncio.Event()

    async def handler(job):
        kept.append(job)
        begun.set()

    await scene.queue.add("n", 1)
    async with scene.working(handler):
        await soon(begun.wait())
    with pytest.raises(ShutdownError, match="stopped"):
        await kept[0].log("too late")


async def test_a_waiter_that_gives_up_does_not_take_the_note_back(scene):
    async def handler(job):
        note = job.log("written all the same")
        waiter = asyncio.ensure_future(asyncio.wait_for(note, 5))
        await asyncio.sleep(0)
        waiter.cancel()
        await asyncio.wait([waiter])
        assert await note == 1

    job = await scene.queue.add("n", 1)
    async with scene.working(handler) as sink:
        assert (await sink.next(JobOutcome)).kind == "ok"
    assert log_of(scene, job) == [b"written all the same"]


async def test_discard_wants_no_other_run(scene):
    async def handler(job):
        job.discard()
        message = "hopeless"
        raise RuntimeError(message)

    await scene.queue.add("n", 1, attempts=5)
    async with scene.working(handler):
        (letter,) = await eventually(scene.dead)
    assert (letter["reason"], letter["attempts"]) == ("unrecoverable", 1)
    assert "hopeless" in letter["error"]


async def test_a_discarded_run_that_succeeds_completes(scene):
    async def handler(job):
        job.discard()

    await scene.queue.add("n", 1)
    async with scene.working(handler) as sink:
        assert (await sink.next(JobOutcome)).kind == "ok"
    assert scene.is_empty()


async def test_no_note_waits_for_ever_when_a_worker_is_cut_off_from_its_server(
    server, start_server, queue_name
):
    scene = Scene(start_server(), queue_name)
    first, second, answers = threading.Event(), threading.Event(), []

    def handler(job):
        notes = []
        for progress, may_begin in enumerate((first, second)):
            may_begin.wait(10)
            notes.append(job.update_progress(progress))
        for note in notes:
            try:
                answers.append(note.wait(10))
            except ShutdownError as error:
                answers.append(type(error))

    worker = scene.worker(handler, run_scheduler=False, delayed_enabled=False)
    running = asyncio.create_task(worker.run())
    await scene.queue.add("n", 1)
    await eventually(lambda: scene.events("active"))
    crew = worker._crew
    # Once all is answered, what is pending after the pause can only be the first note.
    await eventually(lambda: not crew._main._link._pending)
    scene.server.pause()
    try:
        first.set()
        await eventually(lambda: crew._main._link._pending)
        second.set()
        await eventually(lambda: len(crew._teller.gatherer))
        await worker.close(force=True)
        await soon(running)
        await eventually(lambda: len(answers) == 2)
    finally:
        scene.server.resume()
    assert answers == [ShutdownError, ShutdownError]
    await scene.queue.close()
