"""The jobs of a run, such as one write of a table: add each once, forget the run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from chasquimq.broker import scripts
from chasquimq.broker.call import Call, call
from chasquimq.broker.stream import Telling
from chasquimq.wire.codec import pack_for_script
from chasquimq.wire.keys import QueueKeys

ADDED = "1"
ADDED_BEFORE = "0"
TAKEN = "T"


class RunJob(NamedTuple):
    """A job of a run, due after `delay_ms` or at `run_at_ms`, else now.

    `id` must be the same each time the run comes to this job. `is_unique` also keeps it from being
    added where any other producer took the id.
    """

    id: str
    envelope: bytes
    name: str = ""
    delay_ms: int = 0
    run_at_ms: int | None = None
    is_unique: bool = False


@dataclass(frozen=True, slots=True)
class Memory:
    """How long a run is remembered after its last add, and an id after its job was due."""

    run_ttl_s: int
    grace_s: int


def add(
    keys: QueueKeys,
    run_id: str,
    jobs: Sequence[RunJob],
    *,
    limit: int,
    memory: Memory,
    telling: Telling,
) -> Call[str]:
    """Add those jobs that the run has not added yet, in order; one character a job dealt with.

    The answer is shorter than `jobs` where the stream held `limit` entries: send the rest again.
    Repeatable, and safe to send from several places at once: the run's set decides.
    """
    asked: list[bytes | str | int] = []
    more_keys: list[bytes] = []
    for job in jobs:
        job_id, envelope, name, delay_ms, run_at_ms, is_unique = job
        is_timed = delay_ms > 0 or run_at_ms is not None
        asked += (job_id, name, envelope, int(is_unique), delay_ms)
        asked.append("" if run_at_ms is None else run_at_ms)
        if is_unique or is_timed:
            more_keys += (keys.delayed_index(job_id), keys.dedup_marker(job_id))
    return scripts.ADD_RUN.call(
        {
            "stream": keys.stream,
            "delayed": keys.delayed,
            "events": keys.events,
            "wake": keys.wake,
            "seen": keys.seen(run_id),
        },
        {
            "seen_ttl_s": memory.run_ttl_s,
            "cap": limit,
            "ts_ms": telling.ts_ms,
            "events_cap": telling.cap,
            "grace_s": memory.grace_s,
            # Packed, and not six arguments a job: less work here and at the server.
            "jobs": pack_for_script(asked),
        },
        read=bytes.decode,
        repeatable=True,
        insistent=True,
        more_keys=more_keys,
    )


def pace(keys: QueueKeys, run_id: str, count: int, per_s: int) -> Call[int]:
    """Say that so many were added; answers for how many ms whoever did must add no more.

    Kept by the server's clock, for all who add for this run. Sent twice, it only waits longer.
    """
    return scripts.PACE.call(
        {"pace": keys.pace(run_id)},
        {"count": count, "per_s": per_s},
        read=int,
        repeatable=True,
    )


def added(keys: QueueKeys, run_id: str) -> Call[int]:
    """How many jobs the run has added, as long as it is remembered."""
    return call("SCARD", keys.seen(run_id), read=int)


def remember(keys: QueueKeys, run_id: str, ttl_s: int) -> Call[bool]:
    """Remember for so long, from now, what the run has added; whether it is remembered."""
    return call("EXPIRE", keys.seen(run_id), ttl_s, read=bool)


def begin(keys: QueueKeys, run_id: str, note: str, ttl_s: int, *, step: int) -> Call[bool]:
    """Keep what is known of a run, unless something is; whether nothing was."""
    return call("SET", keys.run(run_id), f"{step} {note}", "NX", "EX", ttl_s, read=bool)


def note(keys: QueueKeys, run_id: str, note: str, ttl_s: int, *, step: int) -> Call[bool]:
    """Replace what is known of a run, unless that is of a later step; whether it was replaced."""
    return scripts.NOTE.call(
        {"run": keys.run(run_id)},
        {"step": step, "note": note, "ttl_s": ttl_s},
        read=bool,
        repeatable=True,
    )


def noted(keys: QueueKeys, run_id: str) -> Call[str | None]:
    """What is known of a run, None if nothing is."""
    return call(
        "GET",
        keys.run(run_id),
        read=lambda reply: reply and reply.decode().partition(" ")[2],
    )
