"""The delayed set: schedule, cancel, promote, retry into it, look into it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from chasquimq.broker import ring, scripts
from chasquimq.broker.call import Call, Reply, Steps, call
from chasquimq.broker.ring import Ticket
from chasquimq.broker.seek import Pace, scanned
from chasquimq.broker.stream import Telling
from chasquimq.errors import DecodeError
from chasquimq.wire.codec import pack_for_script
from chasquimq.wire.envelope import Envelope, decode
from chasquimq.wire.ids import StreamId
from chasquimq.wire.keys import QueueKeys
from chasquimq.wire.member import decode_member, encode_member

INDEXED_BYTES = 4_096
"""Members up to this size get an index even if nobody chose their id: it costs as much again."""


@dataclass(frozen=True, slots=True)
class DelayedJob:
    """A job as it goes to the delayed set, due after `delay_ms` or at `run_at_ms`."""

    id: str
    envelope: bytes
    name: str
    delay_ms: int
    run_at_ms: int | None = None
    is_unique: bool = False


@dataclass(frozen=True, slots=True)
class Promotion:
    """What one promote step did, and what it saw of the rest."""

    is_leader: bool
    promoted: int
    set_aside: int
    put_off: int
    """What is no job either, and the DLQ did not take: it is tried again a little later."""
    depth: int
    lag_ms: int
    next_due_in_ms: int | None
    next_due_at: bytes
    """When that is, as the set has it; empty if there is none."""
    last: StreamId
    """The entry of the last job that was promoted."""
    job_ids: list[bytes]


class Relocation(NamedTuple):
    """A failed delivery on its way to another attempt."""

    entry_id: bytes
    job_id: str
    name: str
    envelope: bytes
    backoff_ms: int
    next_attempt: int


def schedule(
    keys: QueueKeys,
    jobs: Sequence[DelayedJob],
    *,
    ticket: Ticket,
    telling: Telling,
    grace_s: int,
) -> Call[str]:
    """Put jobs in the set; one character a job: `1` scheduled, `0` the id was taken."""
    more: list[bytes] = []
    more_keys: list[bytes] = []
    for job in jobs:
        member = encode_member(job.name, job.envelope)
        more += (
            job.id.encode(),
            member,
            job.name.encode(),
            b"1" if job.is_unique else b"0",
            b"1" if job.is_unique or len(member) <= INDEXED_BYTES else b"0",
            b"%d" % job.delay_ms,
            b"" if job.run_at_ms is None else b"%d" % job.run_at_ms,
        )
        more_keys += (keys.delayed_index(job.id), keys.dedup_marker(job.id))
    return scripts.SCHEDULE.call(
        {
            "delayed": keys.delayed,
            "events": keys.events,
            "wake": keys.wake,
            "sent": keys.sent(ticket.producer_id),
        },
        {
            "slot": ticket.slot,
            "serial": ticket.serial,
            "sent_ttl_s": ring.TTL_S,
            "ts_ms": telling.ts_ms,
            "events_cap": telling.cap,
            "grace_s": grace_s,
        },
        read=bytes.decode,
        repeatable=True,
        insistent=True,
        more_keys=more_keys,
        more_arguments=more,
    )


def cancel(keys: QueueKeys, job_id: str) -> Steps[bool]:
    """Take a delayed job out by its id; False if it is not delayed (any more).

    Jobs without an index (large ones, and those of other producers that keep none) are looked for
    member by member, and so are those whose index still names an earlier attempt.
    """
    answer = yield _cancel(keys, job_id, b"")
    if answer < 0:
        member = yield from find(keys, job_id)
        answer = 0 if member is None else (yield _cancel(keys, job_id, member))
    return bool(answer == 1)


def index_of(keys: QueueKeys, job_id: str) -> Call[bytes | None]:
    """What the index says of a job: its member, which may be gone by now; None without one."""
    return call("GET", keys.delayed_index(job_id), read=lambda reply: reply)


def is_member(keys: QueueKeys, member: bytes) -> Call[bool]:
    """Whether a member is in the set."""
    return call("ZSCORE", keys.delayed, member, read=lambda reply: reply is not None)


def depth(keys: QueueKeys) -> Call[int]:
    """How many jobs are delayed."""
    return call("ZCARD", keys.delayed, read=int)


def first(keys: QueueKeys, count: int) -> Call[list[bytes]]:
    """The members that are due next."""
    return call("ZRANGE", keys.delayed, 0, count - 1, read=list)


def find(keys: QueueKeys, job_id: str) -> Steps[bytes | None]:
    """The member of a delayed job, by looking at each of them. For people, not for loops."""
    members = Members(keys)
    while not members.is_over:
        for member in (yield from members.next()):
            if holds(member, job_id):
                found: bytes = member
                return found
    return None


class Members:
    """The delayed set, some members at a time, in no order; one that stays is never missed."""

    def __init__(self, keys: QueueKeys) -> None:
        """Begin."""
        self._keys = keys
        self._pace = Pace()
        self._cursor = b"0"
        self.is_over = False

    def next(self) -> Steps[list[bytes]]:
        """Some members, perhaps some of them again, perhaps none although it is not over."""
        key, cursor = self._keys.delayed, self._cursor
        self._cursor, page = yield from self._pace.page(
            lambda count: call("ZSCAN", key, cursor, "COUNT", count, read=scanned(cursor))
        )
        self._pace.heed(len(page) // 2, sum(map(len, page)))
        self.is_over = self._cursor == b"0"
        members: list[bytes] = page[::2]
        return members


def job_of(member: bytes) -> tuple[str, Envelope] | None:
    """The name and the envelope in a delayed member; None if it is no job."""
    try:
        name, data = decode_member(member)
        return name, decode(data)
    except DecodeError:
        return None


def holds(member: bytes, job_id: str) -> bool:
    """Whether a delayed member carries this job."""
    if job_id.encode() not in member:
        return False
    job = job_of(member)
    return job is not None and job[1].id == job_id


def promote(  # noqa: PLR0913 -- the script's signature
    keys: QueueKeys,
    *,
    holder: str,
    lock_ttl_s: int,
    batch: int,
    capacity: int,
    events_cap: int,
    dlq_cap: int,
) -> Call[Promotion]:
    """As leader, move due jobs to the stream while it holds fewer than `capacity`."""
    return scripts.PROMOTE.call(
        {
            "lock": keys.promoter_lock,
            "delayed": keys.delayed,
            "stream": keys.stream,
            "events": keys.events,
            "dlq": keys.dlq,
        },
        {
            "holder": holder,
            "lock_ttl_s": lock_ttl_s,
            "batch": batch,
            "cap": capacity,
            "events_cap": events_cap,
            "dlq_cap": dlq_cap,
        },
        read=_read_promotion,
        repeatable=True,
    )


def count_earlier(keys: QueueKeys, due_at: bytes) -> Call[int]:
    """How many jobs are due before the instant that was the next, or at all if there was none."""
    bound = b"(" + due_at if due_at else b"+inf"
    return call("ZCOUNT", keys.delayed, "-inf", bound, read=int)


def forget_indexes(keys: QueueKeys, job_ids: Sequence[bytes]) -> Call[int]:
    """Drop the cancel indexes of promoted jobs; one that is missed expires by itself."""
    indexes = [keys.delayed_index(job_id) for job_id in job_ids if job_id]
    if not indexes:
        return Call((), lambda _: 0)
    return call("UNLINK", *indexes, read=int)


def retry(
    keys: QueueKeys,
    group: str,
    consumer: str,
    moves: Sequence[Relocation],
    *,
    telling: Telling,
    grace_s: int,
) -> Call[list[bool]]:
    """Move failed deliveries to the set; False for each that was not ours any more.

    All are refused, and none is moved, or none is refused.
    """
    flat: list[bytes | str | int] = []
    for move in moves:
        member = encode_member(move.name, move.envelope)
        flat += (move.entry_id, move.job_id, move.name, member, str(move.backoff_ms),
                 move.next_attempt, int(len(member) <= INDEXED_BYTES))  # fmt: skip
    index = keys.delayed_index(b"")
    return scripts.RETRY.call(
        {
            "stream": keys.stream,
            "delayed": keys.delayed,
            "events": keys.events,
            "wake": keys.wake,
        },
        {
            "group": group,
            "consumer": consumer,
            "grace_s": grace_s,
            "ts_ms": telling.ts_ms,
            "events_cap": telling.cap,
            "moves": pack_for_script(flat),
        },
        read=lambda reply: [bool(each) for each in reply],
        repeatable=True,
        more_keys=[index + move.job_id.encode() for move in moves],
    )


def _cancel(keys: QueueKeys, job_id: str, found: bytes) -> Call[int]:
    return scripts.CANCEL.call(
        {
            "delayed": keys.delayed,
            "index": keys.delayed_index(job_id),
            "marker": keys.dedup_marker(job_id),
        },
        {"found": found},
        read=int,
    )


def _read_promotion(reply: Reply) -> Promotion:
    is_leader, promoted, aside, put_off, depth, lag_ms, next_due, due_at, last, *job_ids = reply
    return Promotion(
        bool(is_leader),
        promoted,
        aside,
        put_off,
        depth,
        lag_ms,
        None if next_due < 0 else next_due,
        due_at,
        StreamId.parse(last),
        job_ids,
    )
