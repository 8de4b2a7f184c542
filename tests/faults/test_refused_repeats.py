"""An add whose answer was lost and whose repeat is refused: nobody is told that it was refused."""

import asyncio

import pytest

from chasquimq import Queue, SyncQueue
from chasquimq.broker import delayed, stream
from chasquimq.broker.blocking import BlockingConnection
from chasquimq.broker.call import Call, command, together
from chasquimq.broker.ring import Ring
from chasquimq.broker.stream import Capacity, NewJob, Telling
from chasquimq.broker.url import parse_url
from chasquimq.errors import OutcomeUnknownError, ServerReplyError
from chasquimq.wire.keys import QueueKeys
from tests.support.eventually import eventually
from tests.support.flavours import FLAVOURS, callers, short_options
from tests.support.proxy import proxy_before

LATER_MS = 3_600_000
ADDS = {
    "single": lambda queue: [queue.add("n", 1)],
    "joined": lambda queue: [queue.add("n", number) for number in range(10)],
    "bulk": lambda queue: [queue.add_bulk([{"name": "n", "data": 1}] * 5)],
    "delayed": lambda queue: [queue.add("n", 1, delay_ms=LATER_MS)],
    "unique": lambda queue: [queue.add("n", 1, job_id="chosen")],
    "mixed": lambda queue: [
        queue.add_bulk([{"name": "n", "data": 1}, {"name": "n", "data": 1, "delay_ms": LATER_MS}])
    ],
}
WRITES = ("evalsha", "xadd")


class Guarded:
    """A server that can be told to refuse what adds, and a proxy before it."""

    def __init__(self, own, proxy, queue_name):
        self.proxy = proxy
        self.admin = own.client()
        self.keys = QueueKeys(queue_name)
        self.set_user("on", ">pw", "~*", "+@all")
        self.url = proxy.url.replace("redis://", "redis://app:pw@")

    def refuse(self):
        self.set_user(*(f"-{each}" for each in WRITES))

    def allow(self):
        self.set_user(*(f"+{each}" for each in WRITES))

    def stored(self):
        return self.admin.xlen(self.keys.stream) + self.admin.zcard(self.keys.delayed)

    def refusals(self):
        return sum(rejected(self.admin, each) for each in WRITES)

    async def lose_and_refuse(self, wanted):
        """Let the adds under way be stored, cut their answers off, and refuse their repeats."""
        await eventually(lambda: self.stored() == wanted)
        self.refuse()
        self.proxy.cut()
        self.proxy.pass_answers()
        await eventually(lambda: self.refusals() > 1)

    def set_user(self, *rules):
        self.admin.execute_command("ACL", "SETUSER", "app", *rules)


@pytest.fixture(params=["valkey", "redis-8.6"])
def guarded(request, start_server, queue_name):
    own = start_server(request.param)
    with proxy_before(own.port) as proxy:
        yield Guarded(own, proxy, queue_name)


@pytest.mark.parametrize("kind", ADDS)
async def test_an_add_whose_repeat_is_refused_is_asked_for_until_the_truth_is_known(
    guarded, queue_name, kind
):
    async with Queue(queue_name, redis_url=guarded.url) as queue:
        for each in ADDS.values():  # the server has the scripts
            await asyncio.gather(*each(queue))
        guarded.admin.delete(guarded.keys.stream, guarded.keys.delayed)
        for key in guarded.admin.scan_iter("*chosen*"):
            guarded.admin.delete(key)
        wanted = {"joined": 10, "bulk": 5, "mixed": 2}.get(kind, 1)
        guarded.proxy.hold_answers()
        adding = [asyncio.ensure_future(each) for each in ADDS[kind](queue)]
        await guarded.lose_and_refuse(wanted)
        guarded.allow()
        added = await asyncio.gather(*adding)
        assert guarded.stored() == wanted
        if kind == "unique":
            assert not added[0].deduplicated


def calls(keys):
    """The calls that adds are made of."""
    one = NewJob("a", b"\x95", "n")
    later = delayed.DelayedJob("b", b"\x95", "n", LATER_MS)
    telling = Telling(1, 100)
    ring = Ring("p")
    [first, second, third] = [ring.take()[0] for _ in range(3)]
    batch = stream.add(
        keys, list(one), ticket=first, capacity=Capacity(0), telling=telling, whole=True
    )
    unique = stream.add_unique(
        keys, [one], ticket=second, capacity=Capacity(0), telling=telling, marker_ttl_s=9
    )
    scheduled = delayed.schedule(keys, [later], ticket=third, telling=telling, grace_s=9)
    return {
        "direct": stream.add_one(keys, one, producer_id="p", telling=telling, counting=True),
        "batch": batch,
        "unique": unique,
        "scheduled": scheduled,
        "together": together([batch, scheduled]),
    }


@pytest.fixture(params=FLAVOURS)
async def dial(request):
    async with callers(request.param) as open_one:
        yield open_one


@pytest.mark.parametrize("kind", ["direct", "batch", "unique", "scheduled", "together"])
async def test_an_add_whose_repeat_stays_refused_ends_with_outcome_unknown(guarded, dial, kind):
    caller = dial(guarded.url, short_options(patience_ms=1_200))
    if kind == "direct" and not (await caller.ready()).has_idmp:
        pytest.skip("the server has no XADD IDMP")
    add = calls(guarded.keys)[kind]
    for script in add.scripts:
        guarded.admin.script_load(script.source)
    await caller.ready()
    guarded.proxy.hold_answers()
    running = asyncio.ensure_future(caller.run(add))
    await guarded.lose_and_refuse(2 if kind == "together" else 1)
    with pytest.raises(OutcomeUnknownError, match=r"may or may not .*again and again: NOPERM"):
        await running


async def test_an_add_is_asked_for_on_while_the_server_will_not_have_its_script(guarded, dial):
    caller = dial(guarded.url)
    add = calls(guarded.keys)["batch"]
    guarded.admin.script_load(add.scripts[0].source)
    await caller.ready()
    guarded.proxy.hold_answers()
    running = asyncio.ensure_future(caller.run(add))
    await eventually(lambda: guarded.stored() == 1)
    guarded.set_user("-script")
    guarded.admin.script_flush()
    guarded.proxy.cut()
    guarded.proxy.pass_answers()
    await eventually(lambda: rejected(guarded.admin, "script|load") > 1)
    guarded.set_user("+script")
    await running
    assert guarded.stored() == 1


def rejected(client, command):
    """How often a server has refused a command to somebody who may not give it."""
    stats = client.info("commandstats")
    return stats.get(f"cmdstat_{command}", {}).get("rejected_calls", 0)


@pytest.mark.parametrize("refused", [*WRITES, "script"])
async def test_a_thread_that_insists_keeps_no_other_from_the_server(guarded, queue_name, refused):
    with SyncQueue(queue_name, redis_url=guarded.url) as queue:
        queue.add_bulk([{"name": "n", "data": 1}] * 2)  # the server has the script
        guarded.proxy.hold_answers()
        adding = asyncio.ensure_future(
            asyncio.to_thread(queue.add_bulk, [{"name": "n", "data": 1}] * 3)
        )
        await eventually(lambda: guarded.stored() == 5)
        if refused == "script":
            guarded.set_user("-script")
            guarded.admin.script_flush()
        else:
            guarded.refuse()
        guarded.proxy.cut()
        guarded.proxy.pass_answers()
        for _ in range(3):
            before = guarded.refusals() + rejected(guarded.admin, "script|load")
            assert (await asyncio.to_thread(queue.counts)).waiting == 5
            await eventually(
                lambda: guarded.refusals() + rejected(guarded.admin, "script|load") > before  # noqa: B023
            )
        assert not adding.done()
        guarded.allow()
        guarded.set_user("+script")
        await adding
        assert guarded.stored() == 5


async def test_a_thread_that_insists_gives_up_in_time_though_others_keep_the_link_busy(
    guarded, queue_name
):
    """Who asks for something that takes long holds the link; who insists waits for its turn."""
    own, connection = (
        guarded.keys,
        BlockingConnection(
            parse_url(guarded.url), short_options(patience_ms=1_500), slot_key=guarded.keys.tag
        ),
    )
    add = calls(own)["batch"]
    guarded.admin.script_load(add.scripts[0].source)
    try:
        connection.ready()
        guarded.proxy.hold_answers()
        adding = asyncio.ensure_future(asyncio.to_thread(connection.run, add))
        await guarded.lose_and_refuse(1)
        slow = command("XREAD", "BLOCK", 4_000, "STREAMS", b"{nobody}", "$")
        holding = asyncio.ensure_future(
            asyncio.to_thread(connection.run, Call((slow,), lambda _: None, block_ms=4_000))
        )
        await eventually(lambda: any(c["cmd"] == "xread" for c in guarded.admin.client_list()))
        assert not adding.done()
        with pytest.raises(OutcomeUnknownError, match="again and again: NOPERM"):
            await adding
        assert not holding.done()
        await holding
    finally:
        connection.close()


async def test_an_add_that_is_refused_and_was_never_lost_is_refused_at_once(guarded, dial):
    caller = dial(guarded.url)
    await caller.ready()
    guarded.refuse()
    with pytest.raises(ServerReplyError, match="NOPERM"):
        await caller.run(calls(guarded.keys)["batch"])
    assert guarded.refusals() == 1


async def test_an_add_whose_event_alone_is_refused_is_added(guarded, dial):
    caller = dial(guarded.url)
    if not (await caller.ready()).has_idmp:
        pytest.skip("the server has no XADD IDMP")
    guarded.admin.set(guarded.keys.events, "something else")
    guarded.proxy.hold_answers()
    running = asyncio.ensure_future(caller.run(calls(guarded.keys)["direct"]))
    await eventually(lambda: guarded.stored() == 1)
    guarded.proxy.cut()
    guarded.proxy.pass_answers()
    assert (await running).depth == 1
    guarded.admin.delete(guarded.keys.events)
