"""The scheduler, step by step, on a real server with a clock that moves when it is told to."""

import asyncio
import time
from itertools import pairwise

import pytest

from chasquimq.broker import repeats
from chasquimq.broker.call import call
from chasquimq.broker.connection import Connection
from chasquimq.broker.options import ConnectionOptions
from chasquimq.broker.ring import Ring
from chasquimq.broker.steps import drive
from chasquimq.broker.stream import Capacity, Telling
from chasquimq.broker.url import parse_url
from chasquimq.clock import ManualClock
from chasquimq.config import ProducerConfig, SchedulerConfig
from chasquimq.engine import cadence
from chasquimq.engine.repeating import Repeating
from chasquimq.engine.scheduler import SchedulerRole
from chasquimq.errors import ChasquiError, ServerReplyError
from chasquimq.wire.envelope import decode
from chasquimq.wire.keys import QueueKeys
from chasquimq.wire.repeat import (
    MissedFiresPolicy,
    RepeatableSpec,
    RepeatPattern,
    fire_id,
    window_of,
)
from chasquimq.wire.retry import RetryOverride
from tests.support.eventually import eventually
from tests.support.scene import soon

NOON = 1_794_744_000_000  # 2026-11-15T12:00:00Z
MINUTE = 60_000


@pytest.fixture
def keys(queue_name):
    return QueueKeys(queue_name)


@pytest.fixture
def clock():
    return ManualClock(NOON)


@pytest.fixture
async def connect(server, keys):
    opened = []

    def open_one():
        target = parse_url(server.url)
        opened.append(Connection(target, ConnectionOptions(), slot_key=keys.tag))
        return opened[-1]

    yield open_one
    for connection in opened:
        await connection.close()


@pytest.fixture
async def make(connect, queue_name, clock):
    """`make(setting=...)`: a scheduler that stops listening in the end."""
    made = []

    def scheduler(**settings):
        config = SchedulerConfig(queue_name=queue_name, **settings)
        made.append(SchedulerRole(connect(), config, clock=clock))
        return made[-1]

    yield scheduler
    for each in made:
        await each.bell.end()


@pytest.fixture
def scheduler(make):
    return make()


@pytest.fixture
def upsert(connect, keys):
    async def store(spec, due_ms=NOON, job_id=None):
        await connect().run(repeats.upsert(keys, spec, next_ms=due_ms, job_id=job_id))

    return store


@pytest.fixture
def fired(server, keys):
    """The jobs that were fired so far: their envelopes."""

    def look():
        entries = server.client().xrange(keys.stream)
        return [decode(fields[b"d"]) for _, fields in entries]

    return look


def a_spec(key="digest", every_ms=MINUTE, **fields) -> RepeatableSpec:
    return RepeatableSpec(key, "mail", RepeatPattern.every(every_ms), b"\x81\xa1k\x01", **fields)


async def test_a_due_spec_fires_a_job_that_says_which_window_it_stands_for(
    scheduler, upsert, fired, clock
):
    await upsert(a_spec(retry=RetryOverride(4, None)))
    clock.advance(250)
    await scheduler.step()
    (job,) = fired()
    assert job.id == fire_id("digest", NOON)
    assert window_of(job.id) == job.created_at_ms == NOON
    assert (job.payload, job.attempt, job.retry) == (b"\x81\xa1k\x01", 0, RetryOverride(4, None))


async def test_a_fire_takes_the_job_id_of_its_spec(scheduler, upsert, fired):
    await upsert(a_spec(), job_id="nightly")
    await scheduler.step()
    assert [job.id for job in fired()] == [fire_id("nightly", NOON)]


async def test_it_sleeps_until_the_next_window_and_no_longer_than_the_tick(
    scheduler, upsert, clock
):
    assert await scheduler.step() == 1.0
    await upsert(a_spec(every_ms=100))
    assert await scheduler.step() == 0.1
    clock.advance(60)
    assert await scheduler.step() == pytest.approx(0.04)


@pytest.fixture
async def asleep(make, upsert, server, keys):
    """A scheduler that waits for a window in an hour, and has heard of it."""
    scheduler = make(tick_interval_ms=600_000)
    await upsert(a_spec("rare", every_ms=3_600_000), NOON + 3_600_000)
    server.client().delete(keys.repeat_wake)
    await scheduler.step()
    await scheduler.wait(asyncio.Event(), 0)
    return scheduler


async def test_a_spec_that_is_stored_while_it_sleeps_wakes_it_for_its_first_window(
    asleep, clock, upsert, fired
):
    """A tick is longer than a short interval: the first windows would pass while it slept."""
    waiting = asyncio.create_task(asleep.wait(asyncio.Event(), 600))
    await asyncio.sleep(0)
    assert not waiting.done()
    await upsert(a_spec(every_ms=100), NOON + 100)
    await soon(waiting)
    clock.advance(100)
    await asleep.step()
    assert [job.id for job in fired()] == [fire_id("digest", NOON + 100)]


async def test_a_spec_that_is_stored_between_its_look_and_its_sleep_is_not_slept_over(
    asleep, upsert, server, keys
):
    """The bell is heard by a task that listens on while the scheduler is at its work."""
    await asleep.step()
    await upsert(a_spec(every_ms=100), NOON + 100)
    await eventually(lambda: not server.client().exists(keys.repeat_wake))
    await eventually(lambda: "silent" in repr(asleep.bell))
    await soon(asleep.wait(asyncio.Event(), 600))
    # It counts once.
    waiting = asyncio.create_task(asleep.wait(stop := asyncio.Event(), 600))
    await asyncio.sleep(0)
    assert not waiting.done()
    stop.set()
    await soon(waiting)


async def test_a_bell_that_cannot_be_heard_makes_no_busy_loop(scheduler, server, keys):
    await scheduler.step()
    server.client().set(keys.repeat_wake, "in the way", ex=60)
    asked = calls_of_blpop(server)
    for _ in range(5):
        await scheduler.wait(asyncio.Event(), 0.01)
    assert calls_of_blpop(server) - asked <= 1
    assert await scheduler.step() > 0


def calls_of_blpop(server):
    stats = server.client().info("commandstats").get("cmdstat_blpop", {"calls": 0})
    return stats["calls"] + stats.get("rejected_calls", 0)


async def test_a_hundred_milliseconds_fire_on_time_without_losing_a_window(
    scheduler, upsert, fired, clock
):
    await upsert(a_spec(every_ms=100))
    for _ in range(50):
        await scheduler.step()
        clock.advance(100)
    assert [job.created_at_ms for job in fired()] == [NOON + 100 * n for n in range(50)]


@pytest.mark.parametrize(
    ("policy", "windows"),
    [
        (MissedFiresPolicy.skip(), []),
        (MissedFiresPolicy.fire_once(), [0]),
        (MissedFiresPolicy.fire_all(5), [0, 1, 2, 3, 4]),
        (MissedFiresPolicy.fire_all(1_000), [*range(61)]),
    ],
    ids=["skip", "fire-once", "fire-all-5", "fire-all"],
)
async def test_after_an_hour_away_the_policy_decides(
    scheduler, upsert, fired, clock, policy, windows
):
    await upsert(a_spec(missed_fires=policy))
    clock.advance(60 * MINUTE)
    await scheduler.step()
    assert [job.created_at_ms for job in fired()] == [NOON + n * MINUTE for n in windows]
    clock.advance(MINUTE)
    await scheduler.step()
    assert [job.created_at_ms for job in fired()][len(windows) :] == [NOON + 61 * MINUTE]


@pytest.mark.parametrize(("missed", "most", "fires"), [(3_000, 2_500, 2_500), (2_200, 9_000, 2_201),
                                                       (1_000, 1_000, 1_000)])  # fmt: skip
async def test_thousands_of_missed_windows_are_made_up_for_step_by_step(
    scheduler, upsert, fired, clock, missed, most, fires
):
    await upsert(a_spec(every_ms=100, missed_fires=MissedFiresPolicy.fire_all(most)))
    clock.advance(100 * missed)
    counts = []
    for _ in range(5):
        await scheduler.step()
        counts.append(len(fired()))
    assert [job.created_at_ms for job in fired()] == [NOON + 100 * n for n in range(fires)]
    assert all(after - before <= 1_000 for before, after in pairwise([0, *counts]))
    clock.advance(100)
    await scheduler.step()
    assert [job.created_at_ms for job in fired()][fires:] == [NOON + 100 * (missed + 1)]


async def test_a_step_that_breaks_off_gives_no_windows_back(
    scheduler, upsert, fired, clock, monkeypatch
):
    await upsert(a_spec(every_ms=100, missed_fires=MissedFiresPolicy.fire_all(1_500)))
    clock.advance(100 * 3_000)
    await scheduler.step()

    def cut_off(*_, **__):
        msg = "cut off"
        raise ChasquiError(msg)

    with monkeypatch.context() as patch:
        patch.setattr(repeats, "fire", cut_off)
        with pytest.raises(ChasquiError, match="cut off"):
            await scheduler.step()
    for _ in range(3):
        await scheduler.step()
    assert [job.created_at_ms for job in fired()] == [NOON + 100 * n for n in range(1_500)]


async def test_a_limit_and_an_end_are_kept(scheduler, upsert, fired, clock, server, keys):
    await upsert(a_spec("three", limit=3))
    await upsert(a_spec("ending", end_before_ms=NOON + MINUTE))
    for _ in range(5):
        await scheduler.step()
        clock.advance(MINUTE)
    counts = [job.id.split("@")[0] for job in fired()]
    assert (counts.count("three"), counts.count("ending")) == (3, 2)
    assert server.client().zcard(keys.repeat) == 0


async def test_the_list_tells_how_many_windows_have_fired(scheduler, upsert, clock, connect, keys):
    await upsert(a_spec(limit=5))
    for _ in range(2):
        await scheduler.step()
        clock.advance(MINUTE)
    listed = Repeating(keys, ProducerConfig(queue_name=keys.name), clock, Ring("p")).listed(10)
    [meta] = await drive(connect(), listed)
    assert (meta.fired, meta.limit, meta.paused) == (2, 5, False)


async def test_jobs_run_by_hand_in_the_millisecond_of_a_window_have_ids_of_their_own(
    scheduler, upsert, fired, clock, connect, keys
):
    await upsert(a_spec(), job_id="nightly")
    await scheduler.step()
    by_hand = Repeating(keys, ProducerConfig(queue_name=keys.name), clock, Ring("p"))
    told, room = Telling(NOON, 0), Capacity(100)
    ids = [await drive(connect(), by_hand.run_now("digest", told, room)) for _ in range(2)]
    assert [job.id for job in fired()] == [fire_id("nightly", NOON), *ids]
    assert len({job.id for job in fired()}) == 3
    assert [job.created_at_ms for job in fired()] == [NOON] * 3
    assert [window_of(job_id) for job_id in ids] == [None, None]


@pytest.mark.parametrize(
    "holders", [("a", "b"), ("a", "a")], ids=["who lose the lock again and again", "who both lead"]
)
async def test_two_schedulers_never_fire_a_window_twice(
    connect, queue_name, clock, upsert, fired, server, keys, holders
):
    configs = [SchedulerConfig(queue_name=queue_name, holder_id=holder) for holder in holders]
    rivals = [SchedulerRole(connect(), config, clock=clock) for config in configs]
    for n in range(10):
        await upsert(a_spec(f"spec-{n}"))
    for turn in range(6):
        for leader, other in (rivals, rivals[::-1])[turn % 2], rivals:
            server.client().delete(keys.scheduler_lock)
            await asyncio.gather(leader.step(), other.step(), _taken_away(server, keys))
        server.client().delete(keys.scheduler_lock)
        await rivals[turn % 2].step()
        clock.advance(MINUTE)
    ids = [job.id for job in fired()]
    assert len(ids) == len(set(ids)) == 60
    counts = [rival.fired for rival in rivals]
    assert min(counts) > 0
    assert sum(counts) == 60


async def _taken_away(server, keys):
    """Whoever leads loses the lock in the middle of a step, somewhere."""
    for _ in range(20):
        await asyncio.sleep(0)
    server.client().delete(keys.scheduler_lock)


async def test_a_leader_that_slept_past_its_lock_fires_nothing_again(
    scheduler, connect, queue_name, clock, upsert, fired, server, keys
):
    await upsert(a_spec())
    await scheduler.step()
    server.client().delete(keys.scheduler_lock)
    rival = SchedulerRole(connect(), SchedulerConfig(queue_name=queue_name), clock=clock)
    await rival.step()
    # The sleeper wakes and goes on with what it saw before it slept.
    stale = repeats.StoredSpec("digest", NOON, a_spec())
    await scheduler._fire(stale)  # noqa: SLF001 -- the middle of a step is where it slept
    assert [job.id for job in fired()] == [fire_id("digest", NOON)]


async def test_a_spec_that_cannot_be_read_is_put_off_and_stops_nobody(
    scheduler, upsert, fired, server, keys, caplog
):
    await upsert(a_spec("bad"))
    await upsert(a_spec("good"))
    server.client().hset(keys.repeat_spec("bad"), "spec", b"\xc1garbage")
    server.client().zadd(keys.repeat, {"ghost": NOON})
    await scheduler.step()
    assert [job.id for job in fired()] == [fire_id("good", NOON)]
    assert server.client().zscore(keys.repeat, "bad") == NOON + MINUTE
    assert {"'bad'", "'ghost'"} <= {word for line in caplog.messages for word in line.split()}


EVIL = {
    "a zone of 13 KB": RepeatPattern.cron("* * * * *", tz="Europe/Berlin" * 1_000),
    "a zone of folders": RepeatPattern.cron("* * * * *", tz="../" * 10_000 + "etc/passwd"),
    "a zone that is none": RepeatPattern.cron("* * * * *", tz="Mars/Olympus"),
    "a list of 1 MB": RepeatPattern.cron("0-59," * 200_000 + "1 * * * *"),
    "years of 1 MB": RepeatPattern.cron("* * * * * * " + "1-5000," * 140_000 + "1"),
    "a nickname of 1 MB": RepeatPattern.cron("@" + "x" * 1_000_000),
    "a number of 5,000 digits": RepeatPattern.cron("9" * 5_000 + " * * * *"),
    "no time there is": RepeatPattern.cron("0 0 31 2 *"),
}


@pytest.mark.parametrize("what", EVIL)
async def test_a_spec_that_cannot_be_planned_is_put_off_and_stops_nobody(
    scheduler, connect, upsert, fired, server, keys, caplog, what
):
    bad = RepeatableSpec("bad", "mail", EVIL[what], b"\x01")
    await connect().run(repeats.upsert(keys, bad, next_ms=NOON, job_id=None))
    await upsert(a_spec("good"))
    begun = time.monotonic()
    await scheduler.step()
    assert time.monotonic() - begun < 5
    assert [job.id for job in fired()] == [fire_id("good", NOON)]
    assert server.client().zscore(keys.repeat, "bad") == NOON + MINUTE
    [told] = [line for line in caplog.messages if "cannot be fired" in line]
    assert "recurring job 'bad' cannot be fired and is put off: " in told
    assert len(told) < 500


@pytest.mark.parametrize("error", [RecursionError, OverflowError, MemoryError, KeyError])
async def test_whatever_planning_a_spec_raises_the_others_fire(
    scheduler, upsert, fired, clock, server, keys, caplog, monkeypatch, error
):
    def plan(spec, *args, **kwargs):
        if spec.key == "bad":
            raise error("x" * 10_000)
        return planned(spec, *args, **kwargs)

    planned = cadence.plan
    monkeypatch.setattr(cadence, "plan", plan)
    await upsert(a_spec("bad"))
    await upsert(a_spec("good"))
    for _ in range(3):
        await scheduler.step()
        clock.advance(MINUTE)
    assert [job.id for job in fired()] == [fire_id("good", NOON + n * MINUTE) for n in range(3)]
    assert server.client().zscore(keys.repeat, "bad") == NOON + 3 * MINUTE
    [told] = [line for line in caplog.messages if "cannot be fired" in line]
    assert f"'bad' cannot be fired and is put off: {error.__name__}: " in told
    assert len(told) < 500


async def test_a_paused_spec_lets_its_windows_pass(scheduler, upsert, fired, clock, connect, keys):
    await upsert(a_spec())
    await connect().run(repeats.set_paused(keys, "digest", paused=True))
    await scheduler.step()
    clock.advance(MINUTE)
    await scheduler.step()
    assert fired() == []
    await connect().run(repeats.set_paused(keys, "digest", paused=False))
    clock.advance(MINUTE)
    await scheduler.step()
    assert [job.created_at_ms for job in fired()] == [NOON + 2 * MINUTE]


async def test_a_full_stream_makes_windows_late_not_lost(
    connect, queue_name, clock, upsert, fired, server, keys
):
    config = SchedulerConfig(queue_name=queue_name, max_stream_len=1)
    scheduler = SchedulerRole(connect(), config, clock=clock)
    await upsert(a_spec())
    entry = server.client().xadd(keys.stream, {"d": b"x"})
    await scheduler.step()
    assert server.client().xlen(keys.stream) == 1
    server.client().xdel(keys.stream, entry)
    await scheduler.step()
    assert [job.created_at_ms for job in fired()] == [NOON]


async def test_the_lock_is_given_up_at_the_end(scheduler, server, keys):
    await scheduler.step()
    assert server.client().exists(keys.scheduler_lock)
    await scheduler.release()
    assert not server.client().exists(keys.scheduler_lock)


@pytest.mark.parametrize("fault", ["no number", "no hash", "no text"])
async def test_whatever_stands_among_the_specs_the_good_ones_fire(
    scheduler, upsert, fired, clock, server, keys, fault
):
    await upsert(a_spec("good"))
    client = server.client()
    if fault == "no number":
        client.zadd(keys.repeat, {"bad": float("-inf")})
    elif fault == "no hash":
        client.zadd(keys.repeat, {"bad": NOON})
        client.set(keys.repeat_spec("bad"), "text", ex=60)
    else:
        client.zadd(keys.repeat, {b"\xff\xfe": NOON})
    for _ in range(3):
        assert await scheduler.step() > 0
        clock.advance(MINUTE)
    assert [job.id for job in fired()] == [fire_id("good", NOON + n * MINUTE) for n in range(3)]


async def test_a_count_that_is_no_number_fires_nothing_and_stops_nobody(
    scheduler, upsert, fired, clock, server, keys, caplog
):
    await upsert(a_spec("bad"))
    await upsert(a_spec("good"), due_ms=NOON + 1)
    server.client().hset(keys.repeat_spec("bad"), "fired", "abc")
    clock.advance(1)
    for _ in range(3):
        assert await scheduler.step() > 0.005
        clock.advance(MINUTE)
    assert [job.id for job in fired()] == [fire_id("good", NOON + 1 + n * MINUTE) for n in range(3)]
    told = [line for line in caplog.messages if "cannot be fired" in line]
    assert told == [
        "recurring job 'bad' cannot be fired and is put off: its count of fires is 'abc'"
    ]


async def test_a_window_between_two_milliseconds_fires_once_and_is_waited_for(
    scheduler, upsert, fired, clock, server, keys, caplog
):
    await upsert(a_spec())
    server.client().zadd(keys.repeat, {"digest": NOON + 10.5})
    assert await scheduler.step() == pytest.approx(0.011)
    clock.advance(11)
    assert await scheduler.step() == 1.0
    assert [job.id for job in fired()] == [fire_id("digest", NOON + 10)]
    assert server.client().zscore(keys.repeat, "digest") == NOON + 10 + MINUTE
    assert "another scheduler" not in caplog.text


@pytest.mark.parametrize("score", ["-inf", "-5.5", "-1e300"])
async def test_a_window_that_is_no_time_is_put_off_and_fires_then(
    scheduler, upsert, fired, clock, server, keys, caplog, score
):
    await upsert(a_spec())
    server.client().zadd(keys.repeat, {"digest": float(score)})
    assert await scheduler.step() == 1.0
    assert server.client().zscore(keys.repeat, "digest") == NOON + MINUTE
    assert "'digest' cannot be fired and is put off: its next window is" in caplog.text
    clock.advance(MINUTE)
    await scheduler.step()
    assert [job.id for job in fired()] == [fire_id("digest", NOON + MINUTE)]


async def test_a_window_without_end_makes_nobody_busy(scheduler, upsert, fired, server, keys):
    await upsert(a_spec())
    server.client().zadd(keys.repeat, {"digest": float("inf")})
    assert await scheduler.step() == 1.0
    assert fired() == []


async def test_a_spec_that_the_server_does_not_tell_keeps_its_windows(
    scheduler, upsert, fired, clock, server, keys, caplog
):
    """Put off like one that cannot be read it would lose them, and fire off its grid ever after."""
    reported, client = [], server.client()
    scheduler.on_error = reported.append
    await upsert(a_spec("hidden", missed_fires=MissedFiresPolicy.fire_all(100)))
    await upsert(a_spec("good"), due_ms=NOON + 1)
    client.rename(keys.repeat_spec("hidden"), keys.result("kept"))
    client.set(keys.repeat_spec("hidden"), "something else")
    clock.advance(1)
    for _ in range(3):
        assert await scheduler.step() == 1.0
        clock.advance(MINUTE)
    assert [job.id for job in fired()] == [fire_id("good", NOON + 1 + n * MINUTE) for n in range(3)]
    assert client.zscore(keys.repeat, "hidden") == NOON
    assert {error.kind for error in reported} == {"WRONGTYPE"}
    assert len([line for line in caplog.messages if "'hidden'" in line]) == 1

    client.rename(keys.result("kept"), keys.repeat_spec("hidden"))
    for _ in range(4):
        await scheduler.step()
    made_up = {job.id for job in fired() if job.id.startswith("hidden")}
    assert made_up == {fire_id("hidden", NOON + n * MINUTE) for n in range(4)}


@pytest.fixture
def refusing(monkeypatch):
    """Let the server refuse to fire some specs, by their keys."""
    refused, fire = set(), repeats.fire

    def maybe(keys, stored, jobs, **more):
        if stored.key in refused:
            return call("LPUSH", keys.repeat, "x", read=bool)
        return fire(keys, stored, jobs, **more)

    monkeypatch.setattr(repeats, "fire", maybe)
    return refused


async def test_a_spec_that_the_server_refuses_to_fire_stops_nobody_and_stays_where_it_is(
    scheduler, upsert, fired, clock, server, keys, refusing, caplog
):
    reported = []
    scheduler.on_error = reported.append
    await upsert(a_spec("bad"))
    await upsert(a_spec("good", every_ms=100), due_ms=NOON + 1)
    refusing.add("bad")
    clock.advance(1)
    for _ in range(30):
        assert await scheduler.step() == pytest.approx(0.1)
        clock.advance(100)
    assert [job.id for job in fired()] == [fire_id("good", NOON + 1 + n * 100) for n in range(30)]
    assert server.client().zscore(keys.repeat, "bad") == NOON
    assert [error.kind for error in reported] == ["WRONGTYPE"] * 3  # once a tick, not once a step
    assert len([line for line in caplog.messages if "'bad'" in line]) == 1

    refusing.clear()
    clock.advance(1_000)
    await scheduler.step()
    assert fire_id("bad", NOON) in {job.id for job in fired()}


async def test_while_a_spec_is_refused_the_scheduler_waits_no_longer_than_until_it_asks_again(
    scheduler, upsert, clock, refusing
):
    await upsert(a_spec("bad"))
    refusing.add("bad")
    assert await scheduler.step() == 1.0
    clock.advance(300)
    assert await scheduler.step() == pytest.approx(0.7)


async def test_specs_that_are_refused_leave_the_batch_to_those_behind(
    connect, queue_name, clock, upsert, fired, refusing
):
    config = SchedulerConfig(queue_name=queue_name, batch=2)
    scheduler = SchedulerRole(connect(), config, clock=clock)
    for n in range(5):
        await upsert(a_spec(f"bad-{n}"))
        refusing.add(f"bad-{n}")
    await upsert(a_spec("good"), due_ms=NOON + 1)
    clock.advance(1)
    assert [await scheduler.step() for _ in range(3)] == [0, 0, 0]
    assert [job.id for job in fired()] == [fire_id("good", NOON + 1)]
    assert await scheduler.step() == pytest.approx(1.0)


async def test_a_server_that_refuses_everybody_is_asked_once_and_fires_all_when_it_is_back(
    scheduler, upsert, fired, server, keys, monkeypatch, caplog
):
    """Its memory runs out between the lock, which a leader writes first, and the first window."""
    for n in range(3):
        await upsert(a_spec(f"spec-{n}"))
    asked, fire = [], repeats.fire

    def without_memory(keys, stored, jobs, **more):
        asked.append(stored.key)
        server.client().config_set("maxmemory", 1)
        return fire(keys, stored, jobs, **more)

    try:
        with monkeypatch.context() as patch:
            patch.setattr(repeats, "fire", without_memory)
            with pytest.raises(ServerReplyError) as refused:  # the role waits, ever longer
                await scheduler.step()
    finally:
        server.client().config_set("maxmemory", 0)
    assert (refused.value.kind, asked) == ("OOM", ["spec-0"])
    assert "cannot be fired" not in caplog.text
    await scheduler.step()
    assert [job.id for job in fired()] == [fire_id(f"spec-{n}", NOON) for n in range(3)]


@pytest.mark.parametrize("wrong_by_ms", [-4 * MINUTE, 4 * MINUTE])
async def test_a_leader_whose_own_clock_is_wrong_fires_what_is_due_by_the_servers(
    connect, queue_name, keys, upsert, fired, server, monkeypatch, wrong_by_ms
):
    right_ns = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: right_ns() + wrong_by_ms * 1_000_000)
    scheduler = SchedulerRole(connect(), SchedulerConfig(queue_name=queue_name))
    seconds, _ = server.client().time()
    due_ms = seconds * 1_000
    await upsert(a_spec("due"), due_ms=due_ms)
    await upsert(a_spec("later"), due_ms=due_ms + MINUTE - 1)
    await scheduler.step()
    assert [job.id for job in fired()] == [fire_id("due", due_ms)]
    stood_at = dict(server.client().zrange(keys.repeat, 0, -1, withscores=True))
    assert stood_at == {b"later": due_ms + MINUTE - 1, b"due": due_ms + MINUTE}
