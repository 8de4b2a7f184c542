import asyncio
import contextvars
import gc
import weakref

import pytest

from chasquimq.clock import ManualClock
from chasquimq.engine.disposition import Failed, Ok
from chasquimq.engine.executor import Executor
from chasquimq.engine.failure import MESSAGE_CHARS, TRACEBACK_CHARS
from chasquimq.errors import DlqReason, UnrecoverableError
from tests.support.builders import a_run
from tests.support.eventually import eventually


class Bench:
    """An executor whose starts and outcomes can be looked at and waited for."""

    def __init__(self, handler, concurrency, clock):
        self.clock = clock
        self.asked = []
        self.refused = set()
        self.started = []
        self.doubted = []
        self.settling_ms = 0
        self.outcomes = {}
        self.slipped = []
        self.upsets_begin = {}
        self.upsets_end = {}
        self._news = asyncio.Event()
        self.executor = Executor(
            handler,
            concurrency=concurrency,
            clock=clock,
            is_sure=self._is_sure,
            on_doubt=self.doubted.append,
            on_begin=self._on_begin,
            on_outcome=self._on_outcome,
            on_slip=self.slipped.append,
        )

    def _on_begin(self, run):
        self.started.append(run)
        if run in self.upsets_begin:
            raise self.upsets_begin[run]

    def _is_sure(self, entry_id, now_us):
        self.asked.append((entry_id, now_us))
        return entry_id not in self.refused

    def _on_outcome(self, run, outcome, duration_us):
        self.clock.advance(self.settling_ms)
        if run in self.upsets_end:
            raise self.upsets_end[run]
        self.outcomes[run] = (outcome, duration_us)
        self._news.set()

    async def outcome(self, run):
        async with asyncio.timeout(5):
            while run not in self.outcomes:
                await self._news.wait()
                self._news.clear()
        return self.outcomes[run][0]

    async def run(self, *runs):
        for run in runs:
            self.executor.submit([run])
        return [await self.outcome(run) for run in runs]


@pytest.fixture
async def make():
    made = []

    def make(handler, *, concurrency=1):
        made.append(Bench(handler, concurrency, ManualClock()))
        return made[-1]

    yield make
    for bench in made:
        await bench.executor.end(0)


class Turns:
    """Counts the turns of the event loop while it is open."""

    def __init__(self):
        self.count = 0
        self._is_open = True

    def __enter__(self):
        asyncio.get_running_loop().call_soon(self._turn)
        return self

    def __exit__(self, *_):
        self._is_open = False

    def _turn(self):
        if self._is_open:
            self.count += 1
            asyncio.get_running_loop().call_soon(self._turn)


async def echo(run):
    return run.envelope.payload


# --- what a run costs


async def test_handlers_that_do_not_suspend_cost_no_task_and_a_batch_a_few_turns_of_the_loop(make):
    bench = make(echo)
    tasks = []

    def count(loop, coroutine, **options):
        tasks.append(coroutine)
        return asyncio.Task(coroutine, loop=loop, **options)

    asyncio.get_running_loop().set_task_factory(count)
    runs = [a_run(n) for n in range(500)]
    with Turns() as turns:
        outcomes = await bench.run(*runs)
    asyncio.get_running_loop().set_task_factory(None)
    assert [outcome.value for outcome in outcomes] == [run.envelope.payload for run in runs]
    assert len(tasks) == 1  # the slot itself
    assert turns.count <= 2 + 3 * 3  # a pause after 125, after 100, after another 100


@pytest.mark.parametrize(
    ("runs", "pauses"), [(500, [125, 225, 325]), (200, [100]), (199, []), (2_000, [500, 875])]
)
async def test_amid_a_large_batch_a_slot_lets_others_write(make, runs, pauses):
    """A quarter of what waits at a time, and no less than is worth a round trip."""
    turns_at = []

    async def handler(run):
        turns_at.append(turns.count)

    bench = make(handler)
    with Turns() as turns:
        bench.executor.submit([a_run(n) for n in range(runs)])
        await eventually(lambda: len(turns_at) == runs)
    seen = [at for at in range(1, runs) if turns_at[at] != turns_at[at - 1]]
    assert seen[: len(pauses)] == pauses
    assert bool(seen) == bool(pauses)


async def test_a_slot_lets_others_have_the_loop_after_two_milliseconds(make):
    marks = []

    async def handler(run):
        bench.clock.advance(0.5)
        marks.append(turns.count)

    bench = make(handler)
    with Turns() as turns:
        await bench.run(*[a_run() for _ in range(100)])
    per_turn = [marks.count(turn) for turn in set(marks)]
    assert max(per_turn) == 5  # the fifth run ends past 2 ms
    assert len(per_turn) == 20


async def test_never_more_handlers_run_than_there_are_slots(make):
    running, most, gate = 0, 0, asyncio.Event()

    async def handler(run):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await gate.wait()
        running -= 1

    bench = make(handler, concurrency=3)
    runs = [a_run() for _ in range(10)]
    for run in runs:
        bench.executor.submit([run])
    await eventually(lambda: bench.executor.running == 3)
    assert (bench.executor.running, bench.executor.waiting, bench.executor.free) == (3, 7, -7)
    assert repr(bench.executor) == "<Executor 3/3 slots, 7 waiting>"
    gate.set()
    for run in runs:
        await bench.outcome(run)
    assert most == 3
    assert (bench.executor.running, bench.executor.free, bench.executor.finished) == (0, 3, 10)


async def test_a_batch_of_handlers_that_never_suspend_takes_one_slot(make):
    bench = make(echo, concurrency=50)
    runs = [a_run(n) for n in range(200)]
    await bench.run(*runs)
    slots = [each for each in asyncio.all_tasks() if each.get_name().startswith("slot-")]
    assert len(slots) == 1


async def test_handlers_that_suspend_get_every_slot_within_a_few_turns(make):
    gate = asyncio.Event()

    async def handler(run):
        await gate.wait()

    bench = make(handler, concurrency=64)
    runs = [a_run(n) for n in range(100)]
    for run in runs:
        bench.executor.submit([run])
    for _ in range(10):
        await asyncio.sleep(0)
    assert bench.executor.running == 64
    gate.set()
    for run in runs:
        await bench.outcome(run)


async def test_runs_start_in_the_order_they_came(make):
    bench = make(echo, concurrency=2)
    runs = [a_run(n) for n in range(20)]
    await bench.run(*runs)
    assert bench.started == runs


async def test_a_run_that_may_not_begin_is_left_out_and_makes_room(make):
    ran = []

    async def handler(run):
        ran.append(run)

    bench = make(handler)
    runs = [a_run() for _ in range(3)]
    bench.refused.add(runs[1].delivery.entry_id)
    bench.executor.submit([runs[1]])
    await bench.run(runs[0], runs[2])
    assert ran == bench.started == [runs[0], runs[2]]
    assert bench.doubted == [runs[1]]
    assert bench.executor.free == 1
    assert {now_us for _, now_us in bench.asked} == {bench.clock.monotonic_us()}


async def test_who_stood_still_between_two_runs_asks_by_the_time_it_is_then(make):
    async def handler(run):
        bench.clock.advance(1)

    bench = make(handler)
    runs = [a_run(), a_run()]
    began_us = bench.clock.monotonic_us()
    bench.settling_ms = 40_000
    await bench.run(*runs)
    assert [now_us - began_us for _, now_us in bench.asked] == [0, 40_001_000]


async def test_an_idle_slot_keeps_nothing_of_a_job_alive(make):
    kept = contextvars.ContextVar("kept")

    class Session:
        pass

    async def handler(run):
        session = Session()
        kept.set(session)
        sessions.append(weakref.ref(session))
        if run is runs[1]:
            waiter = asyncio.get_running_loop().create_future()
            waiter.set_result(session)
            await asyncio.sleep(0)
            await waiter

    sessions, runs = [], [a_run(), a_run()]
    bench = make(handler)
    await bench.run(*runs)
    await asyncio.sleep(0)
    gc.collect()
    assert [each() for each in sessions] == [None, None]


async def test_the_duration_is_that_of_the_handler_alone(make):
    async def handler(run):
        bench.clock.advance(7)

    bench = make(handler)
    run = a_run()
    await bench.run(run)
    assert bench.outcomes[run][1] == 7_000


# --- what a run sees

VARIABLE = contextvars.ContextVar("VARIABLE", default="untouched")


async def test_a_context_variable_set_by_one_job_is_not_seen_by_the_next(make):
    seen = []

    async def handler(run):
        seen.append(VARIABLE.get())
        VARIABLE.set(run.envelope.id)

    await make(handler).run(a_run(), a_run(), a_run())
    assert seen == ["untouched"] * 3
    assert VARIABLE.get() == "untouched"


async def test_context_variables_of_jobs_that_suspend_are_kept_apart(make):
    gates = {}
    seen = {}

    async def handler(run):
        VARIABLE.set(run.envelope.id)
        gate = gates[run] = asyncio.Event()
        await gate.wait()
        await asyncio.sleep(0)
        inner = await asyncio.create_task(read_variable())
        seen[run] = (VARIABLE.get(), inner)

    async def read_variable():
        return VARIABLE.get()

    bench = make(handler, concurrency=2)
    first, second, third = a_run(), a_run(), a_run()
    for run in (first, second, third):
        bench.executor.submit([run])
    await eventually(lambda: second in gates)
    gates[second].set()
    await bench.outcome(second)
    gates[first].set()
    await bench.outcome(first)
    gates[third].set()
    await bench.outcome(third)
    assert seen == {run: (run.envelope.id,) * 2 for run in (first, second, third)}


async def test_a_context_variable_set_before_the_executor_was_made_is_seen_by_every_job(make):
    async def handler(run):
        return VARIABLE.get().encode()

    token = VARIABLE.set("given")
    bench = make(handler)
    VARIABLE.reset(token)
    assert [outcome.value for outcome in await bench.run(a_run(), a_run())] == [b"given"] * 2


# --- what a handler may do


async def test_a_handler_may_use_timeouts(make):
    async def handler(run):
        async with asyncio.timeout(0):
            await asyncio.Event().wait()

    bench = make(handler)
    for outcome in await bench.run(a_run(), a_run()):
        assert outcome.error == "TimeoutError"
        assert not outcome.is_panic


async def test_a_handler_may_use_task_groups(make):
    async def handler(run):
        async with asyncio.TaskGroup() as group:
            children = [group.create_task(child(run, n)) for n in range(3)]
        return b",".join(each.result() for each in children)

    async def child(run, n):
        await asyncio.sleep(0)
        if run.name == "bad" and n == 1:
            message = "child"
            raise ValueError(message)
        return b"%d" % n

    bench = make(handler)
    good, bad, again = await bench.run(a_run(), a_run(name="bad"), a_run())
    assert good.value == again.value == b"0,1,2"
    assert bad.error.startswith("ExceptionGroup: ")
    assert "ValueError: child" in bad.traceback


async def test_a_handler_may_wait_for_what_is_cancelled_elsewhere(make):
    async def handler(run):
        task = asyncio.create_task(asyncio.Event().wait())
        asyncio.get_running_loop().call_soon(task.cancel)
        try:
            await task
        except asyncio.CancelledError:
            return b"seen"

    (outcome,) = await make(handler).run(a_run())
    assert outcome.value == b"seen"


async def cancel_and_suspend(run):
    asyncio.current_task().cancel()
    await asyncio.sleep(0)


async def cancel_twice_and_suspend(run):
    asyncio.current_task().cancel()
    asyncio.current_task().cancel()
    await asyncio.sleep(0)


async def raise_cancelled(run):
    raise asyncio.CancelledError


async def cancel_and_return(run):
    asyncio.current_task().cancel()
    return b"returned"


async def cancel_and_raise(run):
    asyncio.current_task().cancel()
    message = "raised"
    raise ValueError(message)


@pytest.mark.parametrize(
    ("selfish", "expected"),
    [
        (cancel_and_suspend, "CancelledError"),
        (cancel_twice_and_suspend, "CancelledError"),
        (raise_cancelled, "CancelledError"),
        (cancel_and_return, b"returned"),
        (cancel_and_raise, "ValueError: raised"),
    ],
)
@pytest.mark.parametrize("is_next_waiting", [True, False], ids=["next waits", "next comes later"])
async def test_a_handler_that_cancels_itself_does_not_hurt_the_next(
    make, selfish, expected, is_next_waiting
):
    async def handler(run):
        if run.name == "selfish":
            return await selfish(run)
        assert asyncio.current_task().cancelling() == 0
        await asyncio.sleep(0)
        async with asyncio.timeout(5):
            await asyncio.sleep(0)
        return b"unhurt"

    bench = make(handler)
    first, second = a_run(name="selfish"), a_run()
    if is_next_waiting:
        outcomes = await bench.run(first, second)
    else:
        outcomes = await bench.run(first)
        await asyncio.sleep(0)
        outcomes += await bench.run(second)
    assert (outcomes[0].value if isinstance(outcomes[0], Ok) else outcomes[0].error) == expected
    assert outcomes[1].value == b"unhurt"


async def test_a_slot_that_something_cancels_between_two_jobs_lives_on(make):
    slot = None

    async def handler(run):
        nonlocal slot
        slot = asyncio.current_task()
        return b"done"

    bench = make(handler)
    await bench.run(a_run())
    await asyncio.sleep(0)
    slot.cancel()  # a task that the handler left behind, say
    await asyncio.sleep(0)
    (outcome,) = await bench.run(a_run())
    assert outcome.value == b"done"


# --- what comes of a run


class Silent(Exception):  # noqa: N818
    pass


class Unprintable(Exception):  # noqa: N818
    def __str__(self):
        message = "no text"
        raise RuntimeError(message)


class Abrupt(BaseException):
    pass


class ClosedError(UnrecoverableError):
    pass


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("boom"), ("boom", "ValueError: boom", None, False)),
        (Silent(), ("Silent", "Silent", None, False)),
        (Unprintable(), ("Unprintable", "Unprintable", None, False)),
        (ValueError("a\udcffb"), ("a\\udcffb", "ValueError: a\\udcffb", None, False)),
        (Abrupt("out"), ("out", "Abrupt: out", None, True)),
        (GeneratorExit(), ("GeneratorExit", "GeneratorExit", None, True)),
        (SystemExit(3), ("3", "SystemExit: 3", None, True)),
        (
            ClosedError("no entry"),
            ("no entry", "ClosedError: no entry", DlqReason.UNRECOVERABLE, False),
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
async def test_whatever_a_handler_raises_is_its_outcome(make, error, expected):
    async def handler(run):
        await asyncio.sleep(0)
        raise error

    bench = make(handler)
    for outcome in await bench.run(a_run(), a_run()):
        assert isinstance(outcome, Failed)
        shown = (outcome.message, outcome.error, outcome.dlq_reason, outcome.is_panic)
        assert shown == expected
        assert "in handler" in outcome.traceback


async def test_an_error_of_the_same_name_elsewhere_is_not_unrecoverable(make):
    namesake = type(UnrecoverableError.__name__, (RuntimeError,), {})

    async def handler(run):
        raise namesake

    (outcome,) = await make(handler).run(a_run())
    assert outcome.dlq_reason is None


async def test_of_a_long_traceback_the_end_is_kept(make):
    async def handler(run):
        message = "x" * 20_000 + "the end"
        raise ValueError(message)

    (outcome,) = await make(handler).run(a_run())
    assert outcome.traceback.startswith("... (earlier frames left out)\n")
    assert outcome.traceback.endswith("the end\n")
    assert len(outcome.traceback) < TRACEBACK_CHARS + 100


async def test_a_message_is_kept_up_to_a_limit(make):
    async def handler(run):
        raise ValueError("begin" + "x" * 1_000_000)

    (outcome,) = await make(handler).run(a_run())
    assert outcome.message.startswith("beginxxx")
    assert outcome.error.startswith("ValueError: beginxxx")
    assert len(outcome.message) == MESSAGE_CHARS
    assert len(outcome.error) == MESSAGE_CHARS


# --- how it ends


async def test_an_end_waits_for_the_handlers_that_run(make):
    gate = asyncio.Event()

    async def handler(run):
        await gate.wait()
        return b"finished"

    bench = make(handler, concurrency=2)
    runs = [a_run(), a_run()]
    for run in runs:
        bench.executor.submit([run])
    await asyncio.sleep(0)
    ending = asyncio.create_task(bench.executor.end(30))
    await asyncio.sleep(0)
    assert not ending.done()
    gate.set()
    assert await ending == []
    assert [bench.outcomes[run][0].value for run in runs] == [b"finished"] * 2


async def test_an_end_with_nothing_to_do_returns_at_once(make):
    bench = make(echo, concurrency=5)
    assert await bench.executor.end(30) == []
    used = make(echo, concurrency=5)
    await used.run(a_run(), a_run())
    assert await used.executor.end(30) == []


async def test_handlers_that_do_not_finish_by_the_deadline_are_cancelled_and_named(make):
    cancelled = []

    async def handler(run):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(run)
            raise

    bench = make(handler, concurrency=2)
    runs = [a_run(), a_run()]
    for run in runs:
        bench.executor.submit([run])
    await asyncio.sleep(0)
    assert await bench.executor.end(0) == runs
    assert cancelled == runs
    assert bench.outcomes == {}


async def test_a_cut_ends_the_wait_for_the_deadline(make):
    async def handler(run):
        await asyncio.Event().wait()

    bench = make(handler)
    run = a_run()
    bench.executor.submit([run])
    await asyncio.sleep(0)
    ending = asyncio.create_task(bench.executor.end(3_600))
    await asyncio.sleep(0)
    bench.executor.cut()
    async with asyncio.timeout(5):
        assert await ending == [run]


async def test_a_cut_ends_the_wait_even_for_a_handler_that_refuses_to_be_cancelled(make):
    gate = asyncio.Event()

    async def handler(run):
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue

    bench = make(handler)
    run = a_run()
    bench.executor.submit([run])
    await asyncio.sleep(0)
    ending = asyncio.create_task(bench.executor.end(3_600))
    await asyncio.sleep(0)
    bench.executor.cut()
    try:
        async with asyncio.timeout(10):
            assert await ending == [run]
    finally:
        gate.set()
    await bench.outcome(run)


async def test_a_handler_that_finishes_while_it_is_cut_off_has_finished(make):
    async def handler(run):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return b"just in time"

    bench = make(handler)
    run = a_run()
    bench.executor.submit([run])
    await asyncio.sleep(0)
    assert await bench.executor.end(0) == []
    assert bench.outcomes[run][0].value == b"just in time"


async def test_a_handler_that_is_cancelled_by_its_own_doing_during_the_end_has_failed(make):
    gate = asyncio.Event()

    async def handler(run):
        await gate.wait()
        raise asyncio.CancelledError

    bench = make(handler)
    run = a_run()
    bench.executor.submit([run])
    await asyncio.sleep(0)
    ending = asyncio.create_task(bench.executor.end(30))
    await asyncio.sleep(0)
    gate.set()
    assert await ending == []
    assert bench.outcomes[run][0].is_panic


async def test_runs_that_did_not_start_can_be_taken_back_and_never_start(make):
    gate = asyncio.Event()

    async def handler(run):
        await gate.wait()

    bench = make(handler)
    first, second, third = a_run(), a_run(), a_run()
    for run in (first, second, third):
        bench.executor.submit([run])
    await asyncio.sleep(0)
    assert bench.executor.take_waiting() == [second, third]
    assert bench.executor.waiting == 0
    gate.set()
    assert await bench.executor.end(30) == []
    assert bench.started == [first]


async def test_changed_returns_once_a_run_has_left_its_slot(make):
    gate = asyncio.Event()

    async def handler(run):
        await gate.wait()

    bench = make(handler)
    bench.executor.submit([a_run()])
    changed = asyncio.create_task(bench.executor.changed())
    await asyncio.sleep(0)
    assert not changed.done()
    gate.set()
    await changed
    assert bench.executor.free == 1


# --- slips of ours


@pytest.mark.parametrize("error", [RuntimeError("a slip"), asyncio.CancelledError()])
@pytest.mark.parametrize("stage", ["begin", "end"])
async def test_a_run_that_cannot_be_begun_or_settled_is_let_go_and_its_slot_goes_on(
    make, caplog, stage, error
):
    async def handler(run):
        return None

    bench = make(handler)
    first, upset, last = a_run(), a_run(), a_run()
    (bench.upsets_begin if stage == "begin" else bench.upsets_end)[upset] = error
    bench.executor.submit([first, upset, last])
    await bench.outcome(last)
    assert bench.slipped == [upset]
    assert list(bench.outcomes) == [first, last]
    assert (bench.executor.running, bench.executor.free) == (0, 1)
    (record,) = caplog.records
    assert "could not be settled and will run again" in record.getMessage()
    assert record.exc_info[1] is error


async def test_every_slot_is_left_after_as_many_slips_as_there_are_slots(make):
    async def handler(run):
        await asyncio.sleep(0)

    bench = make(handler, concurrency=3)
    upset, later = [a_run() for _ in range(3)], [a_run() for _ in range(6)]
    bench.upsets_end = dict.fromkeys(upset, RuntimeError("a slip"))
    bench.executor.submit(upset)
    await bench.run(*later)
    assert sorted(map(id, bench.slipped)) == sorted(map(id, upset))
    assert len(bench.outcomes) == 6


async def test_a_cut_ends_slots_that_have_slipped_too(make):
    async def handler(run):
        if run is not upset:
            await asyncio.Event().wait()

    bench = make(handler)
    upset, stuck = a_run(), a_run()
    bench.upsets_end[upset] = RuntimeError("a slip")
    bench.executor.submit([upset, stuck])
    await eventually(lambda: stuck in bench.started)
    assert await bench.executor.end(0) == [stuck]
    assert bench.slipped == [upset]
