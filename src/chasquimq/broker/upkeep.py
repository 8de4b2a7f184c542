"""Changes that people make to what is queued: pause, discard, rewrite, move, wipe."""

from collections.abc import Sequence

from chasquimq.broker import scripts
from chasquimq.broker.call import Call, Reply, call
from chasquimq.broker.seek import Found
from chasquimq.broker.stream import Telling
from chasquimq.wire.entry import job_fields
from chasquimq.wire.keys import QueueKeys, of_finished_job, of_unfinished_job, once_a_queue
from chasquimq.wire.member import encode_member


def set_paused(keys: QueueKeys, *, paused: bool, telling: Telling) -> Call[bool]:
    """Pause a queue or let it go on; True if that changed anything."""
    return scripts.SET_PAUSED.call(
        {"paused": keys.paused, "resumed": keys.resumed, "events": keys.events},
        {"wanted": int(paused), "ts_ms": telling.ts_ms, "events_cap": telling.cap},
        read=bool,
        repeatable=True,
    )


def discard_waiting(
    keys: QueueKeys, entries: Sequence[tuple[bytes, str]], *, dry_run: bool
) -> Call[list[bool]]:
    """Delete entries, given with the ids of their jobs; which of them waited and are gone."""
    return scripts.DISCARD_WAITING.call(
        {"stream": keys.stream},
        {"dry_run": int(dry_run), "keys_per_job": len(of_unfinished_job(keys, ""))},
        read=_flags,
        repeatable=dry_run,
        more_keys=[key for _, job_id in entries for key in of_unfinished_job(keys, job_id)],
        more_arguments=[entry_id for entry_id, _ in entries],
    )


def discard_delayed(
    keys: QueueKeys, members: Sequence[tuple[bytes, str]], *, dry_run: bool
) -> Call[list[bool]]:
    """Delete members of the delayed set, given with the ids of their jobs; which were there."""
    return scripts.DISCARD_DELAYED.call(
        {"delayed": keys.delayed},
        {"dry_run": int(dry_run), "keys_per_job": len(of_unfinished_job(keys, ""))},
        read=_flags,
        repeatable=dry_run,
        more_keys=[key for _, job_id in members for key in of_unfinished_job(keys, job_id)],
        more_arguments=[member for member, _ in members],
    )


def forget(
    keys: QueueKeys, job_ids: Sequence[str], *, done_before_ms: int | None, dry_run: bool
) -> Call[list[bool]]:
    """Forget jobs that completed, by that time if one is given; which of them did."""
    return scripts.FORGET.call(
        {},
        {
            "dry_run": int(dry_run),
            "keys_per_job": len(of_finished_job(keys, "")),
            "done_before_ms": "" if done_before_ms is None else done_before_ms,
        },
        read=_flags,
        repeatable=dry_run,
        more_keys=[key for job_id in job_ids for key in of_finished_job(keys, job_id)],
    )


def wipe(keys: QueueKeys, *, force: bool, dry_run: bool) -> Call[int]:
    """Delete all keys that a queue has once; below 0, how many jobs in flight prevent it."""
    stream, *others = once_a_queue(keys)
    return scripts.WIPE.call(
        {"stream": stream},
        {"force": int(force), "dry_run": int(dry_run)},
        read=int,
        repeatable=True,
        more_keys=others,
    )


def unlink(names: Sequence[bytes]) -> Call[int]:
    """Delete keys; counts those that were still there."""
    return call("UNLINK", *names, read=int)


def ping() -> Call[bool]:
    """True once the server has answered."""
    return call("PING", read=bool)


def server_time_ms() -> Call[int]:
    """What the server's clock says, by which the ids of entries are made."""
    return call("TIME", read=lambda reply: int(reply[0]) * 1_000 + int(reply[1]) // 1_000)


def rewrite_waiting(keys: QueueKeys, found: Found, envelope: bytes) -> Call[bool]:
    """Put another envelope in place of an entry that waits; False if it does not."""
    return scripts.REWRITE_WAITING.call(
        {"stream": keys.stream},
        {"entry_id": found.entry_id},
        read=bool,
        more_arguments=job_fields(envelope, found.name),
    )


def rewrite_delayed(
    keys: QueueKeys, job_id: str, member: bytes, *, name: str, envelope: bytes
) -> Call[bool]:
    """Put another envelope in place of a delayed one; False if it is not there any more."""
    return scripts.REWRITE_DELAYED.call(
        {"delayed": keys.delayed, "index": keys.delayed_index(job_id)},
        {"member": member, "changed": encode_member(name, envelope)},
        read=bool,
    )


def promote_one(
    keys: QueueKeys, member: bytes, *, name: str, data: bytes, job_id: str, telling: Telling
) -> Call[bool]:
    """Move a delayed job to the stream; False if it is not delayed any more."""
    return scripts.PROMOTE_ONE.call(
        {
            "delayed": keys.delayed,
            "stream": keys.stream,
            "index": keys.delayed_index(job_id),
            "events": keys.events,
        },
        {
            "member": member,
            "ts_ms": telling.ts_ms,
            "events_cap": telling.cap,
            "job_id": job_id,
            "name": name,
        },
        read=bool,
        more_arguments=job_fields(data, name),
    )


def reschedule(
    keys: QueueKeys,
    member: bytes,
    *,
    job: tuple[str, str],
    due: tuple[int, int | None],
    grace_s: int,
    telling: Telling,
) -> Call[bool]:
    """Give a delayed job (its id and name) another time; False if it is not delayed any more.

    `due` is a delay in ms, or an instant in epoch ms beside it.
    """
    job_id, name = job
    delay_ms, run_at_ms = due
    return scripts.RESCHEDULE.call(
        {
            "delayed": keys.delayed,
            "index": keys.delayed_index(job_id),
            "marker": keys.dedup_marker(job_id),
            "events": keys.events,
            "wake": keys.wake,
        },
        {
            "member": member,
            "delay_ms": delay_ms,
            "run_at_ms": "" if run_at_ms is None else run_at_ms,
            "grace_s": grace_s,
            "ts_ms": telling.ts_ms,
            "events_cap": telling.cap,
            "job_id": job_id,
            "name": name,
        },
        read=bool,
        repeatable=True,
    )


def _flags(reply: Reply) -> list[bool]:
    return [each == ord("1") for each in reply]
