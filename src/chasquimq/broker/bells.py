"""Bells: lists on which a leader blocks until a script rings."""

from chasquimq.broker.call import Call, checked, command


def wait_for_ring(key: bytes, timeout_ms: int) -> Call[bool]:
    """Block until somebody rings, or until the time is over; whether somebody did."""
    # Redis 6.2 cuts off to whole ms, and 0.001 s ends up as 0, which blocks for ever; hence the
    # half.
    request = command("BLPOP", key, f"{(max(1, timeout_ms) + 0.5) / 1_000:.4f}")
    return Call((request,), lambda replies: bool(checked(replies[0])), block_ms=timeout_ms)
