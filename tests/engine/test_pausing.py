"""Pauses: of a queue, by a key that anybody may set, and of one worker."""

import asyncio

from chasquimq.clock import SYSTEM_CLOCK
from chasquimq.metrics import JobOutcome, PromoterTick
from tests.support.eventually import eventually
from tests.support.scene import running, soon
from tests.support.sink import RecordingSink

# Far from anything that takes milliseconds; near enough not to hold a failing test up.
LONG_BLOCK = {"read_block_ms": 60_000}
AT_ONCE_S = 0.15


async def quick(job):
    return None


def pause_queue(scene):
    scene.client.set(scene.keys.paused, "by hand")


async def resume_queue(scene):
    assert await scene.queue.resume()


async def test_a_reader_that_was_blocked_takes_no_job_added_during_a_pause(scene):
    ran = []

    async def handler(job):
        ran.append((job.data, job.attempt))

    async with scene.working(handler, **LONG_BLOCK) as sink:
        await eventually(scene.is_reading)
        pause_queue(scene)
        for number in range(5):
            await scene.queue.add("n", number)
        await eventually(lambda: scene.pending() == [] and not scene.is_reading())
        assert (ran, scene.depth()) == ([], 5)
        assert (await scene.queue.counts()).waiting == 5

        await resume_queue(scene)
        await sink.take(JobOutcome, 5)
    assert ran == [(number, 1) for number in range(5)]
    assert scene.is_empty()


async def test_jobs_keep_their_order_over_a_pause_with_several_readers(scene):
    ran = ([], [])

    def into(mine):
        async def handler(job):
            mine.append(job.data)

        return handler

    workers = [scene.worker(into(mine), concurrency=1) for mine in ran]
    async with running(workers[0]), running(workers[1]):
        for worker in workers:
            await soon(worker.wait_until_ready())
        pause_queue(scene)
        for number in range(20):
            await scene.queue.add("n", number)
        await eventually(lambda: scene.pending() == [])
        assert ran == ([], [])
        await resume_queue(scene)
        await eventually(lambda: len(ran[0]) + len(ran[1]) == 20)
    # How far the two are apart is the scheduler's business; that neither gets an older job
    # after a newer one is ours. Only the first two, which the two blocked readers had in
    # their hands when they learned of the pause, may change places with one another.
    assert [sorted(mine, key=lambda n: max(n, 1)) for mine in ran] == list(ran)
    assert sorted(ran[0] + ran[1]) == list(range(20))


async def test_a_worker_that_starts_on_a_paused_queue_takes_nothing(scene):
    await scene.queue.add("n", 1)
    pause_queue(scene)
    worker = scene.worker(quick, sink=(sink := RecordingSink()))
    async with running(worker):
        await soon(worker.wait_until_ready())
        assert worker.is_paused()
        assert scene.pending() == []
        await resume_queue(scene)
        await sink.next(JobOutcome)
        assert not worker.is_paused()


async def test_the_end_of_a_pause_wakes_readers_at_once(scene):
    async with scene.working(quick, **LONG_BLOCK) as sink:
        await eventually(scene.is_reading)
        waits = []
        for _ in range(3):
            pause_queue(scene)
            await scene.queue.add("n", 1)
            await eventually(lambda: scene.pending() == [] and not scene.is_reading())
            began = SYSTEM_CLOCK.monotonic_us()
            await resume_queue(scene)
            await sink.next(JobOutcome)
            waits.append((SYSTEM_CLOCK.monotonic_us() - began) / 1_000_000)
            await eventually(scene.is_reading)
    assert min(waits) < AT_ONCE_S, waits


async def test_a_pause_that_is_deleted_by_hand_ends_soon(scene):
    async with scene.working(quick, **LONG_BLOCK) as sink:
        await eventually(scene.is_reading)
        pause_queue(scene)
        await scene.queue.add("n", 1)
        await eventually(lambda: scene.pending() == [] and not scene.is_reading())
        scene.client.delete(scene.keys.paused)
        await sink.next(JobOutcome)


async def test_jobs_that_run_when_the_queue_is_paused_finish_and_read_ahead_goes_back(scene):
    gate, begun = asyncio.Event(), []

    async def handler(job):
        begun.append(job.data)
        await gate.wait()

    async with scene.working(handler, concurrency=2) as sink:
        await scene.queue.add_bulk([{"name": "n", "data": n} for n in range(4)])
        await eventually(lambda: len(begun) == 2)
        pause_queue(scene)
        gate.set()
        await sink.take(JobOutcome, 2)
        await eventually(lambda: scene.depth() == 2 and scene.pending() == [])
    assert begun == [0, 1]
    assert scene.events("failed") == []


async def test_delayed_jobs_are_promoted_during_a_pause_and_wait(scene):
    pause_queue(scene)
    async with scene.working(quick) as sink:
        await scene.queue.add("later", 1, delay_ms=20)
        while (await sink.next(PromoterTick)).promoted == 0:
            pass
        assert (scene.depth(), scene.delayed(), scene.pending()) == (1, 0, [])
        await resume_queue(scene)
        await sink.next(JobOutcome)


async def test_a_stop_during_a_pause_is_prompt(scene):
    pause_queue(scene)
    worker = scene.worker(quick, **LONG_BLOCK)
    task = asyncio.create_task(worker.run())
    await soon(worker.wait_until_ready())
    await worker.close()
    await soon(task)


# --- of a worker


async def test_a_paused_worker_takes_nothing_and_leaves_jobs_to_others(scene):
    ran = []

    async def here(job):
        ran.append("here")

    async def there(job):
        ran.append("there")

    worker = scene.worker(here, **LONG_BLOCK)
    async with running(worker):
        await eventually(scene.is_reading)
        worker.pause()
        assert worker.is_paused()
        await eventually(lambda: not scene.is_reading())
        await scene.queue.add("n", 1)
        async with scene.working(there) as other:
            await other.next(JobOutcome)
        assert ran == ["there"]
        await scene.queue.add("n", 2)
        worker.resume()
        await eventually(lambda: ran == ["there", "here"])
        assert not worker.is_paused()


async def test_a_worker_paused_before_it_runs_starts_paused(scene):
    worker = scene.worker(quick, sink=(sink := RecordingSink()))
    worker.pause()
    await scene.queue.add("n", 1)
    async with running(worker):
        await soon(worker.wait_until_ready())
        assert scene.pending() == []
        worker.resume()
        await sink.next(JobOutcome)


async def test_what_a_paused_worker_had_read_and_not_begun_goes_to_others(scene):
    gate, began = asyncio.Event(), asyncio.Event()
    ran = []

    async def slow(job):
        if job.data >= 2_000:
            began.set()
            await gate.wait()

    async def other(job):
        ran.append((job.data, job.attempt))

    await scene.queue.add_bulk([{"name": "n", "data": n} for n in range(2_010)])
    worker = scene.worker(slow, concurrency=1)
    async with running(worker):
        await soon(began.wait())
        worker.pause()
        async with scene.working(other) as free:
            await free.take(JobOutcome, 9)
        gate.set()
    assert sorted(ran) == [(n, 1) for n in range(2_001, 2_010)]


async def test_pausing_and_resuming_again_and_again_loses_nothing(scene):
    ran = []

    async def handler(job):
        ran.append(job.data)

    worker = scene.worker(handler)
    async with running(worker):
        await soon(worker.wait_until_ready())
        for number in range(100):
            await scene.queue.add("n", number)
            if number % 3 == 0:
                worker.pause()
                worker.resume()
            if number % 5 == 0:
                pause_queue(scene)
            if number % 5 == 2:
                await resume_queue(scene)
        await eventually(lambda: len(ran) >= 100)
    assert sorted(ran) == list(range(100))
    assert scene.is_empty()
