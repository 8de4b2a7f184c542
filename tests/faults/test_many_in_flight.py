"""A link that breaks while more adds are under way than a server remembers: each is in once."""

import asyncio
from collections import Counter

import pytest

from chasquimq import Queue
from chasquimq.broker.ring import IDMP_CALLS, SLOTS
from chasquimq.wire.envelope import decode
from chasquimq.wire.keys import QueueKeys
from chasquimq.wire.member import decode_member
from tests.support.eventually import eventually
from tests.support.proxy import proxy_before

# More calls than a ring has places, and than the ids that `XADD IDMP` is remembered by.
MANY = SLOTS + 200
SINGLE = 300


async def one_a_turn(queue):
    """Single adds that are not joined: each leaves before the next is asked for."""
    adding = []
    for number in range(SINGLE):
        adding.append(asyncio.ensure_future(queue.add("n", number)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    return adding


def at_once(add):
    async def all_at_once(queue):
        return [asyncio.ensure_future(add(queue, number)) for number in range(MANY)]

    return all_at_once


ADDS = {
    "single": one_a_turn,
    "bulks": at_once(lambda queue, n: queue.add_bulk([{"name": "n", "data": n}] * 2)),
    "delayed": at_once(lambda queue, n: queue.add("n", n, delay_ms=3_600_000)),
    "unique": at_once(lambda queue, n: queue.add("n", n, job_id=f"u{n}")),
}  # fmt: skip


@pytest.fixture
def proxy(server):
    with proxy_before(server.port) as made:
        yield made


@pytest.mark.parametrize("kind", ADDS)
async def test_adds_that_are_all_sent_again_are_in_once(server, proxy, queue_name, kind):
    keys, client = QueueKeys(queue_name), server.client()

    def stored():
        return client.xlen(keys.stream) + client.zcard(keys.delayed)

    async with Queue(queue_name, redis_url=proxy.url) as queue:
        # Connected, and the server has the scripts.
        for each in ({}, {"delay_ms": 3_600_000}, {"job_id": "u"}):
            await queue.add("before", 0, **each)
        await queue.add_bulk([{"name": "before", "data": 0}] * 2)
        before = stored()
        proxy.hold_answers()
        adding = await ADDS[kind](queue)
        wanted = len(adding) * (2 if kind == "bulks" else 1)
        await eventually(lambda: stored() == before + wanted)
        proxy.cut()
        proxy.pass_answers()
        added = await asyncio.gather(*adding)

    envelopes = [fields[b"d"] for _, fields in client.xrange(keys.stream)]
    envelopes += [decode_member(member)[1] for member in client.zrange(keys.delayed, 0, -1)]
    found = Counter(decode(each).id for each in envelopes)
    assert (len(found), set(found.values())) == (before + wanted, {1})
    if kind == "single" and server.is_modern:
        assert proxy.count(b"IDMP") >= IDMP_CALLS  # the others went by the script
    if kind == "unique":
        assert not any(job.deduplicated for job in added)
