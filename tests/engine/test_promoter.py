"""The promoter, step by step, on a real server; then in workers that take turns to lead."""

import asyncio
from dataclasses import replace

import pytest

from chasquimq import BackoffSpec, RetryConfig
from chasquimq.broker.connection import Connection
from chasquimq.broker.options import ConnectionOptions
from chasquimq.broker.url import parse_url
from chasquimq.config import PromoterConfig
from chasquimq.engine.promoter import PromoterRole
from chasquimq.metrics import JobOutcome, LockOutcome, PromoterTick, RetryScheduled
from chasquimq.wire.envelope import encode
from chasquimq.wire.member import encode_member
from tests.support.builders import an_envelope
from tests.support.eventually import eventually
from tests.support.scene import GROUP, Scene, running, soon
from tests.support.sink import RecordingSink


@pytest.fixture
async def make(scene):
    made = []

    def make(sink=None, **config):
        connection = Connection(
            parse_url(scene.server.socket_url), ConnectionOptions(), slot_key=scene.keys.tag
        )
        made.append(connection)
        settings = {"queue_name": scene.name, "metrics": sink or RecordingSink()} | config
        return PromoterRole(connection, PromoterConfig(**settings))

    yield make
    for connection in made:
        await connection.close()


def now_ms(scene):
    seconds, micros = scene.client.time()
    return seconds * 1_000 + micros // 1_000


def put(scene, job_id, run_at_ms, name=""):
    member = encode_member(name, encode(an_envelope(id=job_id)))
    scene.client.zadd(scene.keys.delayed, {member: run_at_ms})
    return member


async def test_a_step_moves_what_is_due_by_the_servers_clock_and_nothing_else(scene, make, sink):
    now = now_ms(scene)
    put(scene, "late", now - 5_000, "mail")
    put(scene, "due", now)
    put(scene, "early", now + 3_600_000)
    promoter = make(sink)
    pause_s = await promoter.step()
    assert await sink.next(PromoterTick) == PromoterTick(2, 1, 0)
    assert await sink.next(LockOutcome) is LockOutcome.ACQUIRED
    assert pause_s == 0.1  # the poll interval: the next is due much later
    assert [event.job_id for event in scene.events("waiting")] == ["late", "due"]
    assert [event.job_name for event in scene.events("waiting")] == ["mail", ""]
    assert (scene.depth(), scene.delayed()) == (2, 1)


async def test_due_jobs_are_promoted_in_the_order_of_their_time(scene, make):
    now = now_ms(scene)
    for n in (3, 1, 2, 5, 4):
        put(scene, f"j{n}", now - 100 + n)
    await make().step()
    assert [event.job_id for event in scene.events("waiting")] == ["j1", "j2", "j3", "j4", "j5"]


async def test_a_step_moves_at_most_a_batch_and_the_next_may_follow_at_once(scene, make, sink):
    now = now_ms(scene)
    for n in range(5):
        put(scene, f"j{n}", now - 100 + n)
    promoter = make(sink, promote_batch=2)
    assert await promoter.step() == 0
    assert await promoter.step() == 0
    assert await promoter.step() > 0
    ticks = sink.seen(PromoterTick)
    assert [tick.promoted for tick in ticks] == [2, 2, 1]
    assert [tick.depth for tick in ticks] == [3, 1, 0]
    assert ticks[0].oldest_pending_lag_ms >= 98


async def test_a_dlq_that_takes_nothing_holds_up_no_job_and_makes_nobody_busy(scene, make, caplog):
    def told():
        return [line for line in caplog.messages if "not jobs" in line]

    def make_due():
        scene.client.zadd(scene.keys.delayed, {b"\x01": now_ms(scene) - 1_000})

    promoter = make(poll_interval_ms=100_000)
    scene.client.set(scene.keys.dlq, "not a stream")
    for n in range(3):
        make_due()
        put(scene, f"behind-{n}", now_ms(scene) - 500)
        assert 5 < await promoter.step() <= 10
    waiting = [event.job_id for event in scene.events("waiting")]
    assert waiting == ["behind-0", "behind-1", "behind-2"]
    assert len(told()) == 1

    scene.client.delete(scene.keys.dlq)
    make_due()
    await promoter.step()
    assert (len(told()), scene.delayed(), scene.client.xlen(scene.keys.dlq)) == (2, 0, 1)


async def test_a_promoter_sleeps_until_the_next_job_is_due(scene, make):
    put(scene, "soon", now_ms(scene) + 50_000)
    promoter = make(poll_interval_ms=100_000)
    assert 45 < await promoter.step() <= 50


async def test_while_nothing_is_due_a_poll_is_one_question_and_no_step(scene, make, sink):
    put(scene, "next", now_ms(scene) + 3_600_000)
    promoter = make(sink)
    await promoter.step()
    before = scene.client.info("commandstats")
    for _ in range(5):
        assert await promoter.step() == 0.1
    after = scene.client.info("commandstats")
    counted = {
        name: after[name]["calls"] - before.get(name, {"calls": 0})["calls"]
        for name in ("cmdstat_zcount", "cmdstat_evalsha")
    }
    assert counted == {"cmdstat_zcount": 5, "cmdstat_evalsha": 0}
    assert len(sink.seen(PromoterTick)) == 1


@pytest.mark.parametrize("had_one", [True, False])
async def test_a_poll_finds_a_job_that_was_scheduled_before_all_others_without_a_word(
    scene, make, sink, had_one
):
    if had_one:
        put(scene, "next", now_ms(scene) + 3_600_000)
    promoter = make(sink)
    await promoter.step()
    put(scene, "unheard", now_ms(scene))
    await promoter.step()
    assert [event.job_id for event in scene.events("waiting")] == ["unheard"]


async def test_while_nothing_is_due_the_lock_is_renewed_all_the_same(scene, make, sink):
    promoter = make(sink, lock_ttl_secs=1)
    await promoter.step()
    lock = scene.keys.promoter_lock

    async def is_renewed():
        left_ms = scene.client.pttl(lock)
        await promoter.step()
        return scene.client.pttl(lock) > left_ms

    await eventually(is_renewed)
    assert len(sink.seen(PromoterTick)) == 2


async def test_promotion_pauses_while_the_stream_is_full(scene, make, sink):
    await scene.queue.add_bulk([{"name": "n", "data": n} for n in range(3)])
    put(scene, "late", now_ms(scene) - 1_000)
    promoter = make(sink, max_stream_len=3)
    assert await promoter.step() == 0.1
    assert (scene.depth(), scene.delayed()) == (3, 1)
    tick = await sink.next(PromoterTick)
    assert (tick.promoted, tick.depth) == (0, 1)
    assert tick.oldest_pending_lag_ms >= 1_000


def flood(scene, count):
    """So many due jobs, and a group that reads."""
    scene.client.xgroup_create(scene.keys.stream, GROUP, "0", mkstream=True)
    pipeline = scene.client.pipeline()
    for n in range(count):
        pipeline.zadd(
            scene.keys.delayed, {encode_member("old", encode(an_envelope(id=f"j{n}"))): 1 + n}
        )
    pipeline.execute()


def read(scene, count):
    """The names of as many jobs as the group is given next."""
    [(_, entries)] = scene.client.xreadgroup(GROUP, "c", {scene.keys.stream: ">"}, count=count)
    return [fields[b"n"].decode() for _, fields in entries]


async def test_a_flood_lets_new_jobs_through_and_the_reading_of_it_lets_more_in(scene, make):
    flood(scene, 100)
    promoter = make(promote_batch=5)
    for _ in range(10):
        await promoter.step()
    assert scene.depth() == 20  # four batches wait, however many are due
    await scene.queue.add("new", 1)
    await promoter.step()
    assert read(scene, 21) == ["old"] * 20 + ["new"]
    for _ in range(10):
        await promoter.step()
    assert read(scene, 100) == ["old"] * 20


async def test_in_a_long_line_due_jobs_may_be_half(scene, make):
    flood(scene, 1_000)
    await scene.queue.add_bulk([{"name": "new", "data": n} for n in range(100)])
    promoter = make(promote_batch=10)
    for _ in range(30):
        await promoter.step()
    assert (scene.depth(), scene.delayed()) == (200, 900)


async def test_a_promoter_that_holds_a_flood_back_keeps_its_lock_and_looks_less_and_less(
    scene, make, sink
):
    flood(scene, 100)
    promoter, other = make(sink, promote_batch=5), make()
    pauses_s = [await promoter.step() for _ in range(12)]
    assert pauses_s == [0, 0, 0, 0, 0.005, 0.01, 0.02, 0.04, 0.08, 0.1, 0.1, 0.1]
    assert 0 < scene.client.ttl(scene.keys.promoter_lock) <= 5
    await other.step()
    assert "standing by" in repr(other)
    assert sink.seen(PromoterTick)[-1].depth == 80
    read(scene, 5)
    assert [await promoter.step() for _ in range(2)] == [0, 0.005]


async def test_a_flood_before_anybody_reads_is_let_in_whole(scene, make):
    flood(scene, 100)
    scene.client.xgroup_destroy(scene.keys.stream, GROUP)
    promoter = make(promote_batch=5)
    for _ in range(20):
        await promoter.step()
    assert (scene.depth(), scene.delayed()) == (100, 0)


async def test_a_member_that_is_no_job_goes_to_the_dlq_and_holds_nobody_up(scene, make):
    now = now_ms(scene)
    scene.client.zadd(scene.keys.delayed, {b"\x01": now - 9, b"\xff" * 9: now - 8})
    put(scene, "good", now - 7)
    await make().step()
    assert [event.job_id for event in scene.events("waiting")] == ["good"]
    letters = await scene.dead()
    assert [letter["payload"] for letter in letters] == [b"\x01", b"\xff" * 9]
    assert {letter["reason"] for letter in letters} == {"malformed"}
    assert scene.delayed() == 0


async def test_only_the_leader_promotes_and_changes_are_told_once(scene, make):
    first_sink, second_sink = RecordingSink(), RecordingSink()
    first, second = make(first_sink), make(second_sink)
    await first.step()
    put(scene, "late", now_ms(scene) - 1_000)
    assert await second.step() == 0.1
    assert await second.step() == 0.1
    assert (scene.depth(), repr(second)) == (0, f"<Promoter {scene.name} standing by>")
    await first.step()
    await first.step()
    assert (scene.depth(), repr(first)) == (1, f"<Promoter {scene.name} leading>")
    assert first_sink.seen(LockOutcome) == [LockOutcome.ACQUIRED]
    assert second_sink.seen(LockOutcome) == [LockOutcome.HELD]
    assert second_sink.seen(PromoterTick) == []
    assert 0 < scene.client.ttl(scene.keys.promoter_lock) <= 5


async def test_a_leader_that_gives_up_lets_another_lead_at_once(scene, make):
    sinks = RecordingSink(), RecordingSink()
    first, second = make(sinks[0]), make(sinks[1])
    await first.step()
    await second.step()
    await second.release()  # not its own: nothing happens
    await first.step()
    await first.release()
    put(scene, "late", now_ms(scene) - 1_000)
    await second.step()
    assert sinks[1].seen(LockOutcome) == [LockOutcome.HELD, LockOutcome.ACQUIRED]
    assert scene.depth() == 1


async def test_a_leader_that_lost_its_lock_stands_by(scene, make):
    promoter_sink = RecordingSink()
    promoter = make(promoter_sink)
    await promoter.step()
    scene.client.set(scene.keys.promoter_lock, "p-other", ex=60)
    put(scene, "late", now_ms(scene) - 1_000)
    await promoter.step()
    assert promoter_sink.seen(LockOutcome) == [LockOutcome.ACQUIRED, LockOutcome.HELD]
    assert scene.depth() == 0
    assert scene.client.get(scene.keys.promoter_lock) == b"p-other"


async def test_a_stop_during_a_step_leaves_no_index_behind(scene, make):
    job = await scene.queue.add("mail", {}, delay_ms=1)
    promoter, stop = make(), asyncio.Event()
    step = promoter.step

    async def last_step():
        pause_s = await step()
        if scene.delayed() == 0:
            stop.set()
        return pause_s

    promoter.step = last_step
    async with asyncio.timeout(10):
        await promoter.run(stop)
    assert not scene.client.exists(scene.keys.delayed_index(job.id))


async def test_the_index_of_a_promoted_job_is_removed(scene, make):
    job = await scene.queue.add("n", 1, delay_ms=1)
    assert scene.client.exists(scene.keys.delayed_index(job.id))
    promoter = make()
    while not scene.depth():
        await promoter.step()
    await promoter.step()
    assert not scene.client.exists(scene.keys.delayed_index(job.id))


async def test_without_events_a_promotion_is_not_told(scene, make):
    put(scene, "late", now_ms(scene) - 1_000)
    await make(events_enabled=False).step()
    assert scene.depth() == 1
    assert scene.events() == []


# --- in workers


async def nothing(job):
    return None


async def test_a_delayed_job_runs_after_its_time_by_the_servers_clock_and_never_before(scene):
    late = []

    async def handler(job):
        late.append(now_ms(scene) - job.data)

    async with scene.working(handler) as sink:
        for delay_ms in (40, 5, 20, 1):
            due_ms = now_ms(scene) + delay_ms
            await scene.queue.add("n", due_ms, delay_ms=delay_ms)
        await sink.take(JobOutcome, 4)
    assert min(late) >= 0


async def test_a_job_that_is_due_sooner_than_all_others_wakes_the_promoter(scene, sink):
    worker = scene.worker(nothing, sink=sink, run_scheduler=False)
    config = replace(worker._config, delayed_poll_interval_ms=600_000)  # noqa: SLF001
    worker._config = config  # noqa: SLF001 -- an engine setting that `Worker` does not offer
    async with running(worker):
        assert await sink.next(LockOutcome) is LockOutcome.ACQUIRED
        await sink.next(PromoterTick)
        await scene.queue.add("n", 1, delay_ms=1)
        await sink.next(JobOutcome)


async def test_when_the_leader_stops_another_worker_leads_and_no_delayed_job_is_lost(scene):
    options = {"run_scheduler": False}  # it reports its own lock to the same method
    async with scene.working(nothing, **options) as second:
        leader = scene.worker(nothing, sink=(first := RecordingSink()), **options)
        assert await second.next(LockOutcome) is LockOutcome.ACQUIRED
        async with running(leader):
            assert await first.next(LockOutcome) is LockOutcome.HELD
            await scene.queue.add("n", 1, delay_ms=10)
            await eventually(lambda: first.seen(JobOutcome) or second.seen(JobOutcome))
        job = await scene.queue.add("n", 2, delay_ms=3_600_000)
    # It comes due while nobody leads.
    [member] = scene.client.zrange(scene.keys.delayed, 0, -1)
    scene.client.zadd(scene.keys.delayed, {member: 1})
    async with scene.working(nothing, **options) as third:
        assert await third.next(LockOutcome) is LockOutcome.ACQUIRED
        assert (await third.next(JobOutcome)).job_id == job.id


async def test_leadership_passes_on_while_both_run(scene):
    first_sink, second_sink = RecordingSink(), RecordingSink()
    async with running(scene.worker(nothing, sink=second_sink, run_scheduler=False)):
        assert await second_sink.next(LockOutcome) is LockOutcome.ACQUIRED
        async with running(
            scene.worker(nothing, sink=first_sink, consumer_id="c-next", run_scheduler=False)
        ):
            assert await first_sink.next(LockOutcome) is LockOutcome.HELD
            scene.client.set(scene.keys.promoter_lock, "c-next", ex=5)
            assert await first_sink.next(LockOutcome) is LockOutcome.ACQUIRED
            assert await second_sink.next(LockOutcome) is LockOutcome.HELD
            await scene.queue.add("n", 1, delay_ms=5)
            await eventually(lambda: first_sink.seen(JobOutcome) or second_sink.seen(JobOutcome))


async def test_a_worker_without_a_promoter_leaves_delayed_jobs_alone(scene):
    await scene.queue.add("later", 1, delay_ms=1)
    await scene.queue.add("now", 1)
    async with scene.working(nothing, delayed_enabled=False) as sink:
        outcome = await sink.next(JobOutcome)
    assert outcome.name == "now"
    assert scene.delayed() == 1
    assert not scene.client.exists(scene.keys.promoter_lock)


# --- cancelled in time


async def test_a_delayed_job_that_was_cancelled_never_runs(scene):
    async with scene.working(nothing) as sink:
        chosen = await scene.queue.add("n", 1, delay_ms=60_000, job_id="chosen")
        own = await scene.queue.add("n", 2, delay_ms=60_000)
        assert await scene.queue.cancel_delayed(chosen.id)
        assert await scene.queue.cancel_delayed(own.id)
        assert not await scene.queue.cancel_delayed(own.id)
        assert scene.delayed() == 0
        await scene.queue.add("after", 3)
        assert (await sink.next(JobOutcome)).name == "after"


async def test_a_retry_that_waits_for_its_time_can_be_cancelled_by_the_jobs_id(scene):
    async def fail(job):
        message = "no"
        raise ValueError(message)

    own = await scene.queue.add("n", 1, backoff=BackoffSpec.fixed(60_000, jitter_ms=0))
    large = await scene.queue.add("n", "x" * 9_000, backoff=BackoffSpec.fixed(60_000, jitter_ms=0))
    async with scene.working(fail, retry=RetryConfig()) as sink:  # whose cap is half a minute
        await sink.take(RetryScheduled, 2)
        assert await scene.queue.cancel_delayed(own.id)
        assert await scene.queue.cancel_delayed(large.id)
        assert not await scene.queue.cancel_delayed(own.id)
    assert scene.is_empty()


# --- on its own


async def test_a_stop_ends_a_promoters_sleep_however_long(scene, make):
    promoter_sink = RecordingSink()
    promoter = make(promoter_sink, poll_interval_ms=600_000)
    stop = asyncio.Event()
    running = asyncio.create_task(promoter.run(stop))
    await promoter_sink.next(PromoterTick)
    stop.set()
    before_its_bell_falls_silent_s = 3
    await asyncio.wait_for(running, before_its_bell_falls_silent_s)


async def test_a_promoter_that_is_cancelled_while_it_ends_leaves_no_bell_open(make):
    promoter = make(poll_interval_ms=600_000)
    running = asyncio.create_task(promoter.run(asyncio.Event()))
    await eventually(lambda: promoter.bell.connection.is_open)
    while not running.done():
        running.cancel()
        await asyncio.sleep(0)
    assert running.cancelled()
    assert not promoter.bell.connection.is_open


async def test_a_promoter_outlives_a_server_that_goes_away_between_two_steps(
    server, start_server, queue_name
):
    own = start_server()
    scene = Scene(own, queue_name)
    options = ConnectionOptions(patience_ms=500)
    connection = Connection(parse_url(own.socket_url), options, slot_key=scene.keys.tag)
    promoter = PromoterRole(connection, PromoterConfig(queue_name=queue_name, poll_interval_ms=1))
    put(scene, "late", now_ms(scene) - 1_000)
    await promoter.step()  # the index of what it moved is yet to be forgotten
    own.kill()
    stop = asyncio.Event()
    await promoter.wait(stop, 0.001)
    stop.set()
    await soon(promoter.run(stop))
    await connection.close()
    await scene.queue.close()


async def test_a_server_without_memory_drains_its_delayed_jobs_by_itself(scene):
    ran = []
    async with scene.working(lambda job: ran.append(job.id)):
        await eventually(scene.is_reading)
        due_ms = now_ms(scene) + 500
        for n in range(50):
            put(scene, f"j{n}", due_ms)
        scene.client.config_set("maxmemory", 1)
        try:
            await eventually(lambda: len(ran) == 50)
            await eventually(scene.is_empty)
        finally:
            scene.client.config_set("maxmemory", 0)
    assert sorted(ran) == sorted(f"j{n}" for n in range(50))
