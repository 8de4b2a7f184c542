"""The main stream: append jobs, read batches with claims, renew, acknowledge."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal, NamedTuple, TypeAlias

from chasquimq.broker import ring, scripts
from chasquimq.broker.call import Call, Reply, bulks, call, checked, command, none_refused
from chasquimq.broker.ring import Ticket
from chasquimq.wire.codec import pack_for_script
from chasquimq.wire.entry import job_fields, parse_job_fields
from chasquimq.wire.keys import QueueKeys

GONE_MS = 3_600_000
"""A consumer that was silent for so long belongs to a worker that was killed."""
# Parts of a row that may have been claimed; others have two.
_CLAIMED = 4
# More deliveries than any worker holds at a time.
_MOST_PENDING = 10_000

MOST_RENEWED = 500
"""Entries renewed by one call; bounds how long the server is busy with it."""


class NewJob(NamedTuple):
    """A fresh job as it goes to the stream; in the order `add.lua` reads."""

    id: str
    envelope: bytes
    name: str = ""


@dataclass(frozen=True, slots=True)
class Capacity:
    """How many entries the stream may hold, and whether to drop the oldest beyond that."""

    limit: int
    trim: bool = False


@dataclass(frozen=True, slots=True)
class Telling:
    """What the events stream is to be told: the time of it, and its cap (0 = tell nothing)."""

    ts_ms: int
    cap: int


@dataclass(frozen=True, slots=True)
class Added:
    """How many jobs of a batch were added, and how deep the stream was after that."""

    count: int
    depth: int


class Delivery:
    """One handing of an entry to this consumer: the entry, its idle time, how often before.

    `data` is the envelope as it stands in the entry, None if there is none; `fields_missing` says
    that the entry itself was deleted. `deliveries` counts *earlier* deliveries: 0 for a new entry.
    """

    __slots__ = ("data", "deliveries", "entry_id", "fields_missing", "idle_ms", "name")

    def __init__(
        self, entry_id: bytes, fields: Sequence[bytes] | None, idle_ms: int, deliveries: int
    ) -> None:
        """Take one row of a reply."""
        self.entry_id = entry_id
        self.idle_ms = idle_ms
        self.deliveries = deliveries
        self.fields_missing = type(fields) is not list
        self.data, self.name = parse_job_fields(fields) if fields else (None, "")

    def __repr__(self) -> str:
        """Show which entry, and its history."""
        return f"<Delivery {self.entry_id.decode()} {self.name!r} after {self.deliveries}>"


class Completion(NamedTuple):
    """A delivery whose handler returned; `value` is what is stored, False for nothing.

    A tuple, and in the order `complete.lua` reads: a batch is packed without another look.
    """

    entry_id: bytes
    job_id: str
    name: str
    attempt: int
    duration_us: int
    value: bytes | Literal[False] = False


CompletionRow: TypeAlias = tuple[bytes, str, str, int, int, bytes | Literal[False]]
"""A `Completion` without its names, as workers make them.

A plain tuple takes a fourth of the time to make, and the collector forgets it at first sight.
"""
StartedRow: TypeAlias = tuple[str, str, int, int, int, int]
"""A run that is about to begin: job id, name, ts_ms, attempt, wait_ms, created_at_ms."""


@dataclass(frozen=True, slots=True)
class ResultKeeping:
    """How long results and outcomes are kept, in seconds; 0 keeps none."""

    result_ttl_s: int = 0
    outcome_ttl_s: int = 0


def add(
    keys: QueueKeys,
    jobs: list[str | bytes],
    *,
    ticket: Ticket,
    capacity: Capacity,
    telling: Telling,
    whole: bool,
) -> Call[Added]:
    """Append a batch in one script: all jobs or none if `whole`, else as many as fit.

    `jobs` is flat: id, envelope and name of the first, then of the second, and so on.
    """
    return scripts.ADD.call(
        {"stream": keys.stream, "events": keys.events, "sent": keys.sent(ticket.producer_id)},
        {
            "slot": ticket.slot,
            "serial": ticket.serial,
            "sent_ttl_s": ring.TTL_S,
            "cap": capacity.limit,
            "trim": int(capacity.trim),
            "whole": int(whole),
            "ts_ms": telling.ts_ms,
            "events_cap": telling.cap,
            # Packed, and not three arguments a job: a third less work here and at the server.
            "jobs": pack_for_script(jobs),
        },
        read=lambda reply: Added(*reply),
        repeatable=True,
        insistent=True,
    )


def add_one(
    keys: QueueKeys, job: NewJob, *, producer_id: str, telling: Telling, counting: bool
) -> Call[Added | None]:
    """Append a single job with `XADD IDMP`, where the server has it; `counting` asks for the depth.

    Cheaper than a script for one job, and repeatable because the server knows the job's id. It does
    not look at the queue's capacity first: callers use it only while the queue is far from full.
    None if it was not asked for the depth.
    """
    job_id, name = job.id.encode(), job.name.encode()
    fields = bulks((job_id, b"*", *job_fields(job.envelope, job.name)))
    requests = [_one_head(keys.stream, producer_id, has_name=bool(name)) + fields]
    if telling.cap:
        told = (job_id, b"ts", b"%d" % telling.ts_ms, b"n", name)
        head = _waiting_head(keys.events, telling.cap, has_name=bool(name))
        requests.append(head + bulks(told if name else told[:3]))
    if counting:
        requests.append(command(b"XLEN", keys.stream))

    def read(replies: list[Reply]) -> Added | None:
        added = bool(checked(replies[0]))
        return Added(added, checked(replies[-1])) if counting else None

    # The event may appear twice if the pair is sent twice; events are told at least once.
    return Call(requests, read, insistent=True)


@functools.lru_cache(maxsize=256)
def _one_head(stream: bytes, producer_id: str, *, has_name: bool) -> bytes:
    """The part of an `XADD IDMP` that is the same for every job of a producer."""
    fixed = (b"XADD", stream, b"IDMP", producer_id.encode())
    return b"*%d\r\n%b" % (len(fixed) + (6 if has_name else 4), bulks(fixed))


@functools.lru_cache(maxsize=256)
def _waiting_head(events: bytes, cap: int, *, has_name: bool) -> bytes:
    """The part of the event `waiting` that is the same for every job of a queue."""
    fixed = (b"XADD", events, b"MAXLEN", b"~", b"%d" % cap, b"*", b"e", b"waiting", b"id")
    return b"*%d\r\n%b" % (len(fixed) + (5 if has_name else 3), bulks(fixed))


def add_unique(
    keys: QueueKeys,
    jobs: Sequence[NewJob],
    *,
    ticket: Ticket,
    capacity: Capacity,
    telling: Telling,
    marker_ttl_s: int,
) -> Call[str]:
    """Append jobs whose ids are free; one character a job: `1` added, `0` taken, `F` full."""
    more: list[bytes] = []
    for job in jobs:
        more += (job.id.encode(), job.envelope, job.name.encode())
    return scripts.ADD_UNIQUE.call(
        {"stream": keys.stream, "events": keys.events, "sent": keys.sent(ticket.producer_id)},
        {
            "slot": ticket.slot,
            "serial": ticket.serial,
            "sent_ttl_s": ring.TTL_S,
            "cap": capacity.limit,
            "trim": int(capacity.trim),
            "ts_ms": telling.ts_ms,
            "events_cap": telling.cap,
            "marker_ttl_s": marker_ttl_s,
        },
        read=bytes.decode,
        repeatable=True,
        insistent=True,
        more_keys=[keys.dedup_marker(job.id) for job in jobs],
        more_arguments=more,
    )


def join(keys: QueueKeys, group: str, *, gone_ms: int = GONE_MS) -> Call[str]:
    """Create the group if need be; answers '' or the name of another group that has the stream.

    Consumers that hold nothing and have been silent for `gone_ms` are forgotten.
    """
    return scripts.JOIN.call(
        {"stream": keys.stream},
        {"group": group, "gone_ms": gone_ms},
        read=bytes.decode,
        repeatable=True,
    )


def prepare() -> Call[None]:
    """Give the server the scripts of completions and events before the first is asked for.

    One that is sent twice, because the script was not there, comes after what is told meanwhile:
    the `active` of another run, which rides with it, after the progress of that run.
    """
    requests = [script.load_request() for script in (scripts.COMPLETE, scripts.TELL)]
    return Call(requests, none_refused)


def read(
    keys: QueueKeys,
    group: str,
    consumer: str,
    *,
    count: int,
    block_ms: int,
    claim_min_idle_ms: int | None,
) -> Call[list[Delivery]]:
    """New entries, and with `claim_min_idle_ms` (where the server can) those whose lease ran out.

    Repeatable: entries of a reply that got lost are pending under our name and come back as claims.
    """
    blocking = ("BLOCK", block_ms) if block_ms > 0 else ()
    claiming = () if claim_min_idle_ms is None else ("CLAIM", claim_min_idle_ms)
    request = command("XREADGROUP", "GROUP", group, consumer, "COUNT", count, *blocking, *claiming,
                      "STREAMS", keys.stream, ">")  # fmt: skip
    return Call((request,), _read_deliveries, block_ms=block_ms)


def claim(
    keys: QueueKeys, group: str, consumer: str, *, min_idle_ms: int, count: int
) -> Call[list[Delivery]]:
    """Entries whose lease ran out, for servers whose `read` cannot claim."""
    return scripts.CLAIM.call(
        {"stream": keys.stream},
        {"group": group, "consumer": consumer, "min_idle_ms": min_idle_ms, "count": count},
        read=lambda rows: [Delivery(*row) for row in rows],
        repeatable=True,
    )


def complete(  # noqa: PLR0913 -- the batch, and what goes with it
    keys: QueueKeys,
    group: str,
    batch: Sequence[CompletionRow],
    *,
    has_xackdel: bool,
    keeping: ResultKeeping,
    telling: Telling,
    started: Sequence[StartedRow] = (),
) -> Call[list[bool]]:
    """Remove completed entries, store results, tell `completed`; True where it was there.

    `active` of runs in `started` is told along the way, before any `completed`. A call that had to
    be sent twice may tell it twice. Values travel even if none is kept: bring none then.
    """
    ids = [each[0] for each in batch]
    is_bare = not keeping.result_ttl_s and not telling.cap
    if is_bare and has_xackdel:
        head = command("XACKDEL", keys.stream, group, "IDS", len(ids)).split(b"\r\n", 1)[1]
        request = b"*%d\r\n%b%b" % (5 + len(ids), head, bulks(ids))
        return Call((request,), lambda replies: _flags(checked(replies[0]), len(ids)))
    more_keys: list[bytes] = []
    if keeping.result_ttl_s:
        result, outcome = keys.result(b""), keys.outcome(b"")
        for each in batch:
            job_id = each[1].encode()
            more_keys += (result + job_id, outcome + job_id)
    # Where nothing is told and nothing kept, who it was does not matter.
    rows = [(each, "", "", 0, 0, False) for each in ids] if is_bare else batch
    return scripts.COMPLETE.call(
        {"stream": keys.stream, "events": keys.events},
        {
            "group": group,
            "has_xackdel": int(has_xackdel),
            "ts_ms": telling.ts_ms,
            "events_cap": telling.cap,
            "result_ttl_s": keeping.result_ttl_s,
            "outcome_ttl_s": keeping.outcome_ttl_s,
            # Packed, and not an argument a field: 5 us a job less here, with two events a job.
            "started": pack_for_script(list(chain.from_iterable(started))),
            "done": pack_for_script(list(chain.from_iterable(rows))),
        },
        read=lambda reply: _flags(reply, len(ids)),
        repeatable=True,
        more_keys=more_keys,
    )


def renew(
    keys: QueueKeys, group: str, consumer: str, entry_ids: Sequence[bytes]
) -> Call[list[bytes]]:
    """Renew the leases that are still ours; the ids of those that are not."""
    return scripts.RENEW.call(
        {"stream": keys.stream},
        {"group": group, "consumer": consumer},
        read=list,
        repeatable=True,
        more_arguments=entry_ids,
    )


def wait_for_entry(keys: QueueKeys, *, after: bytes, block_ms: int) -> Call[bool]:
    """Block until the stream has an entry after this id, without taking it."""
    request = command("XREAD", "COUNT", 1, "BLOCK", block_ms, "STREAMS", keys.stream, after)
    return Call((request,), lambda replies: bool(checked(replies[0])), block_ms=block_ms)


def pending(
    keys: QueueKeys, group: str, consumer: str, *, first: str = "-"
) -> Call[list[Delivery]]:
    """What the server's book says this consumer holds, from an id on (`(` before it: beyond it)."""
    return call(
        "XPENDING", keys.stream, group, first, "+", _MOST_PENDING, consumer, read=_read_pending
    )


def unblock(client_id: int) -> Call[bool]:
    """Make a blocked read of another connection return at once."""
    return call("CLIENT", "UNBLOCK", client_id, read=bool)


def depth(keys: QueueKeys) -> Call[int]:
    """How many entries the stream holds, waiting or in flight."""
    return call("XLEN", keys.stream, read=int)


def _read_deliveries(replies: list[Reply]) -> list[Delivery]:
    reply = checked(replies[0])
    if not reply:
        return []
    return deliveries_of(reply[0][1])


def deliveries_of(rows: Reply) -> list[Delivery]:
    """The rows of a read; those of one that may claim have four parts."""
    new, found = object.__new__, []
    for row in rows:
        # As `Delivery(...)` does, without a call of its class: half the instructions.
        each = new(Delivery)
        if len(row) == _CLAIMED:
            each.entry_id, fields, each.idle_ms, each.deliveries = row
        else:
            each.entry_id, fields = row
            each.idle_ms = each.deliveries = 0
        each.fields_missing = type(fields) is not list
        each.data, each.name = parse_job_fields(fields) if fields else (None, "")
        found.append(each)
    return found


def _read_pending(rows: Reply) -> list[Delivery]:
    # The book counts the delivery under way; a `Delivery` counts the earlier ones.
    return [Delivery(row[0], None, row[2], max(0, row[3] - 1)) for row in rows]


def _flags(reply: Reply, many: int) -> list[bool]:
    flags = [each == 1 for each in reply]
    if len(flags) != many:
        msg = f"{len(flags)} answers about {many} jobs"
        raise ValueError(msg)
    return flags
