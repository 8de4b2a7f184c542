"""Entries that no handler can run: they go to the DLQ as they are, and hold nobody up."""

import pytest

from chasquimq.metrics import DlqRouted, JobOutcome
from chasquimq.wire.codec import pack
from chasquimq.wire.envelope import encode
from tests.support.builders import an_envelope
from tests.support.eventually import eventually

BIG = encode(an_envelope("x" * 500))

POISON = {
    "garbage": ({"d": b"\xc1\xff garbage", "n": "g"}, "decode_failed", "", None),
    "empty": ({"d": b""}, "decode_failed", "", None),
    "no-envelope": ({"x": b"1"}, "malformed", "", "missing or non-bytes payload field"),
    "short": ({"d": pack(["j"])}, "decode_failed", "", None),
    "long": ({"d": pack(["j", b"", 1, 0, None, None])}, "decode_failed", "", None),
    "oversize": ({"d": BIG, "n": "big"}, "oversize_payload", "big", None),
    "later-version": ({"d": pack({"v": 2}), "n": "later"}, "decode_failed", "", None),
    "more-slots": ({"d": pack(["j", b"\xc0", 1, 0, None, {"v": 2}])}, "decode_failed", "", None),
    "bad-override": ({"d": pack(["j", b"\xc0", 1, 0, "often"])}, "decode_failed", "", None),
}


@pytest.fixture
def ran():
    return []


@pytest.fixture
def handler(ran):
    async def handler(job):
        ran.append(job.data)

    return handler


@pytest.mark.parametrize("kind", POISON)
async def test_an_entry_no_handler_can_run_goes_to_the_dlq_as_it_is(scene, handler, ran, kind):
    fields, reason, name, detail = POISON[kind]
    entry_id = scene.add_raw(fields)
    await scene.queue.add("n", "behind")
    async with scene.working(handler, max_payload_bytes=400, consumer_id="c-1") as sink:
        assert await sink.next(DlqRouted) == DlqRouted(reason, 0, name)
        await sink.next(JobOutcome)
    assert ran == ["behind"]
    assert scene.is_empty()
    (letter,) = await scene.dead()
    assert (letter["source_id"], letter["reason"]) == (entry_id, reason)
    assert letter["payload"] == fields.get("d", b"")
    assert (letter["name"], letter["detail"]) == (name, detail)
    assert (letter["attempts"], letter["consumer"]) == (0, "c-1")
    assert letter["failed_at"] > 0
    (event,) = scene.events("dlq")
    assert (event.job_id, event.fields["attempt"], event.fields["reason"]) == (None, 0, reason)


async def test_a_stream_full_of_poison_does_not_hold_up_the_job_behind_it(scene, handler, ran):
    for n in range(150):
        fields, *_ = list(POISON.values())[n % len(POISON)]
        scene.add_raw(fields)
    await scene.queue.add("n", "last")
    async with scene.working(handler, concurrency=2, max_payload_bytes=400) as sink:
        await sink.next(JobOutcome)
        await sink.take(DlqRouted, 150)
    assert ran == ["last"]
    assert scene.is_empty()
    assert len(await scene.dead()) == 150


async def test_several_workers_bury_an_entry_once(scene, handler):
    workers = [scene.working(handler, max_payload_bytes=400) for _ in range(3)]
    async with workers[0] as one, workers[1] as two, workers[2] as three:
        for _ in range(20):
            scene.add_raw(POISON["garbage"][0])
        await scene.queue.add_bulk([{"name": "n", "data": n} for n in range(20)])
        seen = [one, two, three]

        def count(kind):
            return sum(len(sink.seen(kind)) for sink in seen)

        await eventually(lambda: (count(DlqRouted), count(JobOutcome)) == (20, 20))
    assert len(await scene.dead()) == 20
    assert scene.is_empty()


async def test_a_pending_entry_that_was_deleted_does_not_wedge_the_worker(scene, handler, ran):
    scene.client.xgroup_create(scene.keys.stream, "default", "0", mkstream=True)
    gone = scene.add_raw({"d": encode(an_envelope())})
    scene.client.xreadgroup("default", "c-dead", {scene.keys.stream: ">"})
    scene.client.xdel(scene.keys.stream, gone)
    scene.client.xclaim(scene.keys.stream, "default", "c-dead", 0, [gone], idle=60_000, justid=True)
    async with scene.working(handler, lease_ms=300) as sink:
        await scene.queue.add("n", "alive")
        await sink.next(JobOutcome)
    assert ran == ["alive"]
