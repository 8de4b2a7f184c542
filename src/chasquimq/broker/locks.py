"""Leader locks: take or renew one with a holder's token, ask who holds it, and release it."""

from chasquimq.broker import scripts
from chasquimq.broker.call import Call, call


def lead(lock: bytes, holder: str, ttl_s: int) -> Call[bool]:
    """Take or renew the lock; True while we hold it."""
    return scripts.LEAD.call(
        {"lock": lock}, {"holder": holder, "ttl_s": ttl_s}, read=bool, repeatable=True
    )


def release(lock: bytes, holder: str) -> Call[bool]:
    """Give the lock up if it is ours."""
    return scripts.RELEASE.call({"lock": lock}, {"holder": holder}, read=bool, repeatable=True)


def is_held(lock: bytes, holder: str) -> Call[bool]:
    """Whether the lock is this holder's now."""
    return call("GET", lock, read=lambda reply: bool(reply == holder.encode()))
