import asyncio
import threading

import pytest

from chasquimq.clock import SYSTEM_CLOCK, ManualClock
from chasquimq.engine.batch_executor import BatchExecutor
from chasquimq.engine.disposition import Failed, Ok, Postponed
from chasquimq.errors import DlqReason, RateLimitError, UnrecoverableError
from tests.support.builders import a_run
from tests.support.eventually import eventually

NOTHING = Ok(None)


class Bench:
    """An executor of batches whose calls, starts and outcomes can be looked at."""

    def __init__(self, handler, size=10, at_a_time=1, clock=SYSTEM_CLOCK):
        self.refused = set()
        self.calls = []
        self.started = []
        self.doubted = []
        self.outcomes = {}
        self.durations_us = []
        self.slipped = []
        self.upsets_begin = {}
        self.upsets_end = {}
        self._handler = handler
        self.executor = BatchExecutor(
            self._call,
            size=size,
            concurrency=size * at_a_time,
            clock=clock,
            is_sure=lambda entry_id, now_us: entry_id not in self.refused,
            on_doubt=self.doubted.append,
            on_begin=self._on_begin,
            on_outcome=self._on_outcome,
            on_slip=self.slipped.append,
        )

    def _on_begin(self, run):
        if run in self.upsets_begin:
            raise self.upsets_begin[run]
        self.started.append(run)

    def _on_outcome(self, run, outcome, duration_us):
        if run in self.upsets_end:
            raise self.upsets_end[run]
        self.outcomes[run] = outcome
        self.durations_us.append(duration_us)

    def _call(self, runs):
        self.calls.append(list(runs))
        return self._handler(runs)

    async def all_of(self, runs):
        self.executor.submit(runs)
        await eventually(lambda: all(run in self.outcomes or run in self.doubted for run in runs))
        return [self.outcomes.get(run) for run in runs]


@pytest.fixture
async def bench():
    made = []

    def make(handler=lambda runs: [NOTHING] * len(runs), **how):
        made.append(Bench(handler, **how))
        return made[-1]

    yield make
    for each in made:
        each.executor.take_waiting()
        await each.executor.end(0)


def some(count, attempt=1):
    return [a_run(attempt=attempt) for _ in range(count)]


async def test_batches_are_of_the_size_asked_for_and_a_rest_goes_after_a_moment(bench):
    it = bench()
    given = some(25)
    assert await it.all_of(given) == [NOTHING] * 25
    assert [len(each) for each in it.calls] == [10, 10, 5]
    assert it.started == given
    assert (it.executor.finished, it.executor.running, it.executor.free) == (25, 0, 10)


async def test_each_run_is_told_its_share_of_the_time_that_its_batch_took(bench):
    clock = ManualClock(0)

    def work(runs):
        clock.advance(1_000)
        return [NOTHING] * len(runs)

    it = bench(work, clock=clock)
    await it.all_of(some(10))
    assert it.durations_us == [100_000] * 10


async def test_a_batch_that_is_not_full_is_filled_by_what_comes_a_moment_later(bench):
    it = bench()
    first, second = some(4), some(6)
    it.executor.submit(first)
    await asyncio.sleep(0)  # the slot has seen four, and waits
    await it.all_of(second)
    assert it.calls == [first + second]


async def test_a_run_that_is_not_its_jobs_first_comes_alone(bench):
    it = bench()
    fresh, again = some(3), some(2, attempt=2)
    await it.all_of([*fresh, *again])
    assert it.calls == [[again[0]], fresh, [again[1]]]


async def test_runs_that_come_alone_and_the_others_take_turns_in_the_order_they_came(bench):
    it = bench(size=2)
    fresh, again = some(4), some(4, attempt=2)
    await it.all_of([*again, *fresh])
    alone = [[each] for each in again]
    assert it.calls == [alone[0], fresh[:2], alone[1], fresh[2:], *alone[2:]]


async def test_as_many_batches_run_at_a_time_as_were_asked_for(bench):
    gate, both = threading.Event(), threading.Barrier(2, timeout=5)

    def wait(runs):
        both.wait()
        gate.wait(5)
        return [NOTHING] * len(runs)

    it = bench(wait, size=2, at_a_time=2)
    it.executor.submit(some(5))
    await eventually(lambda: len(it.calls) == 2 and it.executor.running == 4)
    assert (it.executor.waiting, it.executor.free) == (1, -1)
    both.reset()
    it.executor.take_waiting()
    gate.set()
    await eventually(lambda: len(it.outcomes) == 4)


async def test_each_run_has_the_outcome_at_its_place(bench):
    told = [NOTHING, Ok(b"x"), Failed("no", "E: no", "")]
    it = bench(lambda runs: told[: len(runs)])
    assert await it.all_of(some(3)) == told


async def test_what_is_raised_became_of_every_run_of_the_batch(bench):
    def fail(runs):
        raise error

    error = UnrecoverableError("all of it")

    found = await bench(fail).all_of(some(3))
    assert {(each.message, each.dlq_reason) for each in found} == {
        ("all of it", DlqReason.UNRECOVERABLE)
    }


async def test_a_rate_limit_postpones_every_run_of_the_batch(bench):
    def later(runs):
        raise RateLimitError(retry_after_ms=5)

    assert await bench(later).all_of(some(2)) == [Postponed(5)] * 2


async def test_an_exit_ends_a_batch_and_not_the_process(bench):
    def leave(runs):
        raise SystemExit(3)

    it = bench(leave)
    for _ in range(2):
        found = await it.all_of(some(2))
        assert all(each.is_panic for each in found)


async def test_what_may_be_anothers_is_left_out_of_the_batch_and_not_told_as_begun(bench):
    it = bench()
    given = some(3)
    it.refused.add(given[1].delivery.entry_id)
    await it.all_of(given)
    assert it.calls == [[given[0], given[2]]]
    assert (it.doubted, it.started) == ([given[1]], [given[0], given[2]])


async def test_a_stop_waits_for_the_batch_that_runs_and_leaves_what_waits(bench):
    gate = threading.Event()

    def wait(runs):
        gate.wait(5)
        return [NOTHING] * len(runs)

    it = bench(wait, size=2)
    given = some(3)
    it.executor.submit(given)
    await eventually(lambda: it.calls)
    assert it.executor.take_waiting() == given[2:]
    ending = asyncio.create_task(it.executor.end(60))
    gate.set()
    assert await ending == []
    assert list(it.outcomes) == given[:2]


async def test_a_batch_that_does_not_end_by_the_deadline_is_cut_off_whole(bench):
    gate = threading.Event()
    it = bench(lambda runs: gate.wait(5) and [NOTHING] * len(runs), size=2)
    given = some(2)
    it.executor.submit(given)
    await eventually(lambda: it.calls)
    cut_off = await it.executor.end(0)
    gate.set()
    assert sorted(map(id, cut_off)) == sorted(map(id, given))
    assert it.outcomes == {}


# --- slips of ours


@pytest.mark.parametrize("error", [RuntimeError("a slip"), asyncio.CancelledError()])
@pytest.mark.parametrize("stage", ["begin", "end"])
async def test_a_run_that_cannot_be_begun_or_settled_is_let_go_alone_and_the_slot_goes_on(
    bench, caplog, stage, error
):
    it = bench(size=3)
    upset, *others = some(3)
    (it.upsets_begin if stage == "begin" else it.upsets_end)[upset] = error
    it.executor.submit([upset])
    assert await it.all_of(others) == [NOTHING] * 2
    assert await it.all_of(some(3)) == [NOTHING] * 3
    assert it.slipped == [upset]
    assert (it.executor.running, it.executor.free) == (0, 3)
    (record,) = caplog.records
    assert "could not be settled and will run again" in record.getMessage()


@pytest.mark.parametrize("answer", [[NOTHING], [NOTHING] * 3, None])
async def test_a_function_that_does_not_answer_for_each_has_failed_for_all(bench, answer):
    it = bench(lambda runs: answer, size=2)
    outcomes = await it.all_of(some(2))
    assert [type(each) for each in outcomes] == [Failed, Failed]
