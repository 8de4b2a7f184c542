"""What is left when it is quiet: lets the queue drain, and looks where every job is."""

import asyncio
import time
from collections.abc import Iterable, Iterator

import redis

from chaos import recurring
from chaos.clocks import now_us
from chaos.faults.poison import BOGUS_SPEC, tail
from chaos.fleet import Fleet
from chaos.history import Added, Ceased, Found, Quiet, Record, Scroll, SetAside, Started
from chaos.stage import Stage
from chaos.workload import RECURRING_IN_THE_QUIET
from chasquimq import Counts, OutcomeStatus, Queue
from chasquimq.broker.results import Kept
from chasquimq.engine.outcomes import from_kept
from chasquimq.errors import DecodeError
from chasquimq.wire.codec import unpack
from chasquimq.wire.envelope import decode
from chasquimq.wire.keys import QueueKeys
from chasquimq.wire.member import decode_member
from tests.support.guards import sweep_keys

# Without any progress for so long, it is stuck. A lease, a lock and the longest backoff are less.
_STUCK_SECS = 60.0
_LOOK_S = 0.5
# Some 20 s: nothing is asked of a leader for 10 s after the last fault that named it.
_QUIET_FIRES = 32
_AT_ONCE = 1_000


def settle(stage: Stage, fleet: Fleet, keys: QueueKeys, scroll: Scroll) -> bool:
    """Let producers and recurring jobs end, and the queue drain; False if it does not."""
    fleet.retire(scroll, "producer")
    _let_recurring_fire(stage, fleet, keys, scroll)
    _let_new_ones_fire(stage, fleet, keys, scroll)
    scroll.write(Ceased(now_us()))
    asyncio.run(_end_recurring(stage, keys))
    counts, changed = None, time.monotonic()
    while time.monotonic() - changed < _STUCK_SECS:
        fleet.mend(scroll)
        now = asyncio.run(_counts(stage, keys))
        if now.waiting == now.active == now.delayed == 0:
            return True
        if now != counts:
            counts, changed = now, time.monotonic()
        time.sleep(_LOOK_S)
    return False


def _let_recurring_fire(stage: Stage, fleet: Fleet, keys: QueueKeys, scroll: Scroll) -> None:
    """Wait until each recurring job has fired once more, or will not.

    In a short run leaders may be frozen and servers away for most of the time: only now that it is
    quiet does it mean anything if one never fired.
    """
    first, began = asyncio.run(_next_fires(stage, keys)), time.monotonic()
    while time.monotonic() - began < _STUCK_SECS:
        fleet.mend(scroll)
        now = asyncio.run(_next_fires(stage, keys))
        if all(now.get(key) != at for key, at in first.items()):
            return
        time.sleep(_LOOK_S)


def _let_new_ones_fire(stage: Stage, fleet: Fleet, keys: QueueKeys, scroll: Scroll) -> None:
    """Store other recurring jobs, and wait until each has fired some times, or will not.

    While the nemesis is at work hardly a window comes under a leader to whom nothing is done: of
    few can it be said that they had to fire. Of these it can.
    """
    new, began = asyncio.run(_store_new_ones(stage, keys, scroll)), time.monotonic()
    while time.monotonic() - began < _STUCK_SECS:
        fleet.mend(scroll)
        fired = asyncio.run(_fired(stage, keys))
        if all(fired.get(key, 0) >= _QUIET_FIRES for key in new):
            return
        time.sleep(_LOOK_S)


async def _store_new_ones(stage: Stage, keys: QueueKeys, scroll: Scroll) -> set[str]:
    async with Queue(keys.name, redis_url=stage.url) as queue:
        return await recurring.store(queue, scroll, RECURRING_IN_THE_QUIET)


async def _fired(stage: Stage, keys: QueueKeys) -> dict[str, int]:
    async with Queue(keys.name, redis_url=stage.url) as queue:
        return {each.key: each.fired for each in await queue.get_repeatable_jobs()}


async def _next_fires(stage: Stage, keys: QueueKeys) -> dict[str, object]:
    async with Queue(keys.name, redis_url=stage.url) as queue:
        return {each.key: each.next_fire_ms for each in await queue.get_repeatable_jobs()}


async def _end_recurring(stage: Stage, keys: QueueKeys) -> None:
    async with Queue(keys.name, redis_url=stage.url) as queue:
        await queue.resume()
        for each in await queue.get_repeatable_jobs():
            await queue.remove_repeatable_by_key(each.key)
    # Those that cannot be read cannot be listed either.
    for number in range(5):
        key = BOGUS_SPEC + str(number).encode()
        stage.run("ZREM", keys.repeat, key)
        stage.run("DEL", keys.repeat_spec(key))


async def _counts(stage: Stage, keys: QueueKeys) -> Counts:
    async with Queue(keys.name, redis_url=stage.url) as queue:
        return await queue.counts()


def look(
    stage: Stage, keys: QueueKeys, history: Iterable[Record], *, is_drained: bool
) -> Iterator[Record]:
    """Where everything is. The queue's keys are deleted as the last of it."""
    job_ids = {record.job_id for record in history if isinstance(record, Added | Started)}
    yield from _in_stream(stage, keys)
    yield from _in_delayed(stage, keys)
    yield from _in_dlq(stage, keys)
    yield from _completed(stage, keys, sorted(job_ids))
    yield Quiet(is_drained, tuple(leftovers(stage.client(), keys)))


def _in_stream(stage: Stage, keys: QueueKeys) -> Iterator[Record]:
    for _, fields in stage.run("XRANGE", keys.stream, "-", "+"):
        if job_id := _job_id(fields.get(b"d", b"")):
            yield Found(job_id, "stream")


def _in_delayed(stage: Stage, keys: QueueKeys) -> Iterator[Record]:
    for member in stage.run("ZRANGE", keys.delayed, 0, -1):
        try:
            _, data = decode_member(member)
        except DecodeError:
            continue
        if job_id := _job_id(data):
            yield Found(job_id, "delayed")


def _in_dlq(stage: Stage, keys: QueueKeys) -> Iterator[Record]:
    for entry_id, fields in stage.run("XRANGE", keys.dlq, "-", "+"):
        data = fields.get(b"d", b"")
        if job_id := _job_id(data):
            at_ms = int(entry_id.partition(b"-")[0])
            yield Found(job_id, "dlq", call=unpack(decode(data).packed_data)["call"], ms=at_ms)
        else:
            yield SetAside(fields.get(b"source_id", b"").decode(), tail(data))


def _completed(stage: Stage, keys: QueueKeys, job_ids: list[str]) -> Iterator[Record]:
    """Those of which the outcome is kept.

    Not by `get_outcome`: that searches all dead letters for each job of which nothing is kept, and
    those were looked through already.
    """
    for at in range(0, len(job_ids), _AT_ONCE):
        some = job_ids[at : at + _AT_ONCE]
        values = stage.run("MGET", *map(keys.result, some))
        outcomes = stage.run("MGET", *map(keys.outcome, some))
        for job_id, value, outcome in zip(some, values, outcomes, strict=True):
            ended = from_kept(Kept(value, outcome))
            if ended.status in {OutcomeStatus.OK, OutcomeStatus.EXPIRED}:
                is_there = ended.status is OutcomeStatus.OK
                call = ended.value["call"] if ended.value else ""
                yield Found(job_id, "completed", is_there, call)


def leftovers(client: redis.Redis, keys: QueueKeys) -> Iterator[str]:
    """What should not be there when everything is settled. Deletes the keys of the queue."""
    groups = client.xinfo_groups(keys.stream) if client.exists(keys.stream) else []
    for group in groups:
        if group["pending"]:
            yield f"{group['pending']} deliveries are pending for nobody"
    for key in sweep_keys(client, keys.name):
        yield f"key {key} never expires"


def _job_id(data: bytes) -> str:
    """The id of the job in an envelope; empty if it is none."""
    try:
        return decode(data).id
    except DecodeError:
        return ""
