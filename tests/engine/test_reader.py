"""The reader, step by step, on a real server; its clock moves when it is told to."""

# ruff: noqa: SLF001 -- a late reply is made by holding one back

import asyncio

import pytest

from chasquimq.broker import stream
from chasquimq.broker.blocking import BlockingConnection
from chasquimq.broker.connection import Connection
from chasquimq.broker.options import ConnectionOptions
from chasquimq.broker.url import parse_url
from chasquimq.clock import ManualClock
from chasquimq.config import ConsumerConfig
from chasquimq.engine.executor import Executor
from chasquimq.engine.gate import Gate
from chasquimq.engine.leases import Leases
from chasquimq.engine.reader import Reader
from chasquimq.engine.teller import Teller
from chasquimq.errors import ConfigError, ServerReplyError
from chasquimq.metrics import ReaderBatch
from tests.support.eventually import eventually
from tests.support.leases import with_lease
from tests.support.scene import soon
from tests.support.sink import RecordingSink


class Desk:
    """A reader and those it works with; handlers wait at a gate."""

    def __init__(self, scene, lease_ms=None, **config):
        self.sink = RecordingSink()
        self.clock = ManualClock()
        usual = {"queue_name": scene.name, "consumer_id": "c-1", "block_ms": 1, "concurrency": 2}
        self.config = with_lease(ConsumerConfig(**usual | config, metrics=self.sink), lease_ms)
        target, options = parse_url(scene.server.socket_url), ConnectionOptions()
        self.connection = Connection(target, options, slot_key=scene.keys.tag)
        self.helper = self.connection.sibling()
        self._blocking = BlockingConnection(target, options, slot_key=scene.keys.tag)
        self.gate = asyncio.Event()
        self.runs = []
        self.unfit = []
        self.executor = Executor(
            self._handle,
            concurrency=self.config.concurrency,
            clock=self.clock,
            is_sure=lambda entry_id, now_us: True,
            on_doubt=self.unfit.append,
            on_begin=None,
            on_outcome=lambda run, outcome, duration_us: None,
            on_slip=self.unfit.append,
        )
        self.leases = Leases(
            self._blocking,
            scene.keys,
            group="default",
            consumer="c-1",
            lease_ms=self.config.claim_min_idle_ms,
            clock=self.clock,
        )
        self.teller = Teller(self.connection, scene.keys, self.config, self.clock)
        self.reader = Reader(
            self.connection,
            scene.keys,
            self.config,
            executor=self.executor,
            leases=self.leases,
            teller=self.teller,
            gate=Gate(self.config, teller=self.teller, clock=self.clock),
            clock=self.clock,
            on_unfit=self.unfit.append,
        )

    async def _handle(self, run):
        self.runs.append(run)
        await self.gate.wait()

    async def finish(self, count):
        """Let `count` jobs have finished by the executor's book."""
        self.executor.finished += count

    async def close(self):
        self.gate.set()
        await self.executor.end(0)
        await self.connection.close()
        await self.helper.close()
        self._blocking.close()


@pytest.fixture
async def desk(scene):
    desks = []

    async def desk(**config):
        desks.append(Desk(scene, **config))
        await desks[-1].reader.join()
        return desks[-1]

    yield desk
    for each in desks:
        await each.close()


async def add(scene, count):
    return await scene.queue.add_bulk([{"name": "n", "data": n} for n in range(count)])


async def test_what_was_settled_while_a_read_was_on_its_way_is_not_run_again(scene, desk):
    """As after the server stood still: it gives our own entry out again, then hears of its end."""
    own = await desk()
    await add(scene, 1)
    await own.reader.step()
    await eventually(lambda: len(own.runs) == 1)
    entry_id = own.runs[0].delivery.entry_id
    lease_ms = own.config.claim_min_idle_ms
    client = scene.server.client()
    client.xclaim(
        scene.keys.stream, "default", "c-1", 0, [entry_id], idle=lease_ms + 1, justid=True
    )
    take = own.reader._intake.take

    async def late(*arguments, **more):
        taken = await take(*arguments, **more)
        assert [each.entry_id for each in taken.deliveries] == [entry_id]
        client.xack(scene.keys.stream, "default", entry_id)
        client.xdel(scene.keys.stream, entry_id)
        own.leases.settle([entry_id])
        return taken

    own.reader._intake.take = late
    own.reader._intake.look_again()
    await own.reader.step()
    await asyncio.sleep(0)
    assert len(own.runs) == 1
    assert entry_id not in own.leases
    assert own.executor.waiting == 0


async def test_a_step_reads_as_many_as_there_are_free_slots(scene, desk):
    own = await desk(concurrency=3)
    await add(scene, 5)
    assert await own.reader.step() == 0
    assert own.sink.reports == [ReaderBatch(size=3, reclaimed=0)]
    await eventually(lambda: len(own.runs) == 3)
    assert own.executor.free == 0
    assert len(scene.pending()) == 3


async def test_a_step_without_room_reads_nothing_until_a_run_has_left_its_slot(scene, desk):
    own = await desk(concurrency=1)
    await add(scene, 2)
    await own.reader.step()
    await asyncio.sleep(0)
    waiting = asyncio.create_task(own.reader.step())
    await asyncio.sleep(0)
    assert (waiting.done(), len(scene.pending())) == (False, 1)
    own.gate.set()
    await soon(waiting)
    await own.reader.step()
    assert len(own.sink.seen(ReaderBatch)) == 2


async def test_a_reader_reads_ahead_what_its_slots_would_finish_in_50_ms(scene, desk):
    own = await desk(concurrency=2, batch=64)
    await add(scene, 100)
    await own.finish(40)
    own.clock.advance(100)
    await own.reader.step()
    assert own.sink.reports == [ReaderBatch(size=2 + 20, reclaimed=0)]
    assert own.executor.waiting == 22


@pytest.mark.parametrize(
    ("finished", "sizes"),
    [
        pytest.param(30, [2 + 7], id="no more than its batch"),
        pytest.param(200, [2 + 20, 20], id="or what is done in 10 ms, by halves"),
        pytest.param(1_000, [2 + 28, 28], id="up to eight times its batch"),
    ],
)
async def test_how_far_a_reader_reads_ahead_at_most(scene, desk, finished, sizes):
    own = await desk(concurrency=2, batch=7)
    await add(scene, 100)
    await own.finish(finished)
    own.clock.advance(50)
    for _ in sizes:
        await own.reader.step()
    assert own.sink.reports == [ReaderBatch(size=size, reclaimed=0) for size in sizes]
    assert own.reader._foresight.portion(own.executor.free) == 0


async def test_entries_read_ahead_that_find_no_slot_go_back_unstarted_and_uncounted(scene, desk):
    own = await desk(concurrency=1, batch=64, claim_min_idle_ms=30_000)
    await add(scene, 4)
    await own.finish(10)
    own.clock.advance(50)
    await own.reader.step()
    await asyncio.sleep(0)
    assert (own.executor.running, own.executor.waiting) == (1, 3)
    own.clock.advance(50)  # nothing has finished since: no more reading ahead
    await own.reader.step()  # waits for a slot in vain, then hands back
    assert own.executor.waiting == 0
    assert len(own.leases) == 1
    other = await desk(concurrency=9)
    await other.reader.step()
    assert [run.attempt for run in await started(other, 3)] == [1, 1, 1]


async def test_what_was_read_for_fast_handlers_goes_back_when_they_turn_slow(scene, desk):
    """Though a run ends every 0.9 s: another worker could have begun all the others by then."""
    own = await desk(concurrency=1, batch=8)
    await add(scene, 100)
    await own.finish(1_000)
    own.clock.advance(50)
    await own.reader.step()
    await asyncio.sleep(0)
    assert (own.executor.running, own.executor.waiting) == (1, 32)
    for _ in range(3):
        own.clock.advance(900)
        own.executor.nudge()  # as a run that has ended does
        await own.reader.step()
    assert own.executor.waiting == 0
    assert len(own.leases) == 1
    other = await desk(concurrency=30)
    await other.reader.step()
    assert {run.attempt for run in await started(other, 30)} == {1}


async def started(desk, count):
    await eventually(lambda: len(desk.runs) == count)
    return desk.runs


async def test_what_could_not_be_handed_back_is_not_kept_from_others_either(scene, desk):
    own = await desk(concurrency=1, batch=64)
    await add(scene, 3)
    await own.finish(10)
    own.clock.advance(50)
    await own.reader.step()
    await asyncio.sleep(0)
    scene.client.delete(scene.keys.stream)
    scene.client.set(scene.keys.stream, "in the way", ex=60)
    own.clock.advance(50)
    with pytest.raises(ServerReplyError):
        await own.reader.step()
    assert len(own.leases) == 1  # only the job that runs
    scene.client.delete(scene.keys.stream)


async def test_a_read_ahead_does_not_block_for_long_while_jobs_wait_for_a_slot(scene, desk):
    own = await desk(concurrency=1, batch=64, block_ms=60_000)
    await add(scene, 3)
    await own.finish(20)
    own.clock.advance(50)
    await own.reader.step()
    await asyncio.sleep(0)
    assert own.executor.waiting == 2
    await soon(own.reader.step())  # there is room ahead and nothing to read


async def test_many_deliveries_are_asked_about_in_portions(scene, desk, monkeypatch):
    """A script refuses some eight thousand ids at once, and holds the server up before that."""
    monkeypatch.setattr(stream, "MOST_RENEWED", 2)
    own = await desk(concurrency=5)
    await add(scene, 5)
    config = own.reader._config
    reading = stream.read(
        scene.keys, config.group, config.consumer_id, count=5, block_ms=1, claim_min_idle_ms=None
    )
    deliveries = await own.reader.connection.run(reading)
    scene.client.xclaim(scene.keys.stream, config.group, "c-other", 0, [deliveries[3].entry_id])
    ours = await own.reader._still_ours(deliveries, own.reader.connection)
    assert ours == [*deliveries[:3], deliveries[4]]


async def test_a_stop_does_not_wait_for_a_slot(scene, desk):
    own = await desk(concurrency=1)
    await add(scene, 2)
    stop = asyncio.Event()
    running = asyncio.create_task(own.reader.run(stop))
    await started(own, 1)
    stop.set()
    own.reader.end()
    with_no_wait = 0.5
    await asyncio.wait_for(running, with_no_wait)


async def test_a_stop_ends_a_read_that_is_blocked_on_the_server(scene, desk):
    own = await desk(block_ms=60_000)
    stop = asyncio.Event()
    running = asyncio.create_task(own.reader.run(stop))
    await eventually(lambda: own.reader.blocked_on)
    stop.set()
    await soon(own.reader.unblock(own.helper))
    await soon(running)


async def test_a_read_without_a_limit_blocks_and_does_not_spin(scene, desk):
    own = await desk(block_ms=0)
    stop = asyncio.Event()
    running = asyncio.create_task(own.reader.run(stop))
    await eventually(lambda: own.reader.blocked_on)
    calls = reads_so_far(scene)
    await eventually(lambda: reads_so_far(scene) in (calls, calls + 1))
    await add(scene, 1)
    await started(own, 1)
    assert reads_so_far(scene) <= calls + 3
    stop.set()
    await own.reader.unblock(own.helper)
    await soon(running)


def reads_so_far(scene):
    return scene.client.info("commandstats")["cmdstat_xreadgroup"]["calls"]


async def test_what_an_open_read_brings_after_the_end_goes_back_unstarted(scene, desk):
    own = await desk(block_ms=60_000, claim_min_idle_ms=600_000)
    stop = asyncio.Event()
    running = asyncio.create_task(own.reader.run(stop))
    await eventually(lambda: own.reader.blocked_on)
    stop.set()
    own.reader.end()
    await add(scene, 1)
    await soon(running)
    assert (own.runs, len(own.leases)) == ([], 0)
    other = await desk(claim_min_idle_ms=600_000)
    await other.reader.step()
    (run,) = await started(other, 1)
    assert run.attempt == 1


async def test_drained_is_told_when_a_read_finds_nothing_after_one_that_did(scene, desk):
    own = await desk()
    for gatherer in (own.teller.gatherer,):
        gatherer.start()
    await own.reader.step()
    await add(scene, 1)
    await own.reader.step()
    await own.reader.step()
    await own.reader.step()
    await own.teller.gatherer.end()
    (drained,) = scene.events("drained")
    assert (drained.job_id, drained.job_name, drained.fields.keys()) == (None, "", {"ts"})


async def test_a_lost_group_is_made_again_whichever_request_finds_out(scene, desk):
    own = await desk()
    scene.client.xgroup_destroy(scene.keys.stream, "default")
    await add(scene, 1)
    assert await own.reader.step() == 0
    await own.reader.step()
    assert own.sink.reports == [ReaderBatch(size=1, reclaimed=0)]


async def test_other_errors_of_the_server_are_not_taken_for_a_lost_group(scene, desk):
    own = await desk()
    scene.client.delete(scene.keys.stream)
    scene.client.set(scene.keys.stream, "in the way", ex=60)
    with pytest.raises(ServerReplyError):
        await own.reader.step()
    scene.client.delete(scene.keys.stream)


async def test_joining_twice_is_harmless_and_a_second_group_is_refused(scene, desk):
    own = await desk()
    await own.reader.join()
    with pytest.raises(ConfigError, match="is read by group 'default'"):
        await desk(group="other")


async def test_a_lease_of_our_own_that_ran_out_does_not_run_the_job_twice(scene, desk):
    own = await desk(concurrency=4, lease_ms=50)
    await add(scene, 1)
    await own.reader.step()
    await started(own, 1)
    (held,) = scene.pending()
    scene.client.xclaim(
        scene.keys.stream, "default", "c-1", 0, [held["message_id"]], idle=60_000, justid=True
    )
    own.clock.advance(1_000)
    await own.reader.step()
    await own.reader.step()
    assert len(own.runs) == 1
    assert own.executor.waiting == 0


async def test_deliveries_lost_with_a_connection_go_back_unstarted_and_uncounted(scene, desk):
    own = await desk(concurrency=9)
    await add(scene, 3)
    # The server gave them to us, and the reply never came.
    scene.client.xreadgroup("default", "c-1", {scene.keys.stream: ">"}, count=2)
    await own.reader.step()
    await started(own, 1)
    await own.reader.return_strays()
    other = await desk(concurrency=9)
    await other.reader.step()
    assert [run.attempt for run in await started(other, 2)] == [1, 1]
    assert len(own.runs) == 1


async def test_after_a_break_the_next_step_looks_for_deliveries_that_got_lost_with_it(scene, desk):
    own = await desk(concurrency=9, claim_min_idle_ms=600_000)
    await add(scene, 2)
    scene.client.xreadgroup("default", "c-1", {scene.keys.stream: ">"}, count=1)
    scene.client.client_kill_filter(_id=own.connection.server.client_id)
    await own.reader.step()
    await started(own, 1)
    other = await desk(concurrency=9, claim_min_idle_ms=600_000)
    await other.reader.step()
    (run,) = await started(other, 1)
    assert run.attempt == 1


async def test_strays_of_a_group_that_is_gone_again_are_none(scene, desk):
    own = await desk()
    scene.client.xgroup_destroy(scene.keys.stream, "default")
    await own.reader.return_strays()
    assert scene.client.xinfo_groups(scene.keys.stream) == []


async def test_what_was_handed_back_loses_no_delivery_when_strays_are_looked_for(scene, desk):
    own = await desk()
    await add(scene, 1)
    entry_id = scene.client.xreadgroup("default", "c-1", {scene.keys.stream: ">"})[0][1][0][0]
    scene.client.xclaim(scene.keys.stream, "default", "c-1", 0, [entry_id], retrycount=3)
    await add(scene, 1)  # a backlog: what is handed back stays pending, made idle
    await own.reader.return_strays()
    assert [row["times_delivered"] for row in scene.pending()] == [2]
    await own.reader.return_strays()
    assert [row["times_delivered"] for row in scene.pending()] == [2]


async def test_what_a_dead_worker_of_the_same_name_held_counts_as_its_run(scene, desk):
    before = await desk()
    await add(scene, 1)
    scene.client.xreadgroup("default", "c-1", {scene.keys.stream: ">"})
    await before.close()  # it is killed, and started again under its name
    own = await desk()
    await own.reader.return_strays()
    [row] = scene.pending()
    assert (row["consumer"], row["times_delivered"]) == (b"c-1", 1)


async def test_what_was_inherited_and_lost_again_with_a_connection_goes_back(scene, desk):
    await desk()
    await add(scene, 1)
    entry_id = scene.client.xreadgroup("default", "c-1", {scene.keys.stream: ">"})[0][1][0][0]
    own = await desk()
    # Its lease ran out, we claimed it, and the reply never came.
    scene.client.xclaim(scene.keys.stream, "default", "c-1", 0, [entry_id])
    await own.reader.return_strays()
    other = await desk(claim_min_idle_ms=600_000)
    await other.reader.step()
    (run,) = await started(other, 1)
    assert run.attempt == 2


async def test_what_ran_and_could_not_be_settled_is_no_stray(scene, desk):
    own = await desk()
    await add(scene, 1)
    await own.reader.step()
    (run,) = await started(own, 1)
    own.leases.give_up(run.delivery.entry_id)
    await own.reader.return_strays()
    [row] = scene.pending()
    assert (row["consumer"], row["times_delivered"]) == (b"c-1", 1)

    # Once another worker has it there is nothing left to remember.
    scene.client.xclaim(scene.keys.stream, "default", "c-rival", 0, [run.delivery.entry_id])
    await own.reader.return_strays()
    assert not own.leases.had_its_run(run.delivery.entry_id)


async def test_a_late_reply_is_checked_before_its_jobs_are_run(scene, desk):
    own = await desk(concurrency=9, claim_min_idle_ms=30_000)
    await add(scene, 2)
    take = own.reader._take

    async def late(room):
        taken = await take(room)
        own.clock.advance(10_000)  # the event loop was blocked
        lost = taken.deliveries[0].entry_id
        scene.client.xclaim(scene.keys.stream, "default", "c-rival", 0, [lost])
        return taken

    own.reader._take = late
    await own.reader.step()
    (run,) = await started(own, 1)
    assert {row["consumer"]: row["message_id"] for row in scene.pending()}[b"c-1"] == (
        run.delivery.entry_id
    )


async def doubted(scene, own):
    """A run that the reader took and that was not begun, as the slots of a frozen worker have."""
    await add(scene, 1)
    own.executor.submit = (waiting := []).extend
    await own.reader.step()
    del own.executor.submit
    return waiting[0]


async def test_a_run_in_doubt_begins_if_it_is_still_ours(scene, desk):
    own = await desk()
    run = await doubted(scene, own)
    own.clock.advance(30_000)
    await own.reader.confirm(run, own.helper)
    assert await started(own, 1) == [run]
    assert own.leases.is_sure(run.delivery.entry_id, own.clock.monotonic_us())


async def test_a_run_in_doubt_that_another_has_is_forgotten(scene, desk):
    own = await desk()
    run = await doubted(scene, own)
    entry_id = run.delivery.entry_id
    scene.client.xclaim(scene.keys.stream, "default", "c-rival", 0, [entry_id])
    await own.reader.confirm(run, own.helper)
    assert (own.executor.waiting, own.runs, entry_id in own.leases) == (0, [], False)
    assert [row["consumer"] for row in scene.pending()] == [b"c-rival"]


async def test_a_run_in_doubt_that_our_own_read_was_given_again_begins_once(scene, desk):
    own = await desk()
    run = await doubted(scene, own)
    entry_id = run.delivery.entry_id
    scene.client.xclaim(scene.keys.stream, "default", "c-rival", 0, [entry_id])
    still_ours = own.reader._still_ours

    async def overtaken(deliveries, connection):
        answer = await still_ours(deliveries, connection)
        own.leases.take(entry_id)  # as the reader does, when the rival has given it back
        return answer

    own.reader._still_ours = overtaken
    await own.reader.confirm(run, own.helper)
    assert await started(own, 1) == [run]
    assert entry_id in own.leases


async def test_a_lease_counts_from_when_the_server_was_asked_for_it(scene, desk):
    own = await desk()
    run = await doubted(scene, own)
    still_ours = own.reader._still_ours

    async def frozen(deliveries, connection):
        answer = await still_ours(deliveries, connection)
        own.clock.advance(30_000)
        return answer

    own.reader._still_ours = frozen
    await own.reader.confirm(run, own.helper)
    assert not own.leases.is_sure(run.delivery.entry_id, own.clock.monotonic_us())


async def test_a_run_in_doubt_of_which_the_server_says_nothing_waits_for_its_lease(scene, desk):
    own = await desk()
    run = await doubted(scene, own)
    scene.client.set(scene.keys.stream, "no stream")
    await own.reader.confirm(run, own.helper)
    assert (own.executor.waiting, own.runs, len(own.leases)) == (0, [], 0)
    scene.client.delete(scene.keys.stream)


async def test_its_repr_shows_what_its_slots_do(scene, desk):
    own = await desk(concurrency=2)
    assert repr(own.reader) == f"<Reader {scene.name} c-1, <Executor 0/2 slots, 0 waiting>>"
