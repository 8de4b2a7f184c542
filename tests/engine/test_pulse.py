"""What the sink is told about a worker as a whole."""

import asyncio

from chasquimq.clock import ManualClock
from chasquimq.engine import pulse as pulse_module
from chasquimq.engine.pulse import Pulse, Vitals
from chasquimq.metrics import (
    JobOutcome,
    LeasesRenewed,
    NoopSink,
    ReaderBatch,
    Reconnected,
    WorkerPulse,
)
from tests.support.eventually import eventually
from tests.support.sink import RecordingSink


def vitals(**changes):
    usual = {
        "is_connected": True,
        "is_full": False,
        "last_read_age_ms": 1_000,
        "in_flight": 0,
        "running": 0,
        "leases_renewed": 0,
        "leases_lost": 0,
        "reconnects": 0,
    }
    return Vitals(**usual | changes)


async def test_a_step_reports_how_the_worker_stands_and_what_has_changed():
    seen = iter(
        [
            vitals(in_flight=3, running=2),
            vitals(leases_renewed=5, leases_lost=1, reconnects=2),
            vitals(leases_renewed=5, leases_lost=1, reconnects=2, last_read_age_ms=None),
        ]
    )
    sink = RecordingSink()
    pulse = Pulse(sink, lambda: next(seen), consumer_id="c-1", clock=ManualClock(10_000))
    for _ in range(3):
        pulse.step()
    assert sink.reports == [
        WorkerPulse("c-1", 3, 2, 9_000),
        WorkerPulse("c-1", 0, 0, 9_000),
        LeasesRenewed(5, 1),
        Reconnected(2),
        WorkerPulse("c-1", 0, 0, None),
    ]


async def test_ending_what_never_began_is_harmless():
    sink = RecordingSink()
    await Pulse(sink, vitals, consumer_id="c-1", clock=ManualClock()).end()
    assert sink.reports == []


async def test_a_pulse_goes_on_after_a_look_that_failed(monkeypatch, caplog):
    monkeypatch.setattr(pulse_module, "_EVERY_S", 0)
    looks = [RuntimeError("a slip"), RuntimeError("a slip"), vitals(in_flight=3)]

    def look():
        seen = looks.pop(0) if len(looks) > 1 else looks[0]
        if isinstance(seen, Exception):
            raise seen
        return seen

    sink = RecordingSink()
    pulse = Pulse(sink, look, consumer_id="c-1", clock=ManualClock())
    pulse.start()
    assert (await sink.next(WorkerPulse)).in_flight == 3
    await pulse.end()
    assert caplog.text.count("the worker's pulse was not reported") == 1


async def test_a_worker_tells_what_is_in_flight_and_in_the_end_that_nothing_is(scene):
    gate = asyncio.Event()

    async def handler(job):
        await gate.wait()

    await scene.queue.add("n", 1)
    async with scene.working(handler, consumer_id="c-1") as sink:
        await sink.next(ReaderBatch)
        await eventually(
            lambda: [p for p in sink.seen(WorkerPulse) if p.in_flight == p.running == 1]
        )
        gate.set()
        await sink.next(JobOutcome)
    assert sink.seen(WorkerPulse)[-1] == WorkerPulse("c-1", 0, 0, None)


async def test_renewed_leases_and_connections_that_came_back_are_reported(scene):
    gate = asyncio.Event()

    async def handler(job):
        await gate.wait()

    await scene.queue.add("n", 1)
    async with scene.working(handler, lease_ms=300) as sink:
        renewed = await sink.next(LeasesRenewed)
        assert (renewed.renewed > 0, renewed.lost) == (True, 0)
        for client in scene.client.client_list():
            if "chasquimq-worker" in client["name"]:
                scene.client.client_kill_filter(_id=client["id"])
        assert (await sink.next(Reconnected)).count > 0
        gate.set()
        await sink.next(JobOutcome)


async def test_a_sink_that_fails_for_everything_costs_no_job(scene, caplog):
    class Broken(NoopSink):
        def __getattribute__(self, name):
            if name.startswith("_"):
                return super().__getattribute__(name)

            def fail(event):
                raise RuntimeError

            return fail

    runs = []

    async def handler(job):
        runs.append(job.attempt)
        if job.data == "shaky" and job.attempt == 1:
            raise RuntimeError
        if job.data == "bad":
            raise RuntimeError

    for data in ("fine", "shaky", "bad"):
        await scene.queue.add("n", data)
    async with scene.working(handler, metrics=Broken()):
        await eventually(scene.is_empty)
    assert sorted(runs) == [1, 1, 1, 2, 2, 3]
    assert len(await scene.dead()) == 1
    assert any("the metrics sink failed" in record.message for record in caplog.records)
