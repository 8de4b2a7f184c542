"""SIGTERM and SIGINT, as a supervisor or a terminal sends them."""

import signal

import pytest

from chasquimq.metrics import JobOutcome

pytestmark = pytest.mark.servers("redis-8.6", "redis-7.0")

LONG_LEASE_MS = 600_000


async def collect(scene, count, **options):
    """Let another worker run what is there: the data and attempts it saw."""
    ran = []

    async def handler(job):
        ran.append((job.name, job.data, job.attempt))

    async with scene.working(handler, claim_min_idle_ms=LONG_LEASE_MS, **options) as sink:
        await sink.take(JobOutcome, count)
    return sorted(ran)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_one_signal_finishes_what_runs_and_hands_the_rest_to_others(
    scene, start_worker, number
):
    fast = [{"name": "fast", "data": n} for n in range(500)]
    rest = [{"name": "rest", "data": n} for n in range(40)]
    await scene.queue.add_bulk([*fast, {"name": "hold", "data": 0}, *rest])
    worker = await start_worker(scene, concurrency=1, claim_min_idle_ms=LONG_LEASE_MS)
    await worker.until("started", name="hold")
    worker.send(number)
    await worker.until_logged(f"{number.name}: finishing 1 running jobs")
    # With leases of ten minutes only what was handed back can run now, and as a first attempt.
    assert await collect(scene, 40) == [("rest", n, 1) for n in range(40)]
    assert worker.told("ended", name="hold") == []
    worker.release()
    assert await worker.ended() == 0
    assert len(worker.told("ended", name="hold")) == 1
    assert worker.told("stopped")
    assert scene.is_empty()
    assert scene.consumers() == []


async def test_a_second_signal_stops_at_once_and_the_run_counts(scene, start_worker):
    await scene.queue.add("hold", 1)
    worker = await start_worker(scene, claim_min_idle_ms=LONG_LEASE_MS)
    await worker.until("started")
    worker.send(signal.SIGTERM)
    await worker.until_logged("SIGTERM: finishing 1 running jobs")
    worker.send(signal.SIGTERM)
    assert await worker.ended() == 0
    assert worker.told("ended") == []
    assert await collect(scene, 1) == [("hold", 1, 2)]


@pytest.mark.parametrize(("name", "plain"), [("stubborn", False), ("hold", True)])
async def test_a_second_signal_ends_the_process_even_if_a_handler_does_not(
    scene, start_worker, name, plain
):
    await scene.queue.add(name, 1)
    worker = await start_worker(scene, plain=plain, claim_min_idle_ms=LONG_LEASE_MS)
    await worker.until("started")
    worker.send(signal.SIGTERM)
    await worker.until_logged("SIGTERM: finishing 1 running jobs")
    worker.send(signal.SIGTERM)
    await worker.until("stopped")
    if name == "stubborn":
        worker.release()  # `asyncio.run` itself waits for tasks that refuse to be cancelled
    assert await worker.ended() == 0
    assert await collect(scene, 1) == [(name, 1, 2)]


async def test_one_signal_to_a_worker_that_is_closing_lets_it_finish(scene, start_worker):
    await scene.queue.add("hold", 1)
    worker = await start_worker(scene)
    await worker.until("started")
    await worker.close_workers()
    worker.send(signal.SIGTERM)
    await worker.until_logged("SIGTERM: finishing 1 running jobs")
    worker.release()
    assert await worker.ended() == 0
    assert len(worker.told("ended")) == 1
    assert scene.is_empty()


async def test_one_signal_stops_every_worker_of_a_process(scene, start_worker):
    await scene.queue.add_bulk([{"name": "hold", "data": n} for n in range(2)])
    process = await start_worker(scene, workers=2, concurrency=1)
    await process.until("started", 2)
    process.send(signal.SIGTERM)
    process.release()
    assert await process.ended() == 0
    assert len(process.told("ended")) == 2
    assert scene.is_empty()


async def test_signals_are_left_alone_if_told_so(scene, start_worker):
    worker = await start_worker(scene, handle_signals=False)
    await scene.queue.add("hold", 1)
    await worker.until("started")
    worker.send(signal.SIGTERM)
    assert await worker.ended() == -signal.SIGTERM


async def test_an_idle_worker_ends_at_once(scene, start_worker):
    worker = await start_worker(scene, read_block_ms=600_000)
    await scene.queue.add("quick", 1)
    await worker.until("ended")
    worker.send(signal.SIGTERM)
    assert await worker.ended() == 0
