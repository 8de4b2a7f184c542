"""Every call that can be asked of a server, each with replies that it can have.

The replies need not belong together: they have the shape that lets all of them be read.
"""

from chasquimq.broker import (
    backlog,
    bells,
    browse,
    checkup,
    delayed,
    dlq,
    events,
    inspect,
    limits,
    line,
    locks,
    notes,
    pages,
    pause,
    repeats,
    results,
    returns,
    runs,
    scripts,
    server,
    stream,
    survey,
    topology,
    traces,
    upkeep,
)
from chasquimq.broker.call import call, together, unraised
from chasquimq.broker.dlq import Burial, Revival
from chasquimq.broker.limits import Limit
from chasquimq.broker.repeats import StoredSpec
from chasquimq.broker.runs import Memory, RunJob
from chasquimq.broker.seek import Found
from chasquimq.broker.server import Credentials
from chasquimq.broker.stream import Capacity, ResultKeeping
from chasquimq.broker.traces import Carried
from chasquimq.engine.intake import gated
from chasquimq.engine.relocator import Joint, Move, carried
from chasquimq.wire.entry import DeadLetter
from chasquimq.wire.envelope import decode
from chasquimq.wire.keys import QueueKeys
from chasquimq.wire.repeat import RepeatableSpec, RepeatPattern
from tests.support.broker_builders import (
    SILENT,
    TELLING,
    a_completion,
    a_delayed_job,
    a_job,
    a_member,
    a_relocation,
    a_ticket,
    an_envelope,
)

KEYS = QueueKeys("q")
ENVELOPE = an_envelope("a")
FIELDS = [b"d", ENVELOPE, b"n", b"mail"]
ROWS = [[b"1-1", FIELDS], [b"1-2", FIELDS, 60_000, 2]]
TIME = [b"1700000000", b"5"]
GROUPS = [[b"name", b"g", b"pending", 1, b"last-delivered-id", b"1-1"]]
HEAD = [b"length", 2, b"first-entry", ROWS[0], b"last-generated-id", b"1-2", b"entries-added", 9]
EVENT = [b"e", b"failed", b"id", b"a", b"ts", b"17", b"n", b"mail", b"reason", b"x"]
LETTER = [*FIELDS, b"source_id", b"1-1", b"reason", b"x", b"attempts", b"3", b"failed_at", b"17"]
INFO = b"# Server\r\nredis_version:7.2.4\r\nrole:master\r\nmaxmemory_policy:noeviction\r\n"

LIMIT = Limit(1, 1_000)
CAPACITY = Capacity(1_000)
SPEC = RepeatableSpec("k", "mail", RepeatPattern.every(60_000), b"\xc0")
BURIAL = Burial(b"1-1", "a", 3, DeadLetter("1-1", "x", ENVELOPE, "mail"))
DELIVERIES = stream.deliveries_of(ROWS)
FOUND = Found(b"1-1", FIELDS, "mail", decode(ENVELOPE))
RUN_JOBS = [RunJob("a", ENVELOPE), RunJob("b", ENVELOPE, delay_ms=5)]
READ = stream.read(KEYS, "g", "c", count=3, block_ms=0, claim_min_idle_ms=1)
DEPTH = stream.depth(KEYS)


def _retry(moves):
    return delayed.retry(KEYS, "g", "c", moves, telling=TELLING, grace_s=60)


def _moves():
    buried = dlq.dead_letter(KEYS, "g", "c", BURIAL, cap=5, outcome=(60, b"f"), telling=TELLING)
    retries = [Joint(a_relocation(entry_id), _retry) for entry_id in (b"1-2", b"1-3")]
    asked = (buried, *retries)
    return [Move(b"1-%d" % at, each, lambda: None) for at, each in enumerate(asked)]


CALLS = {
    "backlog.work": (
        backlog.work(KEYS, "g", min_idle_ms=1),
        [0, HEAD, [[b"1-1", b"c", 60_000, 1]], 2, [1, b"1-1", b"1-1", [[b"c", b"1"]]], 0, 0],
    ),
    "bells.wait_for_ring": (bells.wait_for_ring(b"k", 5), [[b"k", b"1"]]),
    "browse.progress": (browse.progress(KEYS, "a"), [b"50"]),
    "call.call": (call("XLEN", "k", read=int), [1]),
    "call.together": (together([DEPTH, READ]), [1, [[b"q", ROWS]]]),
    "call.unraised": (unraised(READ), [[[b"q", ROWS]]]),
    "checkup.server_facts": (checkup.server_facts(), [INFO, TIME, 3]),
    "delayed.count_earlier": (delayed.count_earlier(KEYS, b"17"), [1]),
    "delayed.depth": (delayed.depth(KEYS), [1]),
    "delayed.first": (delayed.first(KEYS, 3), [[a_member("a")]]),
    "delayed.forget_indexes": (delayed.forget_indexes(KEYS, [b"a"]), [1]),
    "delayed.forget_indexes of none": (delayed.forget_indexes(KEYS, []), []),
    "delayed.index_of": (delayed.index_of(KEYS, "a"), [a_member("a")]),
    "delayed.is_member": (delayed.is_member(KEYS, a_member("a")), [b"17"]),
    "delayed.promote": (
        delayed.promote(
            KEYS, holder="h", lock_ttl_s=1, batch=1, capacity=1, events_cap=1, dlq_cap=1
        ),
        [[1, 1, 0, 0, 2, 5, 60, b"1700000000060", b"1-1", b"a"]],
    ),
    "delayed.retry": (_retry([a_relocation(b"1-1"), a_relocation(b"1-2")]), [[1, 0]]),
    "delayed.schedule": (
        delayed.schedule(KEYS, [a_delayed_job()], ticket=a_ticket(), telling=TELLING, grace_s=60),
        [b"1"],
    ),
    "dlq.dead_letter": (
        dlq.dead_letter(KEYS, "g", "c", BURIAL, cap=5, outcome=(60, b"f"), telling=TELLING),
        [1],
    ),
    "dlq.discard": (dlq.discard(KEYS, ["1-1"]), [1]),
    "dlq.peek": (dlq.peek(KEYS, limit=3), [[[b"1-1", LETTER]]]),
    "dlq.replay": (
        dlq.replay(KEYS, [Revival("1-1", "a", "mail", ENVELOPE)], telling=TELLING),
        [1],
    ),
    "events.about": (events.about(KEYS, "a", since_ms=0, count=3), [[[b"1-1", EVENT]]]),
    "events.append": (events.append(KEYS, [EVENT], cap=5), [None]),
    "events.last_id": (events.last_id(KEYS), [[[b"1-1", EVENT]]]),
    "events.read": (
        events.read(KEYS, after="0", count=2, block_ms=0),
        [[[b"q", [[b"1-1", EVENT]]]]],
    ),
    "inspect.counts": (inspect.counts(KEYS, "g"), [2, [1, b"1-1", b"1-1", []], 0, 0]),
    "inspect.is_idle": (
        inspect.is_idle(KEYS),
        [b"OK", b"QUEUED", b"QUEUED", b"QUEUED", [0, [a_member("a"), b"17"], TIME]],
    ),
    "limits.hold": (limits.hold(KEYS, LIMIT, hold_ms=5), [5]),
    "limits.take": (
        limits.take(KEYS, "g", "c", limit=LIMIT, count=1, min_idle_ms=1, claiming="read"),
        [[0, 0, 3, b"1-1", *ROWS]],
    ),
    "line.look": (line.look(KEYS), [2, GROUPS]),
    "locks.is_held": (locks.is_held(b"k", "h"), [b"h"]),
    "locks.lead": (locks.lead(b"k", "h", 5), [1]),
    "locks.release": (locks.release(b"k", "h"), [1]),
    "notes.append_log": (
        notes.append_log(KEYS, "a", b"x", cap=5, ttl_s=60),
        [b"OK", b"QUEUED", b"QUEUED", b"QUEUED", [b"1-1", 1, 3]],
    ),
    "notes.set_progress": (
        notes.set_progress(KEYS, "a", 50, ttl_s=60, event=(5, EVENT)),
        [b"OK", b"1-1"],
    ),
    "pages.chosen": (pages.chosen(KEYS.stream, [b"1-1", b"2-0"]), [ROWS, []]),
    "pages.delayed": (pages.delayed(KEYS, b"0", 3), [[b"7", [a_member("a"), b"17"]]]),
    "pages.entries": (pages.entries(KEYS.stream, "-", "+", 3), [ROWS]),
    "pages.expiring": (pages.expiring(KEYS, "a"), [b"\xc0", b"v17", 5, -1]),
    "pages.head": (pages.head(KEYS.stream), [HEAD]),
    "pages.held": (pages.held(KEYS, "g", "-", "+", 3), [[[b"1-1", b"c", 60_000, 1]]]),
    "pages.results": (pages.results(KEYS, b"0", 3), [[b"7", [KEYS.result("a")]]]),
    "pause.is_paused": (pause.is_paused(KEYS), [1]),
    "pause.wait_for_resume": (
        pause.wait_for_resume(KEYS, after=b"0", block_ms=1),
        [[[b"q", [[b"1-1", [b"x", b"1"]]]]], 1],
    ),
    "repeats.fire": (
        repeats.fire(
            KEYS, StoredSpec("k", 17, SPEC), [a_job()], holder="h", next_ms=18, telling=TELLING
        ),
        [[1, 0]],
    ),
    "repeats.move": (repeats.move(KEYS, "k", 17), [1]),
    "repeats.next_due": (repeats.next_due(KEYS), [[b"k", b"17"]]),
    "repeats.remove": (repeats.remove(KEYS, "k"), [1]),
    "repeats.set_paused": (repeats.set_paused(KEYS, "k", paused=True), [1]),
    "repeats.set_paused no more": (repeats.set_paused(KEYS, "k", paused=False), [1]),
    "repeats.upsert": (repeats.upsert(KEYS, SPEC, next_ms=17, job_id=None), [1]),
    "results.read": (results.read(KEYS, ["a", "b"]), [b"\xc0", b"v17", None, None]),
    "returns.hand_back": (returns.hand_back(KEYS, "g", "c", DELIVERIES, idle_ms=5), [2]),
    "returns.leave": (returns.leave(KEYS, "g", "c", idle_ms=5), [1]),
    "returns.put_back": (returns.put_back(KEYS, "g", "c", DELIVERIES, idle_ms=5), [2]),
    "runs.add": (
        runs.add(KEYS, "r", RUN_JOBS, limit=5, memory=Memory(60, 60), telling=TELLING),
        [b"10"],
    ),
    "runs.added": (runs.added(KEYS, "r"), [1]),
    "runs.begin": (runs.begin(KEYS, "r", "x", 60, step=1), [b"OK"]),
    "runs.note": (runs.note(KEYS, "r", "x", 60, step=1), [1]),
    "runs.noted": (runs.noted(KEYS, "r"), [b"1 x"]),
    "runs.pace": (runs.pace(KEYS, "r", 1, 5), [5]),
    "runs.remember": (runs.remember(KEYS, "r", 60), [1]),
    "scripts.Script.call": (
        scripts.RELEASE.call({"lock": b"k"}, {"holder": "h"}, read=int),
        [1],
    ),
    "server.handshake": (
        server.handshake(None, database=0, client_name="x", probe_key=b"k"),
        [b"OK", 7, INFO, INFO, INFO, [1], [[b"k", ROWS]], b"1-1"],
    ),
    "server.handshake with a login": (
        server.handshake(Credentials("u", "p"), database=3, client_name="x", probe_key=b"k"),
        [b"OK", b"OK", b"OK", 7, INFO, INFO, INFO, [1], [[b"k", ROWS]], b"1-1"],
    ),
    "stream.add": (
        stream.add(
            KEYS, [*a_job()], ticket=a_ticket(), capacity=CAPACITY, telling=TELLING, whole=True
        ),
        [[1, 5]],
    ),
    "stream.add_one": (
        stream.add_one(KEYS, a_job(), producer_id="p", telling=TELLING, counting=True),
        [b"1-1", b"1-1", 5],
    ),
    "stream.add_one without counting": (
        stream.add_one(KEYS, a_job(), producer_id="p", telling=SILENT, counting=False),
        [b"1-1"],
    ),
    "stream.add_unique": (
        stream.add_unique(
            KEYS,
            [a_job()],
            ticket=a_ticket(),
            capacity=CAPACITY,
            telling=TELLING,
            marker_ttl_s=60,
        ),
        [b"1"],
    ),
    "stream.claim": (
        stream.claim(KEYS, "g", "c", min_idle_ms=1, count=2),
        [[[b"1-1", FIELDS, 60_000, 1], [b"1-2", None, 60_000, 1]]],
    ),
    "stream.complete": (
        stream.complete(
            KEYS,
            "g",
            [a_completion(b"1-1", value=b"\xc0"), a_completion(b"1-2")],
            has_xackdel=True,
            keeping=ResultKeeping(60, 60),
            telling=TELLING,
        ),
        [[1, 0]],
    ),
    "stream.complete without a script": (
        stream.complete(
            KEYS,
            "g",
            [a_completion(b"1-1")],
            has_xackdel=True,
            keeping=ResultKeeping(),
            telling=SILENT,
        ),
        [[1]],
    ),
    "stream.depth": (DEPTH, [1]),
    "stream.join": (stream.join(KEYS, "g"), [b""]),
    "stream.pending": (stream.pending(KEYS, "g", "c"), [[[b"1-1", b"c", 60_000, 1]]]),
    "stream.prepare": (stream.prepare(), [b"e0e1f9", b"e0e1fa"]),
    "stream.read": (READ, [[[b"q", ROWS]]]),
    "stream.renew": (stream.renew(KEYS, "g", "c", [b"1-1", b"1-2"]), [[b"1-1"]]),
    "stream.unblock": (stream.unblock(7), [1]),
    "stream.wait_for_entry": (
        stream.wait_for_entry(KEYS, after=b"0", block_ms=1),
        [[[b"q", ROWS]]],
    ),
    "survey.delayed_jobs": (survey.delayed_jobs(KEYS, limit=3), [[a_member("a"), b"17"]]),
    "survey.depths": (
        survey.depths(KEYS, "g"),
        [2, [1, b"1-1", b"1-1", []], 0, 1, [a_member("a"), b"17"], 0, 0, HEAD, 1],
    ),
    "topology.primary_of": (topology.primary_of("s"), [[b"h", b"6379"]]),
    "topology.slot_ranges": (
        topology.slot_ranges(),
        [[[0, 16_383, [b"h", 6379, b"id", []], [b"", 6380]]]],
    ),
    "traces.carried_by": (traces.carried_by(KEYS, ["a", "b"]), [b"x", None]),
    "traces.carrying": (traces.carrying(KEYS, [Carried("a", b"x", 60)], DEPTH), [b"OK", 1]),
    "traces.forget": (traces.forget(KEYS, ["a"]), [1]),
    "upkeep.discard_delayed": (
        upkeep.discard_delayed(KEYS, [(a_member("a"), "a")], dry_run=False),
        [b"1"],
    ),
    "upkeep.discard_waiting": (
        upkeep.discard_waiting(KEYS, [(b"1-1", "a")], dry_run=False),
        [b"1"],
    ),
    "upkeep.forget": (upkeep.forget(KEYS, ["a"], done_before_ms=17, dry_run=False), [b"1"]),
    "upkeep.ping": (upkeep.ping(), [b"PONG"]),
    "upkeep.promote_one": (
        upkeep.promote_one(
            KEYS, a_member("a"), name="mail", data=ENVELOPE, job_id="a", telling=TELLING
        ),
        [1],
    ),
    "upkeep.reschedule": (
        upkeep.reschedule(
            KEYS, a_member("a"), job=("a", "mail"), due=(5, None), grace_s=60, telling=TELLING
        ),
        [1],
    ),
    "upkeep.rewrite_delayed": (
        upkeep.rewrite_delayed(KEYS, "a", a_member("a"), name="mail", envelope=ENVELOPE),
        [1],
    ),
    "upkeep.rewrite_waiting": (upkeep.rewrite_waiting(KEYS, FOUND, ENVELOPE), [1]),
    "upkeep.server_time_ms": (upkeep.server_time_ms(), [TIME]),
    "upkeep.set_paused": (upkeep.set_paused(KEYS, paused=True, telling=TELLING), [1]),
    "upkeep.unlink": (upkeep.unlink([b"k"]), [1]),
    "upkeep.wipe": (upkeep.wipe(KEYS, force=False, dry_run=False), [3]),
    # Those of the engine that read replies themselves.
    "intake.gated": (gated(KEYS, READ), [[[b"q", ROWS]], 0]),
    "relocator.carried": (carried(_moves()), [1, [1, 0]]),
}
