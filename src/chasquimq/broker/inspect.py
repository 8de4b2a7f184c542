"""Read-only answers for people: depths, and where a job is. The engine's roles never use this."""

from dataclasses import dataclass
from enum import StrEnum

from chasquimq.broker import delayed
from chasquimq.broker.call import (
    Call,
    Reply,
    Steps,
    all_checked,
    call,
    checked,
    command,
    unless_missing,
)
from chasquimq.broker.results import OUTCOME_FAILED
from chasquimq.broker.seek import Found, find_entry, find_letter
from chasquimq.wire.entry import DeadLetter, parse_dead_letter
from chasquimq.wire.envelope import Envelope, decode
from chasquimq.wire.keys import QueueKeys
from chasquimq.wire.member import decode_member


class JobState(StrEnum):
    """Where a job is."""

    WAITING = "waiting"
    ACTIVE = "active"
    DELAYED = "delayed"
    COMPLETED = "completed"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Counts:
    """How many jobs of a queue wait, run, are delayed, are dead."""

    waiting: int
    active: int
    delayed: int
    dead: int


@dataclass(frozen=True, slots=True)
class Located:
    """A job that was found: where, under which name, and its envelope where there is one."""

    state: JobState
    name: str = ""
    envelope: Envelope | None = None
    deliveries: int = 0
    reason: str | None = None
    """Why it was dead-lettered, where it was."""
    error: str | None = None


def counts(keys: QueueKeys, group: str) -> Call[Counts]:
    """All depths in one round trip; a moment's view, since jobs go on moving."""
    requests = (
        command("XLEN", keys.stream),
        command("XPENDING", keys.stream, group),
        command("ZCARD", keys.delayed),
        command("XLEN", keys.dlq),
    )
    return Call(requests, _read_counts)


def is_idle(keys: QueueKeys, due_within_ms: int = 0) -> Call[bool]:
    """Whether nothing waits, nothing is in flight, and nothing delayed is due that soon.

    By the server's clock, in one transaction: two looks, one at the stream and one at the delayed
    set, could both miss a job that is moved from one to the other in between.
    """

    def read(replies: list[Reply]) -> bool:
        depth, earliest, (seconds, micros) = all_checked(checked(replies[-1]))
        if depth:
            return False
        now_ms = int(seconds) * 1_000 + int(micros) // 1_000
        return not earliest or float(earliest[1]) > now_ms + due_within_ms

    requests = (
        command("MULTI"),
        command("XLEN", keys.stream),
        command("ZRANGE", keys.delayed, 0, 0, "WITHSCORES"),
        command("TIME"),
        command("EXEC"),
    )
    return Call(requests, read)


def locate(keys: QueueKeys, group: str, job_id: str) -> Steps[Located]:
    """Look for a job everywhere it can be, in the order a job moves.

    A job that moves while it is looked for can be missed. Cheap for recent jobs and those with an
    index; else every entry of the queue is read, a page at a time.
    """
    index, result, outcome = yield Call(
        (
            command("GET", keys.delayed_index(job_id)),
            command("GET", keys.result(job_id)),
            command("GET", keys.outcome(job_id)),
        ),
        all_checked,
    )
    if index is not None and (yield call("ZSCORE", keys.delayed, index, read=bool)):
        return _delayed(index)
    found: Found | None = yield from find_entry(keys, job_id)
    if found is not None:
        return (yield from _waiting_or_active(keys, group, found))
    # An index can outlive its member; a retry then waits in the set without one.
    member = yield from delayed.find(keys, job_id)
    if member is not None:
        return _delayed(member)
    found = yield from find_letter(keys, job_id)
    if found is not None:
        return dead(found, parse_dead_letter(found.entry_id, found.fields))
    if outcome is not None and outcome.startswith(OUTCOME_FAILED):
        return Located(JobState.FAILED)
    known = outcome is not None or result is not None
    return Located(JobState.COMPLETED if known else JobState.UNKNOWN)


def dead(found: Found, letter: DeadLetter) -> Located:
    """A job in a dead letter. Its envelope is that of the last run's entry: the letter counts."""
    runs = 0 if letter.attempts is None else max(0, letter.attempts - found.envelope.attempt)
    return Located(
        JobState.FAILED,
        found.name,
        found.envelope,
        runs,
        reason=letter.reason,
        error=letter.error,
    )


def _waiting_or_active(keys: QueueKeys, group: str, found: Found) -> Steps[Located]:
    entry_id, name, envelope = found.entry_id, found.name, found.envelope
    held = yield Call(
        (command("XPENDING", keys.stream, group, entry_id, entry_id, 1),),
        lambda replies: unless_missing(replies[0]) or [],
    )
    if held:
        return Located(JobState.ACTIVE, name, envelope, held[0][3])
    return Located(JobState.WAITING, name, envelope)


def _delayed(member: bytes) -> Located:
    name, data = decode_member(member)
    return Located(JobState.DELAYED, name, decode(data))


def _read_counts(replies: list[Reply]) -> Counts:
    length, pending, delayed_count, dead = replies
    # No group yet means that no worker has ever started: then nothing is in flight.
    active = (unless_missing(pending) or [0])[0]
    total = checked(length)
    return Counts(max(0, total - active), active, checked(delayed_count), checked(dead))
