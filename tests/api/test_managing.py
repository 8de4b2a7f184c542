"""Changing what is queued by hand: which jobs change, what stays, what a caller is told."""

import asyncio
import functools
from datetime import UTC, datetime, timedelta

import pytest

from chasquimq import (
    BackoffSpec,
    ConfigError,
    ConnectionFailedError,
    Counts,
    FlowProducer,
    JobState,
    NotSupportedError,
    Queue,
    QueueBusyError,
    RepeatPattern,
    SyncQueue,
    decode_payload,
    encode_payload,
)
from chasquimq.testing import run_until_idle, running, until_idle
from chasquimq.wire.envelope import decode
from chasquimq.wire.keys import QueueKeys, glob_of
from tests.support.eventually import eventually
from tests.support.raw_queue import RawQueue

HOUR_MS = 3_600_000
LARGE = "x" * 5_000


@pytest.fixture
def raw(server, queue_name):
    return RawQueue(server.client(), QueueKeys(queue_name))


async def nothing(_):
    """A handler that returns at once."""


async def failing(_):
    raise ValueError


@pytest.fixture
def blocked(make_worker):
    """A worker whose handlers wait for `go`, and say when they begin."""

    class Blocked:
        def __init__(self):
            self.go, self.begun, self.ran = asyncio.Event(), asyncio.Event(), []
            self.worker = make_worker(self.handle, concurrency=1, read_count=1)

        async def handle(self, job):
            self.ran.append(job.data)
            self.begun.set()
            await self.go.wait()
            return job.data

    return Blocked()


# --- readiness and pause


async def test_a_queue_is_ready_once_its_server_answers(door, unconnected):
    assert await door.wait_until_ready() is None
    with pytest.raises(ConnectionFailedError):
        await unconnected.wait_until_ready()


async def test_a_pause_is_seen_by_everyone_until_somebody_resumes(make_door):
    assert await make_door().is_paused() is False
    assert await make_door().pause() is True
    assert await make_door().pause() is False
    assert await make_door().is_paused() is True
    assert await make_door().resume() is True
    assert await make_door().resume() is False
    assert await make_door().is_paused() is False


async def test_a_queue_that_tells_no_events_tells_no_pause(make_door, raw):
    door = make_door(events_enabled=False)
    await door.pause()
    await door.resume()
    assert set(raw.everything()) == {"held", "resumed"}


# --- one job


@pytest.mark.parametrize("data", [1, LARGE], ids=["indexed", "looked for"])
@pytest.mark.parametrize("delay_ms", [None, HOUR_MS], ids=["waiting", "delayed"])
async def test_a_removed_job_leaves_nothing_and_can_be_removed_once(door, raw, data, delay_ms):
    other = await door.add("other", data, delay_ms=delay_ms)
    job = await door.add("send", data, delay_ms=delay_ms)
    assert await door.remove(job.id) is True
    assert await door.remove(job.id) is False
    assert await door.get_job_state(job.id) is JobState.UNKNOWN
    assert await door.get_job(other.id) == other


@pytest.mark.parametrize("delay_ms", [None, HOUR_MS], ids=["waiting", "delayed"])
async def test_a_removed_id_is_free_again(door, delay_ms):
    await door.add("send", 1, job_id="mine", delay_ms=delay_ms)
    assert await door.remove("mine") is True
    assert not (await door.add("send", 2, job_id="mine", delay_ms=delay_ms)).deduplicated
    assert (await door.get_job("mine")).data == 2


async def test_a_job_that_runs_cannot_be_removed_or_changed(door, queue, blocked, raw):
    job = await door.add("send", 1, job_id="mine")
    async with running(blocked.worker):
        await blocked.begun.wait()
        assert await door.remove(job.id) is False
        assert await door.update_job_data(job.id, 2) is False
        assert await door.promote_job(job.id) is False
        assert await door.get_job_state(job.id) is JobState.ACTIVE
        assert (await door.add("send", 2, job_id="mine")).deduplicated
        blocked.go.set()
    assert blocked.ran == [1]


async def test_a_retry_that_waits_for_its_time_is_a_delayed_job(door, queue, make_worker):
    job = await door.add("send", 1, backoff=HOUR_MS)
    await run_until_idle(make_worker(failing), queue)
    assert await door.reschedule(job.id, delay_ms=2 * HOUR_MS) is True
    assert await door.update_job_data(job.id, 2) is True
    changed = await door.get_job(job.id)
    assert (changed.data, changed.attempt) == (2, 1)
    assert await door.remove(job.id) is True
    assert await door.counts() == Counts(0, 0, 0, 0)


async def test_a_job_far_back_in_a_long_queue_is_removed(door):
    await door.add_bulk([{"name": "n", "data": n} for n in range(2_500)])
    await door.add("mine", 1, job_id="order-17")
    await door.add_bulk([{"name": "n", "data": n} for n in range(100)])
    assert await door.remove("order-17") is True
    assert (await door.counts()).waiting == 2_600


async def test_a_promoted_job_waits_and_keeps_its_id(door, queue, make_worker):
    seen = []

    async def handler(job):
        seen.append((job.id, job.name, job.data))

    job = await door.add("send", 1, job_id="mine", delay_ms=HOUR_MS)
    large = await door.add("send", LARGE, delay_ms=HOUR_MS)
    assert await door.promote_job(job.id) is True
    assert await door.promote_job(job.id) is False
    assert await door.promote_job(large.id) is True
    assert await door.promote_job("no such job") is False
    assert await door.get_job_state(job.id) is JobState.WAITING
    assert (await door.add("send", 2, job_id="mine")).deduplicated
    await run_until_idle(make_worker(handler), queue)
    assert seen == [("mine", "send", 1), (large.id, "send", LARGE)]


@pytest.mark.parametrize("form", ["ms", "timedelta", "datetime"])
async def test_a_rescheduled_job_is_due_at_its_new_time(door, raw, form):
    time = {
        "ms": {"delay_ms": 2 * HOUR_MS},
        "timedelta": {"delay": timedelta(hours=2)},
        "datetime": {"delay_ms": datetime.now(UTC) + timedelta(hours=2)},
    }[form]
    job = await door.add("send", 1, delay_ms=60_000)
    now_ms = raw.now_ms()
    assert await door.reschedule(job.id, **time) is True
    [(_, score)] = raw.delayed()
    assert abs(score - now_ms - 2 * HOUR_MS) < 60_000


async def test_a_job_rescheduled_to_now_runs(door, queue, make_worker):
    ran = asyncio.Event()

    async def handler(_):
        ran.set()

    job = await door.add("send", 1, delay_ms=HOUR_MS)
    async with running(make_worker(handler)):
        assert await door.reschedule(job.id, delay_ms=0) is True
        await asyncio.wait_for(ran.wait(), 10)
    assert await door.reschedule(job.id, delay_ms=0) is False


async def test_updated_data_is_what_runs_and_the_job_is_else_the_same(door, queue, make_worker):
    seen = []

    async def handler(job):
        seen.append((job.id, job.name, job.data))

    first = await door.add("first", 1, attempts=7)
    await door.add("second", 2)
    later = await door.add("later", 3, delay_ms=HOUR_MS)
    before = await door.get_job(first.id)
    assert await door.update_job_data(first.id, {"new": 1}) is True
    assert await door.update_job_data(later.id, {"new": 3}) is True
    assert await door.update_job_data("no such job", 0) is False
    after = await door.get_job(first.id)
    assert (after.created_at_ms, after.attempt) == (before.created_at_ms, before.attempt)
    assert await door.get_job_state(later.id) is JobState.DELAYED
    await door.promote_job(later.id)
    await run_until_idle(make_worker(handler), queue)
    assert [job[1:] for job in seen] == [
        ("second", 2),
        ("first", {"new": 1}),
        ("later", {"new": 3}),
    ]


async def test_updated_data_keeps_the_jobs_own_rules(door, raw):
    job = await door.add("send", 1, attempts=7, backoff=5)
    await door.update_job_data(job.id, 2)
    [entry] = raw.stream()
    envelope = decode(entry["d"])
    assert (envelope.retry.max_attempts, envelope.retry.backoff) == (7, BackoffSpec.fixed(5))


async def test_data_that_is_too_large_changes_nothing(make_door, raw):
    door = make_door(max_payload_bytes=1_000)
    job = await door.add("send", 1)
    before = raw.everything()
    with pytest.raises(ValueError, match="max_payload_bytes"):
        await door.update_job_data(job.id, LARGE)
    assert raw.everything() == before


async def test_one_dead_letter_is_retried_by_the_id_of_its_job(door, queue, make_worker):
    jobs = [await door.add("send", n, attempts=1) for n in range(3)]
    await run_until_idle(make_worker(failing), queue)
    assert await door.retry_job(jobs[1].id) is True
    assert await door.retry_job(jobs[1].id) is False
    assert await door.get_job_state(jobs[1].id) is JobState.WAITING
    assert await door.counts() == Counts(waiting=1, active=0, delayed=0, dead=2)


# --- drain


async def test_a_drain_removes_what_waits_and_what_is_delayed_and_frees_ids(door):
    await door.add_bulk([{"name": "n", "data": n, "job_id": f"w{n}"} for n in range(1_300)])
    delayed = [
        {"name": "n", "data": n, "job_id": f"d{n}", "delay_ms": HOUR_MS} for n in range(1_300)
    ]
    await door.add_bulk(delayed)
    assert await door.drain(False, dry_run=True) == 1_300  # noqa: FBT003 -- as documented
    assert await door.drain(dry_run=True) == 2_600
    assert await door.drain(False) == 1_300  # noqa: FBT003 -- as documented
    assert await door.counts() == Counts(0, 0, 1_300, 0)
    assert await door.drain() == 1_300
    assert await door.drain() == 0
    assert not (await door.add("n", 1, job_id="w7")).deduplicated
    assert not (await door.add("n", 1, job_id="d7")).deduplicated


async def test_a_dry_run_of_anything_changes_nothing(door, queue, raw, make_worker):
    await door.add("dead", 1, attempts=1)
    await run_until_idle(make_worker(failing), queue)
    await door.add("done", 1)
    await run_until_idle(make_worker(nothing, store_results=True), queue)
    await door.add("now", 1, job_id="a")
    await door.add("later", 1, job_id="b", delay_ms=HOUR_MS)
    await door.add("again", 1, repeat=RepeatPattern.every(HOUR_MS))
    before = raw.everything()

    assert await door.drain(dry_run=True) == 2
    for state in ("completed", "failed", "waiting", "delayed"):
        assert len(await door.clean(state=state, dry_run=True)) == 1, state
    keys = await door.obliterate(dry_run=True)
    assert raw.everything() == before
    # All but what is held, which is no key, and the bell, which will soon be none.
    assert keys == len([name for name in before if not name.endswith("wake")]) - 1
    assert await door.obliterate() == keys


async def test_a_drain_beside_a_worker_leaves_every_job_to_one_of_them(door, make_worker, queue):
    ran = []

    async def handler(job):
        ran.append(job.data)

    await door.add_bulk([{"name": "n", "data": n} for n in range(3_000)])
    async with running(make_worker(handler, concurrency=10)):
        await eventually(lambda: ran)
        drained = await door.drain()
        await until_idle(queue)
    assert len(ran) == len(set(ran))
    assert len(ran) + drained == 3_000
    assert drained > 0
    assert await door.counts() == Counts(0, 0, 0, 0)


async def test_a_drain_leaves_what_is_in_flight_and_what_recurs(door, blocked, queue):
    await door.add("again", 1, repeat=RepeatPattern.every(HOUR_MS))
    await door.add_bulk([{"name": "n", "data": n} for n in range(5)])
    async with running(blocked.worker):
        await blocked.begun.wait()
        active = await door.get_active_count()
        assert await door.drain() == 5 - active
        blocked.go.set()
        await eventually(lambda: len(blocked.ran) == active)
    assert blocked.ran == list(range(active))
    assert len(await door.get_repeatable_jobs()) == 1


# --- clean


async def test_waiting_jobs_are_cleaned_oldest_first_up_to_the_limit(door):
    jobs = await door.add_bulk([{"name": "n", "data": n, "job_id": f"j{n}"} for n in range(150)])
    assert await door.clean(HOUR_MS, state="waiting") == []
    assert await door.clean(limit=120, state="waiting") == [job.id for job in jobs[:120]]
    assert await door.clean(limit=0, state="waiting") == []
    assert (await door.counts()).waiting == 30
    assert not (await door.add("n", 1, job_id="j0")).deduplicated


async def test_delayed_jobs_are_cleaned_by_when_they_were_created(door):
    jobs = await door.add_bulk([{"name": "n", "data": n, "delay_ms": 50} for n in range(10)])
    assert await door.clean(HOUR_MS, state="delayed") == []
    assert len(await door.clean(limit=4, state="delayed")) == 4
    left = await door.clean(state="delayed")
    assert len(left) == 6
    assert set(left) < {job.id for job in jobs}


async def test_dead_letters_are_cleaned_by_when_they_failed(door, queue, make_worker, raw):
    job = await door.add("send", 1, attempts=1)
    await run_until_idle(make_worker(failing), queue)
    raw.client.xadd(raw.keys.dlq, {"d": b"", "reason": "malformed"})
    [_, broken] = [entry_id.decode() for entry_id, _ in raw.client.xrange(raw.keys.dlq)]
    assert await door.clean(HOUR_MS, state="failed") == []
    assert await door.clean(state="failed") == [job.id, broken]
    assert await door.peek_dlq() == []


async def test_completed_jobs_are_cleaned_by_when_they_ended(door, queue, make_worker, raw):
    jobs = [await door.add("send", n) for n in range(3)]
    await run_until_idle(make_worker(nothing, store_results=True), queue)
    raw.client.set(raw.keys.result("reference"), b"\x01", ex=60)
    assert await door.clean(HOUR_MS) == []
    raw.client.set(raw.keys.outcome(jobs[0].id), b"v5", ex=60)
    assert await door.clean(HOUR_MS) == [jobs[0].id]
    assert sorted(await door.clean()) == sorted([jobs[1].id, jobs[2].id, "reference"])
    assert await door.get_job_state(jobs[1].id) is JobState.UNKNOWN


# --- obliterate


async def test_an_obliterated_queue_has_no_key_left_and_its_neighbours_have_all(
    door, queue, raw, make_worker, server, queue_name
):
    neighbour = f"{queue_name}-2"
    async with Queue(neighbour, redis_url=server.url) as other:
        await other.add("send", 1, job_id="mine")
        before = RawQueue(server.client(), QueueKeys(neighbour)).everything()
        await door.add("dead", 1, attempts=1)
        await run_until_idle(make_worker(failing, store_results=True), queue)
        await door.add_bulk([{"name": "n", "data": n, "job_id": f"j{n}"} for n in range(1_500)])
        await door.add("again", 1, repeat=RepeatPattern.every(HOUR_MS))
        await door.pause()
        assert await door.obliterate() > 1_500
        assert raw.everything() == {"held": []}
        assert await door.obliterate() == 0
        assert RawQueue(server.client(), QueueKeys(neighbour)).everything() == before


async def test_keys_of_somebody_else_under_the_tag_of_an_obliterated_queue_stay(
    door, server, queue_name
):
    client, keys = server.client(), QueueKeys(queue_name)
    foreign = [keys.tag + b":strange", keys.tag + b":results", keys.tag + b":stream:2"]
    for key in foreign:
        client.set(key, "x", ex=60)
    await door.add("send", 1, job_id="mine")
    number = await door.obliterate(dry_run=True)
    assert await door.obliterate() == number
    assert sorted(client.scan_iter(glob_of(keys, b":*"), count=1_000)) == sorted(foreign)


@pytest.mark.parametrize("ending", ["*", "?", "[a-z]", "\\", "^-]"])
async def test_a_name_that_looks_like_a_pattern_is_taken_as_it_is(server, queue_name, ending):
    client = server.client()
    async with Queue(f"{queue_name}x", redis_url=server.url) as other:
        await other.add("send", 1, job_id="mine")
    odd = Queue(f"{queue_name}{ending}", redis_url=server.url)
    await odd.add("send", 1, job_id="mine")
    assert await odd.obliterate(dry_run=True) == 4
    assert await odd.obliterate() == 4
    await odd.close()
    left = {key.decode() for key in client.scan_iter(count=1_000) if queue_name.encode() in key}
    assert {key.partition("}")[0] for key in left} == {f"{{chasqui:{queue_name}x"}


async def test_a_queue_with_jobs_in_flight_is_not_obliterated_but_by_force(door, blocked, raw):
    await door.add_bulk([{"name": "n", "data": n} for n in range(5)])
    async with running(blocked.worker):
        await blocked.begun.wait()
        for dry_run in (True, False):
            with pytest.raises(QueueBusyError, match=r"in flight.*force=True"):
                await door.obliterate(dry_run=dry_run)
        assert (await door.counts()).active >= 1
        assert await door.obliterate(force=True) > 0
        blocked.go.set()
        # The worker makes its group anew, and goes on with what is added from now on.
        await door.add("n", "after")
        await eventually(lambda: "after" in blocked.ran)
    assert raw.stream() == []


async def test_a_worker_goes_on_when_its_queue_is_obliterated_again_and_again(door, make_worker):
    ran = set()

    async def handler(job):
        ran.add(job.data)

    async with running(make_worker(handler)):
        for n in range(3):
            await door.add("n", n)
            await eventually(lambda n=n: n in ran)
            await door.obliterate(force=True)


# --- defaults


async def test_defaults_are_taken_by_jobs_that_say_nothing(make_door, raw):
    door = make_door(default_job_options={"attempts": 4, "backoff": 50, "delay_ms": HOUR_MS})
    await door.add("a", 1)
    await door.add_bulk([{"name": "b", "data": 1}, {"name": "c", "data": 1, "attempts": 2}])
    await door.add("now", 1, delay_ms=0, backoff=7)
    await door.add("now", 1, delay=timedelta(0))
    spec = await door.add("again", 1, repeat=RepeatPattern.every(HOUR_MS))
    rules = sorted(
        (member[4:5].decode(), decode(member[5:]).retry.max_attempts) for member, _ in raw.delayed()
    )
    assert rules == [("a", 4), ("b", 4), ("c", 2)]
    first, _ = (decode(entry["d"]).retry for entry in raw.stream())
    assert (first.max_attempts, first.backoff) == (4, BackoffSpec.fixed(7))
    await door.run_repeatable_now(spec.id)
    fired = decode(raw.stream()[-1]["d"]).retry
    assert (fired.max_attempts, fired.backoff) == (4, BackoffSpec.fixed(50))


async def test_without_defaults_a_job_brings_no_rules(make_door, raw):
    await make_door(default_job_options={}).add("a", 1)
    assert decode(raw.stream()[0]["d"]).retry is None


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"attempts": 0}, ValueError, "attempts"),
        ({"backoff": "soon"}, TypeError, "backoff"),
        ({"delay_ms": 1, "delay": timedelta(1)}, ValueError, "not both"),
        ({"delay_ms": -1}, ValueError, "delay_ms"),
        ({"job_id": "x"}, ValueError, "unknown keys.*use attempts, backoff, delay, delay_ms"),
        ([1], TypeError, "must be a dict"),
        ({"priority": 1}, NotSupportedError, "first in, first out"),
        ({"lifo": True}, NotSupportedError, "first in, first out"),
        ({"parent": {}}, NotSupportedError, "from the handler"),
        ({"children": []}, NotSupportedError, "from the handler"),
    ],
)
@pytest.mark.parametrize("make", [Queue, SyncQueue])
def test_defaults_that_cannot_work_are_refused_when_the_queue_is_made(make, options, error, match):
    with pytest.raises(error, match=match):
        make("emails", default_job_options=options)


@pytest.mark.parametrize("key", ["parent", "children", "priority", "lifo"])
async def test_a_bulk_with_options_that_are_not_here_is_refused(unconnected, key):
    with pytest.raises(NotSupportedError, match=rf"jobs\[1\] has '{key}'"):
        await unconnected.add_bulk([{"name": "a", "data": 1}, {"name": "a", "data": 1, key: 1}])


@pytest.mark.parametrize("key", ["parent", "children", "priority", "lifo"])
async def test_an_add_with_options_that_are_not_here_is_refused(unconnected, key):
    for add in (unconnected.add, functools.partial(unconnected.add_unique, job_id="j")):
        with pytest.raises(NotSupportedError, match=rf"add\(\) has '{key}'"):
            await add("a", 1, **{key: 1})
        with pytest.raises(TypeError, match="unexpected keyword argument 'prio'"):
            await add("a", 1, prio=1)


# --- mistakes


@pytest.mark.parametrize(
    ("method", "arguments", "options", "error"),
    [
        ("remove", [" "], {}, ValueError),
        ("promote_job", [5], {}, ValueError),
        ("retry_job", [""], {}, ValueError),
        ("reschedule", ["a"], {}, ValueError),
        ("reschedule", ["a"], {"delay_ms": -1}, ValueError),
        ("reschedule", ["a"], {"delay": 5}, TypeError),
        ("reschedule", ["a"], {"delay_ms": 10**12}, ConfigError),
        ("update_job_data", ["a", object()], {}, TypeError),
        ("update_job_data", ["", 1], {}, ValueError),
        ("clean", [], {"state": "active"}, ValueError),
        ("clean", [], {"state": "paused"}, ValueError),
        ("clean", [-1], {}, ValueError),
        ("clean", [0, -1], {}, ValueError),
        ("clean", [0.5], {}, TypeError),
    ],
)
async def test_a_mistake_is_refused_before_anything_is_sent(
    unconnected, method, arguments, options, error
):
    with pytest.raises(error):
        await getattr(unconnected, method)(*arguments, **options)


# --- what is not here, and bytes


def test_flows_are_refused_with_a_remedy():
    for arguments in ((), ("emails",)):
        with pytest.raises(NotSupportedError, match="wait_for_result"):
            FlowProducer(*arguments, redis_url="redis://x")


def test_payloads_are_the_bytes_of_a_jobs_data():
    assert encode_payload({"k": 1}) == bytes.fromhex("81a16b01")
    for kind in (bytes, bytearray, memoryview):
        assert decode_payload(kind(bytes.fromhex("81a16b01"))) == {"k": 1}
    with pytest.raises(TypeError):
        encode_payload(object())
    with pytest.raises(RuntimeError, match="CMQ-003"):
        decode_payload(b"\xc1")
