"""The same call through each package leaves the same in the server, byte for byte.

Ids that nobody chose are masked, and times. Whatever ours adds to it is listed here.
"""

import struct

import pytest

from chasquimq.wire.envelope import decode
from chasquimq.wire.member import decode_member
from tests.support.eventually import eventually_sync
from tests.support.party import job, packed

pytestmark = pytest.mark.servers("redis-8.6")

OUR_DLQ_FIELDS = [b"error", b"traceback", b"attempts", b"failed_at", b"consumer"]
OUR_EVENT_FIELDS = {
    "active": [b"wait_ms", b"created_at_ms"],
    "waiting": [b"n"],  # the reference engine does not tell the name of a promoted job
}
OUR_EVENTS = {"delayed"}
# An index for every delayed job, how jobs ended, what a producer sent, and the promoter's alarm.
OUR_KEYS = {"didx", "outcome", "sent", "wake"}

HOUR_MS = 3_600_000
ULID_CHARS = 26
EXPONENTIAL = {"kind": "exponential", "delay_ms": 100}

JOBS = {
    "plain": job("send-email", {"k": 1}),
    "unnamed": job("", {"k": 1}),
    "unicode": job("räpido 🏃", {"é": "ü" * 40}),
    "nil": job("n", None),
    "numbers": job("n", [0, -1, 127, 128, 2**32, 2**64 - 1, -(2**63), 1.5, -0.0]),
    "text and bytes": job("n", ["", "x" * 40, "y" * 300, b"", b"\x00\xff", b"z" * 70_000]),
    "containers": job("n", {"a": [{}, [], [[1]] * 20], "b": {str(i): i for i in range(20)}}),
    "id": job("n", 1, job_id="my-id"),
    "long id": job("n", 1, job_id="i" * 300),
    "attempts": job("n", 1, attempts=7),
    "many attempts": job("n", 1, attempts=70_000),
    "backoff number": job("n", 1, backoff=250),
    "fixed": job("n", 1, backoff={"kind": "fixed", "delay_ms": 250, "jitter_ms": 0}),
    "exponential": job("n", 1, backoff=EXPONENTIAL),
    "whole multiplier": job("n", 1, backoff=EXPONENTIAL | {"multiplier": 2.0}),
    "everything": job("n", 1, attempts=4, job_id="all", backoff=EXPONENTIAL
                      | {"multiplier": 2.5, "max_delay_ms": 10_000, "jitter_ms": 25}),
}  # fmt: skip

RESULTS = {
    "map": {"sum": 3, "ü": [1, 2.5, None, True, b"\x00"]},
    "zero": 0,
    "false": False,
    "empty text": "",
    "empty list": [],
    "large": ["x" * 1_000] * 100,
}


class Side:
    """One of the packages with a queue of its own, and what there is in it."""

    def __init__(self, party, client, queue):
        self.party = party
        self.client = client
        self.queue = queue
        self._tag = f"{{chasqui:{queue}}}:"

    def key(self, kind):
        return self._tag + kind

    def entries(self, kind):
        """The fields of a stream's entries, in the order in which they were written."""
        return [list(fields.items()) for _, fields in self.client.xrange(self.key(kind))]

    def delayed(self):
        return self.client.zrange(self.key("delayed"), 0, -1, withscores=True)

    def kinds(self):
        """What kinds of key there are: what follows the queue's name, without any job's id."""
        found = [key.decode()[len(self._tag) :] for key in self.client.scan_iter(self._tag + "*")]
        return {kind if kind.endswith("lock") else kind.split(":")[0] for kind in found}


@pytest.fixture
def sides(ours, theirs, queue_name, server):
    """Ours and the reference engine, each on a queue of its own."""
    return [Side(party, server.client(), f"{queue_name}-{party.name}") for party in (ours, theirs)]


def assert_same(sides, look):
    """What `look` finds is the same on both sides; returns it."""
    our_answer, their_answer = map(look, sides)
    assert our_answer == their_answer
    return our_answer


@pytest.mark.parametrize("name", JOBS)
def test_an_immediate_job(sides, name):
    for side in sides:
        side.party.ask("add", queue=side.queue, job=JOBS[name])
    [fields] = assert_same(sides, masked_jobs)
    assert [key for key, _ in fields] == ([b"d"] if name == "unnamed" else [b"d", b"n"])


@pytest.mark.parametrize("names", [["plain", "unnamed", "nil", "unicode"], list(JOBS)])
def test_jobs_in_bulk(sides, names):
    for side in sides:
        side.party.add_bulk(side.queue, [JOBS[name] for name in names])
    # With ids and retry rules among them ours may put them in another order.
    found = assert_same(sides, lambda side: sorted(masked_jobs(side)))
    assert len(found) == len(names)


@pytest.mark.parametrize("name", JOBS)
def test_a_delayed_job(sides, name):
    for side in sides:
        side.party.ask("add", queue=side.queue, job=JOBS[name] | {"delay_ms": HOUR_MS})
        [(member, score)] = side.delayed()
        created_at_ms = decode(decode_member(member)[1]).created_at_ms
        assert abs(score - created_at_ms - HOUR_MS) < 5_000
    assert_same(sides, lambda side: [masked_member(member) for member, _ in side.delayed()])


@pytest.mark.parametrize("delay_ms", [1, 1_999, HOUR_MS, 7 * 24 * HOUR_MS])
def test_the_marker_and_the_index_of_a_delayed_job_with_an_id(sides, delay_ms):
    def look(side):
        marker, index = (side.key(f"{kind}:chosen") for kind in ("dlid", "didx"))
        [(member, _)] = side.delayed()
        assert side.client.get(index) == member
        expected_ttl_s = max(1, delay_ms // 1_000) + 3_600
        for key in (marker, index):
            assert expected_ttl_s - 2 <= side.client.ttl(key) <= expected_ttl_s
        return side.client.get(marker), masked_member(side.client.get(index))

    for side in sides:
        side.party.add(side.queue, "later", {"k": 1}, delay_ms=delay_ms, job_id="chosen")
    assert assert_same(sides, look)[0] == b"1"


def test_a_promoted_job(sides):
    for side in sides:
        side.party.work(side.queue, plan={"is_held": True})
        for added in (job("later", {"k": 1}, attempts=3), job("", 2, job_id="chosen")):
            side.party.ask("add", queue=side.queue, job=added | {"delay_ms": 20})
        side.party.until(lambda side=side: len(side.party.started) == 2)
    assert_same(sides, lambda side: sorted(masked_jobs(side)))


@pytest.mark.parametrize("options", [{}, {"attempts": 3}, {"job_id": "chosen"}])
def test_a_retry_that_waits_for_its_time(sides, options):
    for side in sides:
        plan = {"failures": {"flaky": 9}}
        side.party.work(side.queue, plan=plan, delayed_enabled=False)
        side.party.add(side.queue, "flaky", {"k": 1}, backoff=HOUR_MS // 1_000, **options)
        eventually_sync(side.delayed)
    [member] = assert_same(
        sides, lambda side: [masked_member(member) for member, _ in side.delayed()]
    )
    assert b"<id>" in member or options.get("job_id")


@pytest.mark.parametrize("name", ["bad", "hard", ""])
def test_a_dead_letter_and_its_replay(sides, name):
    def look(side):
        [fields] = side.entries("dlq")
        found = dict(fields)
        assert found[b"source_id"] == side.source_id
        order = [key for key, _ in fields]
        if side.party.name == "ours":
            assert order[-len(OUR_DLQ_FIELDS) :] == OUR_DLQ_FIELDS
            order = order[: -len(OUR_DLQ_FIELDS)]
        return order, found.get(b"n"), found[b"reason"], masked_envelope(found[b"d"])

    plan = {"failures": {"bad": 9, "": 9}, "hopeless": ["hard"]}
    for side in sides:
        side.party.ask("add", queue=side.queue, job=job(name, {"k": 1}, attempts=1))
        [(side.source_id, _)] = side.client.xrange(side.key("stream"))
        side.party.work(side.queue, plan=plan)
        eventually_sync(lambda side=side: side.entries("dlq"))
    assert_same(sides, look)
    for side in sides:
        side.party.restart()
        assert side.party.ask("replay", queue=side.queue) == 1
    assert_same(sides, masked_jobs)


def test_results(sides):
    def look(side):
        return {
            name: side.client.get(side.key(f"result:{job_id}")) for name, job_id in side.ids.items()
        }

    plan = {"returns": {name: packed(value) for name, value in RESULTS.items()}}
    for side in sides:
        side.party.work(side.queue, plan=plan, store_results=True, result_ttl_ms=10_001)
        side.ids = {name: side.party.add(side.queue, name, 1) for name in (*RESULTS, "nothing")}
        side.party.has_run(*side.ids.values())
        side.party.ask("stop")
        keys = [side.key(f"result:{side.ids[name]}") for name in RESULTS]
        assert all(9 <= side.client.ttl(key) <= 11 for key in keys)
    found = assert_same(sides, look)
    assert found.pop("nothing") is None
    assert found == {name: bytes.fromhex(packed(value)) for name, value in RESULTS.items()}


def test_the_fields_of_events(sides):
    live_through_everything(sides)
    our_orders, their_orders = map(event_orders, sides)
    assert our_orders.keys() - OUR_EVENTS == their_orders.keys()
    for name, their_order in their_orders.items():
        assert our_orders[name] == their_order + OUR_EVENT_FIELDS.get(name, []), name
    assert our_orders["delayed"] == [b"e", b"id", b"ts", b"n", b"delay_ms"]


def test_the_kinds_of_keys(sides):
    live_through_everything(sides)
    ours, theirs = (side.kinds() for side in sides)
    assert theirs - ours <= {"scheduler:lock"}
    assert ours - theirs <= OUR_KEYS


def test_the_group_and_the_lock_of_the_promoter(sides):
    def look(side):
        [group] = side.client.xinfo_groups(side.key("stream"))
        consumers = side.client.xinfo_consumers(side.key("stream"), group["name"])
        assert 1 <= side.client.ttl(side.key("promoter:lock")) <= 5
        holder = side.client.get(side.key("promoter:lock"))
        return group["name"], [each["name"] for each in consumers], holder

    for side in sides:
        job_id = side.party.add(side.queue, "before the group was there", 1)
        side.party.work(side.queue, consumer_id="me")
        side.party.has_run(job_id)
        eventually_sync(lambda side=side: side.client.get(side.key("promoter:lock")))
    assert assert_same(sides, look) == (b"default", [b"me"], b"me")


def live_through_everything(sides):
    """Let each side write every event it can, and stop."""
    plan = {"failures": {"flaky": 1}, "hopeless": ["hard"], "returns": {"flaky": packed(1)}}
    options = {"store_results": True, "read_block_ms": 50}
    for side in sides:
        party, queue = side.party, side.queue
        party.watch(queue)
        party.work(queue, plan=plan, **options)
        ids = [
            party.add(queue, "flaky", 1, backoff=10),
            party.add(queue, "later", 1, delay_ms=10, job_id="chosen"),
        ]
        party.has_seen("dlq", party.add(queue, "hard", 1))
        party.has_seen("completed", *ids)
        party.has_seen("waiting", *ids)
        party.has_seen("drained", None)
        # The reference engine tells `completed` before it stores the result.
        eventually_sync(lambda side=side: "result" in side.kinds())


def event_orders(side):
    """The names of the fields of each kind of event, those of promoted jobs for `waiting`."""
    return {
        fields[0][1].decode(): [key for key, _ in fields]
        for fields in side.entries("events")
        if dict(fields)[b"id"] in {b"chosen", b""} or fields[0][1] != b"waiting"
    }


def masked_jobs(side):
    """The entries of the stream, with what differs from call to call masked."""
    return [
        [(key, masked_envelope(value) if key == b"d" else value) for key, value in fields]
        for fields in side.entries("stream")
    ]


def masked_member(member):
    name, envelope = decode_member(member)
    prefix = member.removesuffix(envelope)
    assert prefix == struct.pack("<I", len(name.encode())) + name.encode()
    return prefix + masked_envelope(envelope)


def masked_envelope(envelope):
    """Its bytes, but for the time of creation, and for the id unless someone chose it."""
    job_id, created_at_ms = decode(envelope).id, decode(envelope).created_at_ms
    masked = envelope.replace(struct.pack(">BQ", 0xCF, created_at_ms), b"<created>")
    if len(job_id) == ULID_CHARS:
        masked = masked.replace(job_id.encode(), b"<id>")
    return masked
