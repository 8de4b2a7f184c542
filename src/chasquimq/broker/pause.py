"""The queue's pause, as readers see it: ask for it, wait for its end.

Only the existence of `:paused` counts; anybody may set or delete it by hand. `:resumed` is the bell
that wakes readers at once; without it they find the pause gone when they next look.
"""

from chasquimq.broker.call import Call, Reply, call, checked, command
from chasquimq.wire.keys import QueueKeys


def is_paused(keys: QueueKeys) -> Call[bool]:
    """Whether the queue is paused now."""
    return call("EXISTS", keys.paused, read=bool)


def wait_for_resume(keys: QueueKeys, *, after: bytes, block_ms: int) -> Call[tuple[bool, bytes]]:
    """Wait for the bell, at most so long; then whether the pause still is, and the bell's place.

    `after` is the place of the last time: a bell that rang in between is heard at once.
    """
    requests = (
        command("XREAD", "COUNT", 1, "BLOCK", block_ms, "STREAMS", keys.resumed, after),
        command("EXISTS", keys.paused),
    )

    def parse(replies: list[Reply]) -> tuple[bool, bytes]:
        rung = checked(replies[0])
        return bool(checked(replies[1])), rung[0][1][-1][0] if rung else after

    return Call(requests, parse, block_ms=block_ms)
