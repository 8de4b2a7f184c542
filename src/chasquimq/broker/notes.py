"""What a running job says of itself: how far it is, and lines of a log."""

from chasquimq.broker.call import Call, Reply, all_checked, command
from chasquimq.wire.keys import QueueKeys


def set_progress(
    keys: QueueKeys,
    job_id: str,
    progress: int,
    *,
    ttl_s: int,
    event: tuple[int, list[bytes]] | None,
) -> Call[None]:
    """Store how far a job is; then tell it, if there is an event (the stream's cap, its fields)."""
    requests = [command("SET", keys.progress(job_id), progress, "EX", ttl_s)]
    if event is not None:
        cap, fields = event
        requests.append(command("XADD", keys.events, "MAXLEN", "~", cap, "*", *fields))
    return Call(requests, _nothing)


def append_log(keys: QueueKeys, job_id: str, line: bytes, *, cap: int, ttl_s: int) -> Call[int]:
    """Add a line to a job's log and say how many it has; about `cap` are kept.

    Repeatable: a line that stands there twice after a broken connection is better than none.
    """
    key = keys.log(job_id)
    requests = (
        # All or nothing: a log whose worker is killed in between would stay for good.
        command("MULTI"),
        command("XADD", key, "MAXLEN", "~", cap, "*", "line", line),
        command("EXPIRE", key, ttl_s),
        command("XLEN", key),
        command("EXEC"),
    )
    return Call(requests, lambda replies: int(all_checked(all_checked(replies)[-1])[-1]))


def _nothing(replies: list[Reply]) -> None:
    all_checked(replies)
