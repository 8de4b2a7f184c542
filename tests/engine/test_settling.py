"""What becomes of a delivery whose handler has run, with every event it leaves behind."""

import asyncio

import pytest
import redis

from chasquimq import BackoffSpec, QueueEvents, RetryConfig, UnrecoverableError
from chasquimq.engine import intake, storable
from chasquimq.engine.settlement import Settlement
from chasquimq.metrics import DlqRouted, JobOutcome, JobOutcomeKind, NoopSink, RetryScheduled
from chasquimq.wire.codec import pack, unpack
from chasquimq.wire.envelope import Envelope, decode, encode
from chasquimq.wire.ids import StreamId
from chasquimq.wire.member import decode_member
from chasquimq.wire.retry import RetryOverride
from tests.support.eventually import eventually_sync
from tests.support.scene import Scene, running, soon
from tests.support.sink import RecordingSink


async def nothing(job):
    return None


async def fail(job):
    message = f"run {job.attempt}"
    raise ValueError(message)


async def test_a_run_that_failed_is_told_in_the_log_with_its_traceback_and_what_comes_next(
    scene, caplog
):
    await scene.queue.add("mail", 1)
    with caplog.at_level("WARNING", "chasquimq.engine"):
        async with scene.working(fail) as sink:
            await sink.take(JobOutcome, 3)
    first, second, last = [each.getMessage() for each in caplog.records if "run" in each.message]
    assert "(mail) failed in run 1, next try in" in first
    assert "Traceback" in first
    assert "failed in run 2, next try in" in second
    assert "Traceback" not in second
    assert "failed for good" in last


async def test_names_and_ids_that_others_wrote_are_cut_in_the_log(scene, caplog):
    envelope = encode(Envelope("i" * 3_000, pack(1), 1, 0, RetryOverride(max_attempts=2)))
    scene.client.xadd(scene.keys.stream, {"d": envelope, "n": "n" * 2_000})
    with caplog.at_level("WARNING", "chasquimq.engine"):
        async with scene.working(fail) as sink:
            await sink.take(JobOutcome, 2)
    records = [each for each in caplog.records if "failed" in each.getMessage()]
    job_id, name = (f"{letter * 256}... ({many} characters)"
                    for letter, many in (("i", "3,000"), ("n", "2,000")))  # fmt: skip
    assert [each.job_id for each in records] == [job_id] * 2
    for each in records:
        assert each.getMessage().startswith(f"job {job_id} ({name}) failed ")


# --- completed


async def test_a_completed_job_is_told_from_waiting_to_completed(scene):
    job = await scene.queue.add("mail", {"to": "ada"})
    async with scene.working(nothing) as sink:
        outcome = await sink.next(JobOutcome)
    assert (outcome.kind, outcome.attempt, outcome.name) == (JobOutcomeKind.OK, 1, "mail")
    assert scene.is_empty()
    waiting, active, completed = scene.events(job_id=job.id)
    assert [event.job_name for event in (waiting, active, completed)] == ["mail"] * 3
    assert (waiting.name, waiting.fields.keys()) == ("waiting", {"ts"})
    assert active.name == "active"
    assert active.fields == {
        "ts": active.fields["ts"],
        "attempt": 1,
        "wait_ms": active.fields["ts"] - job.created_at_ms,
        "created_at_ms": job.created_at_ms,
    }
    assert completed.name == "completed"
    assert completed.fields.keys() == {"ts", "attempt", "duration_us"}
    assert completed.fields["attempt"] == 1
    assert completed.fields["duration_us"] == outcome.handler_duration_us


async def test_a_part_of_a_batch_is_settled_and_more_is_read_while_the_rest_runs(
    scene, monkeypatch
):
    """Handlers that never suspend: only what left before can be seen while one of them runs."""
    # A look for expired leases, which some servers want apart, would come before the second read.
    monkeypatch.setattr(intake, "_CLAIM_EVERY_MS", 60_000)
    seen = []

    def last_pending():
        return StreamId.parse(scene.pending()[-1]["message_id"])

    async def handler(job):
        if job.data == 150:
            eventually_sync(lambda: scene.depth() < 400)
            eventually_sync(lambda: last_pending() > first_read[0])
            seen.append(job.data)
        elif job.data == 0:
            first_read.append(last_pending())

    first_read = []
    await scene.queue.add_bulk([{"name": "n", "data": n} for n in range(400)])
    async with scene.working(handler, concurrency=200) as sink:
        await sink.take(JobOutcome, 400)
    assert seen == [150]
    assert scene.is_empty()


async def test_events_of_a_job_keep_their_order_however_many_run_at_once(scene):
    gate = asyncio.Event()

    async def handler(job):
        if job.data % 3 == 0:
            await gate.wait()
        elif job.data % 7 == 0:
            gate.set()
        elif job.data % 10 == 0 and job.attempt == 1:
            await fail(job)

    jobs = await scene.queue.add_bulk([{"name": "n", "data": n} for n in range(500)])
    flaky = sum(1 for n in range(500) if n % 10 == 0 and n % 3 and n % 7)
    async with scene.working(handler) as sink:
        await sink.take(JobOutcome, 500 + flaky)
    stories = {job.id: [] for job in jobs}
    for event in scene.events():
        if event.job_id:
            stories[event.job_id].append(event.name)
    smooth = ("waiting", "active", "completed")
    bumpy = ("waiting", "active", "failed", "retry-scheduled", *smooth)
    assert {tuple(story) for story in stories.values()} == {smooth, bumpy}


async def test_when_completed_is_told_the_entry_is_gone_and_the_result_can_be_read(scene):
    async def handler(job):
        return job.data * 2

    async def watch():
        checked = 0
        async with QueueEvents(scene.name, redis_url=scene.server.socket_url) as events:
            ready.set()
            async for event in events:
                if event.name == "completed":
                    assert unpack(scene.client.get(scene.keys.result(event.job_id))) % 2 == 0
                    assert scene.client.get(scene.keys.outcome(event.job_id)).startswith(b"v")
                    checked += 1
                    assert len(scene.pending()) <= 50 - checked
                    if checked == 50:
                        return

    ready = asyncio.Event()
    watching = asyncio.create_task(watch())
    await soon(ready.wait())
    async with scene.working(handler, store_results=True, concurrency=3):
        await scene.queue.add_bulk([{"name": "n", "data": n} for n in range(50)])
        await soon(watching)


async def test_without_events_a_job_completes_all_the_same_and_nothing_is_told(scene):
    quiet = scene.worker(nothing, sink=(sink := RecordingSink()), events_enabled=False)
    job = await scene.queue.add("n", 1)
    async with running(quiet):
        await sink.next(JobOutcome)
    assert scene.is_empty()
    assert scene.story(job.id) == ["waiting"]  # the producer's own


async def test_a_value_is_stored_with_its_time_to_live_and_none_is_told_from_nothing(scene):
    async def handler(job):
        return job.data

    values = [0, "", False, [], {"a": [1]}, None]
    jobs = await scene.queue.add_bulk([{"name": "n", "data": value} for value in values])
    async with scene.working(handler, store_results=True, result_ttl_ms=7_500) as sink:
        await sink.take(JobOutcome, len(values))
    outcomes = [await scene.queue.get_outcome(job.id) for job in jobs]
    assert [(each.status, each.value) for each in outcomes] == [("ok", value) for value in values]
    assert 0 < scene.client.ttl(scene.keys.result(jobs[0].id)) <= 8
    assert not scene.client.exists(scene.keys.result(jobs[-1].id))


async def test_a_result_is_not_stored_if_another_worker_has_settled_the_job(scene):
    async def handler(job):
        (held,) = scene.pending()
        scene.client.xack(scene.keys.stream, "default", held["message_id"])
        scene.client.xdel(scene.keys.stream, held["message_id"])
        return "too late"

    job = await scene.queue.add("n", 1)
    async with scene.working(handler, store_results=True) as sink:
        await sink.next(JobOutcome)
    assert scene.story(job.id) == ["waiting", "active"]
    assert not scene.client.exists(scene.keys.result(job.id), scene.keys.outcome(job.id))


async def test_a_server_out_of_memory_still_takes_the_acknowledgement(
    server, start_server, queue_name
):
    scene = Scene(start_server(), queue_name)

    async def handler(job):
        scene.client.config_set("maxmemory", 1)
        return "x" * 1_000

    await scene.queue.add("n", 1)
    async with scene.working(handler, store_results=True, delayed_enabled=False) as sink:
        await sink.next(JobOutcome)
    with pytest.raises(redis.OutOfMemoryError):
        scene.client.set("a", 1)
    assert scene.is_empty()
    await scene.queue.close()


# --- failed, retried


async def test_a_job_that_fails_once_is_retried_and_every_step_is_told(scene):
    async def handler(job):
        if job.attempt == 1:
            await fail(job)

    job = await scene.queue.add("mail", 1)
    async with scene.working(handler, retry=RetryConfig(initial_backoff_ms=3, jitter_ms=0)) as sink:
        first, second = await sink.take(JobOutcome, 2)
        assert await sink.next(RetryScheduled) == RetryScheduled(2, 3, "mail")
    assert [first.kind, second.kind] == [JobOutcomeKind.ERR, JobOutcomeKind.OK]
    assert [first.attempt, second.attempt] == [1, 2]
    events = scene.events(job_id=job.id)
    assert [event.name for event in events] == [
        "waiting", "active", "failed", "retry-scheduled", "waiting", "active", "completed"
    ]  # fmt: skip
    assert {event.job_name for event in events} == {"mail"}
    _, _, failed, retry, _, active, completed = [dict(event.fields) for event in events]
    for fields in (failed, retry, active, completed):
        del fields["ts"]
    assert failed == {
        "attempt": 1,
        "reason": "run 1",
        "duration_us": first.handler_duration_us,
    }
    assert retry == {"attempt": 2, "backoff_ms": 3}
    assert (active["attempt"], active["created_at_ms"]) == (2, job.created_at_ms)
    assert completed == {"attempt": 2, "duration_us": second.handler_duration_us}
    assert scene.is_empty()


async def test_a_retry_keeps_all_of_the_job_but_its_count(scene):
    backoff = BackoffSpec.exponential(60_000, multiplier=2.5, max_ms=90_000, jitter_ms=0)
    job = await scene.queue.add("mail", {"k": [1]}, attempts=7, backoff=backoff)
    async with scene.working(fail) as sink:
        await sink.next(RetryScheduled)
    ((member, run_at_ms),) = scene.client.zrange(scene.keys.delayed, 0, -1, withscores=True)
    name, packed = decode_member(member)
    envelope = decode(packed)
    assert (name, envelope.id, envelope.created_at_ms) == ("mail", job.id, job.created_at_ms)
    assert (envelope.attempt, unpack(envelope.payload)) == (1, {"k": [1]})
    assert envelope.retry == RetryOverride(7, backoff)
    seconds, _ = scene.client.time()
    assert 0 < run_at_ms - seconds * 1_000 <= 61_000


async def test_attempts_and_age_are_what_the_handler_sees_too(scene):
    seen = []

    async def handler(job):
        seen.append((job.id, job.name, job.data, job.attempt, job.created_at_ms))
        await fail(job)

    job = await scene.queue.add("mail", [1])
    async with scene.working(handler) as sink:
        await sink.next(DlqRouted)
    assert seen == [(job.id, "mail", [1], n, job.created_at_ms) for n in (1, 2, 3)]


@pytest.mark.parametrize("attempts", [1, 2, 5])
async def test_a_jobs_own_number_of_attempts_goes_before_the_workers(scene, attempts):
    await scene.queue.add("n", 1, attempts=attempts)
    async with scene.working(fail) as sink:
        routed = await sink.next(DlqRouted)
    assert routed == DlqRouted("retries_exhausted", attempts, "n")
    assert len(sink.seen(JobOutcome)) == attempts


async def test_a_jobs_own_backoff_goes_before_the_workers(scene):
    await scene.queue.add("fixed", 1, backoff=BackoffSpec.fixed(2, jitter_ms=0))
    async with scene.working(fail, max_attempts=4) as sink:
        await sink.next(DlqRouted)
    assert [retry.backoff_ms for retry in sink.seen(RetryScheduled)] == [2, 2, 2]
    growing = BackoffSpec.exponential(1, multiplier=3.0, max_ms=5, jitter_ms=0)
    await scene.queue.add("growing", 1, backoff=growing)
    async with scene.working(fail, max_attempts=4) as sink:
        await sink.next(DlqRouted)
    assert [retry.backoff_ms for retry in sink.seen(RetryScheduled)] == [1, 3, 5]


async def test_a_retry_is_written_only_if_the_entry_is_still_there(scene):
    async def handler(job):
        (held,) = scene.pending()
        scene.client.xack(scene.keys.stream, "default", held["message_id"])
        await fail(job)

    job = await scene.queue.add("n", 1)
    async with scene.working(handler) as sink:
        await sink.next(JobOutcome)
    assert scene.delayed() == 0
    assert sink.seen(RetryScheduled) == []
    assert scene.story(job.id) == ["waiting", "active", "failed"]


# --- dead-lettered


async def test_a_job_that_used_up_its_attempts_is_dead_lettered_with_all_that_is_known(scene):
    job = await scene.queue.add("mail", {"k": 1})
    async with scene.working(fail, max_attempts=2, consumer_id="c-1") as sink:
        assert await sink.next(DlqRouted) == DlqRouted("retries_exhausted", 2, "mail")
    (letter,) = await scene.dead()
    envelope = decode(letter.pop("payload"))
    assert (envelope.id, envelope.attempt, unpack(envelope.payload)) == (job.id, 1, {"k": 1})
    assert envelope.created_at_ms == job.created_at_ms
    traceback = letter.pop("traceback")
    assert traceback.startswith("Traceback (most recent call last):")
    first_frame = traceback.splitlines()[1]
    assert f'"{__file__}"' in first_frame  # not the frames of ours that lead to the handler
    assert traceback.endswith("ValueError: run 2\n")
    dlq_id, source_id, failed_at = (letter.pop(k) for k in ("dlq_id", "source_id", "failed_at"))
    assert StreamId.parse(dlq_id) >= StreamId.parse(source_id)
    assert job.created_at_ms <= failed_at <= scene.client.time()[0] * 1_000 + 1_000
    assert letter == {
        "reason": "retries_exhausted",
        "detail": None,
        "name": "mail",
        "error": "ValueError: run 2",
        "attempts": 2,
        "consumer": "c-1",
        "job_id": job.id,
    }
    told = scene.events("dlq", job_id=job.id)[0]
    assert (told.job_name, told.fields) == (
        "mail",
        {"ts": told.fields["ts"], "attempt": 2, "reason": "retries_exhausted"},
    )
    assert scene.story(job.id)[-2:] == ["failed", "dlq"]
    assert scene.is_empty()


class ClosedError(UnrecoverableError):
    pass


@pytest.mark.parametrize("kind", [UnrecoverableError, ClosedError])
async def test_an_unrecoverable_error_is_dead_lettered_after_one_run_and_told_once(scene, kind):
    async def handler(job):
        message = "the account is closed"
        raise kind(message)

    job = await scene.queue.add("n", 1, attempts=9)
    async with scene.working(handler, store_results=True) as sink:
        assert await sink.next(DlqRouted) == DlqRouted("unrecoverable", 1, "n")
    (letter,) = await scene.dead()
    assert letter["error"] == f"{kind.__name__}: the account is closed"
    assert letter["attempts"] == 1
    (failed,) = scene.events("failed")
    assert failed.fields["reason"] == "the account is closed"
    assert scene.story(job.id) == ["waiting", "active", "failed", "dlq"]
    outcome = await scene.queue.get_outcome(job.id)
    assert (outcome.status, outcome.reason) == ("failed", "unrecoverable")


async def test_an_error_whose_text_is_not_utf_8_is_settled_like_any_other(scene):
    async def handler(job):
        message = "file \udcff"
        raise UnrecoverableError(message)

    await scene.queue.add("n", 1)
    async with scene.working(handler, store_results=True) as sink:
        await sink.next(DlqRouted)
    (letter,) = await scene.dead()
    assert letter["error"] == "UnrecoverableError: file \\udcff"


async def test_data_that_is_not_messagepack_is_dead_lettered_without_asking_the_handler(scene):
    ran = []

    async def handler(job):
        ran.append(job)

    scene.add_raw({"d": pack(["j1", b"\xc1", 1_700_000_000_000, 0]), "n": "odd"})
    async with scene.working(handler) as sink:
        routed = await sink.next(DlqRouted)
    assert (routed.reason, routed.name) == ("decode_failed", "odd")
    assert ran == []
    assert len(sink.seen(JobOutcome)) == 1


async def test_a_value_that_cannot_be_stored_is_not_worth_another_run(scene):
    async def handler(job):
        return {"file": object()}

    job = await scene.queue.add("n", 1)
    async with scene.working(handler, store_results=True) as sink:
        assert (await sink.next(DlqRouted)).reason == "unrecoverable"
    (letter,) = await scene.dead()
    assert "the handler's return value cannot be stored: result['file']" in letter["error"]
    assert scene.story(job.id)[-1] == "dlq"


async def test_a_result_that_no_server_takes_is_not_worth_another_run(scene, monkeypatch):
    monkeypatch.setattr(storable, "MOST_RESULT_BYTES", 1_000)

    async def handler(job):
        return b"x" * job.data

    fits = await scene.queue.add("n", 900)
    await scene.queue.add("n", 1_000)
    async with scene.working(handler, store_results=True) as sink:
        assert (await sink.next(DlqRouted)).reason == "unrecoverable"
        assert await soon(fits.wait_for_result()) == b"x" * 900
    (letter,) = await scene.dead()
    assert "it has 1003 bytes, and a result may have 1000; store it elsewhere" in letter["error"]


async def test_a_worker_that_stores_no_results_does_not_look_at_them(scene):
    async def handler(job):
        return object()

    job = await scene.queue.add("n", 1)
    async with scene.working(handler) as sink:
        await sink.next(JobOutcome)
    assert scene.story(job.id)[-1] == "completed"


async def test_with_no_attempts_at_all_every_job_is_dead_lettered_unrun(scene):
    await scene.queue.add("n", 1)
    async with scene.working(nothing, max_attempts=0) as sink:
        assert await sink.next(DlqRouted) == DlqRouted("retries_exhausted", 0, "n")
    assert sink.seen(JobOutcome) == []
    (letter,) = await scene.dead()
    assert (letter["error"], letter["attempts"]) == ("0 runs were made, 0 allowed", 0)


async def test_a_replayed_job_has_a_full_budget_again(scene):
    job = await scene.queue.add("n", 1)
    async with scene.working(fail) as sink:
        await sink.next(DlqRouted)
        assert await scene.queue.replay_dlq() == 1
        await sink.next(DlqRouted)
    assert [outcome.attempt for outcome in sink.seen(JobOutcome)] == [1, 2, 3, 1, 2, 3]
    (letter,) = await scene.dead()
    assert decode(letter["payload"]).id == job.id


# --- beside the job


async def test_a_typed_payload_of_another_producer_reaches_the_handler_as_the_value_it_is(scene):
    seen = []

    async def handler(job):
        seen.append((job.id, job.data, job.attempt))
        if job.attempt == 1:
            await fail(job)

    scene.add_raw({"d": pack(["t1", {"k": [1, 2]}, 1_700_000_000_000, 0])})
    async with scene.working(handler) as sink:
        await sink.take(JobOutcome, 2)
    assert seen == [("t1", {"k": [1, 2]}, 1), ("t1", {"k": [1, 2]}, 2)]


async def test_a_metrics_sink_that_fails_costs_no_job(scene):
    done = asyncio.Event()

    class Broken(NoopSink):
        def job_outcome(self, outcome):
            done.set()
            message = "sink"
            raise RuntimeError(message)

        reader_batch = job_outcome

    job = await scene.queue.add("n", 1)
    async with running(scene.worker(nothing, sink=Broken())):
        await soon(done.wait())
    assert scene.story(job.id) == ["waiting", "active", "completed"]


# --- slips of ours


async def test_a_job_whose_end_could_not_be_settled_comes_back_to_a_worker_that_lives(
    scene, monkeypatch, caplog
):
    settle, upset = Settlement.settle, []

    def slip_once(self, run, outcome, duration_us):
        if not upset:
            upset.append(run.attempt)
            message = "a slip"
            raise RuntimeError(message)
        settle(self, run, outcome, duration_us)

    monkeypatch.setattr(Settlement, "settle", slip_once)
    await scene.queue.add("n", 1)
    async with scene.working(nothing, concurrency=1, lease_ms=100) as sink:
        outcome = await sink.next(JobOutcome)
    assert (upset, outcome.kind, outcome.attempt) == ([1], JobOutcomeKind.OK, 2)
    assert scene.is_empty()
    assert "could not be settled and will run again" in caplog.text
