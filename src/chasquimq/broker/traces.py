"""What a job carries of the trace in which it was added: written with the add, read by its runs.

In a key of its own, because neither the envelope nor a member of the delayed set has room for it,
and a key survives delay, retry and replay.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from hiredis import ReplyError

from chasquimq.broker.call import Call, Reply, all_checked, call, command
from chasquimq.wire.keys import QueueKeys

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Carried:
    """What one job carries, and for how long it is kept."""

    job_id: str
    value: bytes
    ttl_s: int


def carrying(keys: QueueKeys, carried: Sequence[Carried], add: Call[T]) -> Call[T]:
    """`add`, with what its jobs carry written just before it, in the same pipeline.

    Before, so that no worker is faster. A refusal of these writes, or their loss, never makes the
    add fail. An id that is taken keeps what its first job carries.
    """
    writes = [
        command(b"SET", keys.trace(each.job_id), each.value, b"NX", b"EX", each.ttl_s)
        for each in carried
    ]
    return replace(
        add,
        requests=[*writes, *add.requests],
        parse=lambda replies: add.parse(replies[len(writes) :]),
    )


def carried_by(keys: QueueKeys, job_ids: Sequence[str]) -> Call[list[bytes | None]]:
    """What each job carries, None where there is nothing that could be read."""
    requests = [command(b"GET", keys.trace(job_id)) for job_id in job_ids]
    return Call(requests, _read_carried)


def forget(keys: QueueKeys, job_ids: Sequence[str]) -> Call[int]:
    """Drop what jobs carry that will not run again."""
    return call(b"UNLINK", *map(keys.trace, job_ids), read=int)


def _read_carried(replies: list[Reply]) -> list[bytes | None]:
    """One key of another kind hides nothing of other jobs; a server that refuses all is told."""
    if all(isinstance(each, ReplyError) for each in replies):
        all_checked(replies)
    return [each if isinstance(each, bytes) else None for each in replies]
