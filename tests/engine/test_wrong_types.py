"""Something else stands at a key of the queue: what cannot be done says where, no job is lost."""

import inspect
from collections import Counter
from contextlib import contextmanager
from dataclasses import fields

import pytest

from chasquimq import ChasquiError, MissedFiresPolicy, Queue, RepeatPattern, UnrecoverableError
from chasquimq.broker import runs
from chasquimq.broker.runs import Memory, RunJob
from chasquimq.broker.stream import Telling
from chasquimq.wire.envelope import encode
from chasquimq.wire.keys import QueueKeys
from tests.support.builders import an_envelope
from tests.support.disguise import bring_back, hide
from tests.support.eventually import eventually
from tests.support.scene import Scene

ONCE = [each.name for each in fields(QueueKeys) if each.name not in {"name", "tag"}]
OF_ONE = [name for name, _ in inspect.getmembers(QueueKeys, inspect.isfunction) if name[0] != "_"]
EVERY_MS = 100
RUN = "a-run"
# Bells and locks, and what is only looked at for being there, or written over, refuse nobody.
NEVER_REFUSE = {
    "wake", "repeat_wake", "resumed", "paused", "limiter", "promoter_lock",
    "scheduler_lock", "stalled_lock", "dedup_marker", "trace", "progress", "stalls", "fleet",
}  # fmt: skip


class Tracer:
    """Jobs carry something to their runs."""

    @contextmanager
    def adding(self, _):
        yield b"00-11111111111111111111111111111111-2222222222222222-01"

    @contextmanager
    def running(self, _, carried):
        yield


class Party:
    """A queue, what was asked of it, and what became of that."""

    def __init__(self, server, queue_name):
        self.scene = Scene(server, queue_name)
        self.queue = Queue(queue_name, redis_url=server.socket_url, tracing=Tracer())
        self.keys = self.scene.keys
        self.refused = []
        self.owed = set()
        self.done = Counter()
        self.hopeless = set()
        self.recurring = set()

    def planted(self, kind):
        """The keys of a kind that whoever asks below comes to."""
        if kind in ONCE:
            return [getattr(self.keys, kind)]
        ids = [f"{n}-{what}" for n in range(3) for what in ("now", "later", "flaky", "hopeless")]
        ids += [*self.recurring, RUN, self.queue._sender.producing.producer_id]  # noqa: SLF001
        return [getattr(self.keys, kind)(each) for each in ids]

    async def handler(self, job):
        # Of when it asked: what was refused while a key was hidden may be heard of afterwards.
        refused = self.refused
        try:
            await job.update_progress(50)
            await job.log("half way")
        except ChasquiError as error:
            refused.append(error)
        if job.name == "flaky" and job.attempt == 1:
            message = "not yet"
            raise RuntimeError(message)
        if job.name == "hopeless":
            message = "never"
            raise UnrecoverableError(message)
        self.done[job.id] += 1
        return job.id

    async def ask(self, asking):
        try:
            return await asking
        except ChasquiError as error:
            self.refused.append(error)
            return None

    async def ask_for_all(self, n):
        """Everything that a producer can ask for, and what the engine does for it."""
        queue, ask = self.queue, self.ask
        options = {"job_id": f"{n}-now"}, {"job_id": f"{n}-later", "delay_ms": 20}, {}
        added = [await ask(queue.add("quick", n, **each)) for each in options]
        added.append(await ask(queue.add("flaky", n, job_id=f"{n}-flaky")))
        added += await ask(queue.add_bulk([{"name": "quick", "data": n}] * 3)) or ()
        hopeless = await ask(queue.add("hopeless", n, job_id=f"{n}-hopeless"))
        # Whatever stands at its marker, an id is taken.
        self.owed |= {job.id for job in added if job and not job.deduplicated}
        self.hopeless |= {job.id for job in (hopeless,) if job and not job.deduplicated}
        await ask(self.add_of_run(f"{n}-of-run"))
        await ask(queue.pause())
        await ask(queue.resume())
        await ask(queue.cancel_delayed(f"{n}-none"))
        await ask(queue.get_outcome(f"{n}-now"))
        await ask(queue.get_job_logs(f"{n}-now"))
        await ask(queue.get_job_counts())
        await ask(self.recur("rare", 3_600_000))

    async def recur(self, name, every_ms):
        job = await self.queue.upsert_repeatable_job(
            name, 0, repeat=RepeatPattern.every(every_ms),
            missed_fires=MissedFiresPolicy.fire_all(1_000),
        )  # fmt: skip
        self.recurring.add(job.id)

    async def add_of_run(self, job_id):
        run = self.queue._sender.run  # noqa: SLF001 -- only Spark adds so
        job = RunJob(job_id, encode(an_envelope(0, id=job_id)), "quick")
        telling, memory = Telling(0, 0), Memory(60, 60)
        added = await run(
            runs.add(self.keys, RUN, [job], limit=1_000, memory=memory, telling=telling)
        )
        assert added == "1"
        self.owed.add(job_id)
        await run(runs.pace(self.keys, RUN, 1, 1_000))
        await run(runs.note(self.keys, RUN, "of this", 60, step=1))

    def is_settled(self):
        return self.owed <= set(self.done) and self.scene.is_empty()

    def windows(self):
        return sorted(int(each.rpartition("@")[2]) for each in self.done if "@" in each)


@pytest.fixture
async def party(server, queue_name):
    party = Party(server, queue_name)
    yield party
    await party.queue.close()
    await party.scene.queue.close()


@pytest.mark.servers("valkey", "redis-6.2", "redis-8.6")
@pytest.mark.parametrize("kind", [*ONCE, *OF_ONE])
async def test_where_something_else_stands_no_job_is_lost_and_who_is_refused_is_told_where(
    party, caplog, kind
):
    def is_felt():
        is_passed = party.owed <= set(party.done) and len(party.windows()) > windows + 2
        return kind == "paused" or is_passed or "WRONGTYPE" in caplog.text

    run, scene = party.scene.client.execute_command, party.scene
    traced = {"tracing": Tracer(), "scheduler_tick_ms": 50}
    limited = {**traced, "rate_limit_max": 1_000}
    async with scene.working(party.handler, **traced), scene.working(party.handler, **limited):
        await party.recur("tick", EVERY_MS)
        await party.ask_for_all(0)
        assert not party.refused
        hidden, windows = party.planted(kind), len(party.windows())
        for key in hidden:
            hide(run, party.keys, key)
        await party.ask_for_all(1)
        await eventually(is_felt)
        for key in hidden:
            bring_back(run, key)
        while_hidden, party.refused = party.refused, []
        await party.ask_for_all(2)
        assert not party.refused
        windows = len(party.windows())
        await eventually(lambda: len(party.windows()) > windows + 2)
        for each in party.recurring:
            await party.queue.remove_repeatable_by_key(each)
        await eventually(party.is_settled, 20)

    names = [key.decode() for key in hidden]
    for error in while_hidden:
        assert error.kind == "WRONGTYPE"
        assert any(name in str(error) for name in names), str(error)
    assert not (while_hidden and kind in NEVER_REFUSE)
    assert set(party.done.values()) == {1}
    windows = party.windows()
    assert windows == list(range(windows[0], windows[-1] + 1, EVERY_MS))
    letters = {letter["job_id"] for letter in await scene.dead()}
    assert letters == party.hopeless
    assert not {f"{n}-none" for n in range(3)} & set(party.done)
