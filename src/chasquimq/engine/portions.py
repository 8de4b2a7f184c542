"""Cuts what travels in one call of a script into portions that hold no server up. Pure."""

from collections.abc import Sequence

CHUNK, CHUNK_BYTES = 1_000, 8 << 20
"""Jobs in one script call: enough to be cheap, few enough not to hold the server up."""

SETTLED_BYTES = 1 << 20
"""Of results and retries in one. 64 MB of retries in one call: 350 ms, in which nobody is served,
and 120 MB more memory; a server may also refuse to take as much as one argument."""


def portions(
    positions: Sequence[int], most: int, sizes: Sequence[int], *, most_bytes: int = CHUNK_BYTES
) -> list[Sequence[int]]:
    """Positions in portions of at most `most` and about `most_bytes`, in their order.

    What is larger by itself travels alone.
    """
    if len(positions) <= most and sum(sizes) <= most_bytes:
        return [positions] if positions else []
    parts: list[list[int]] = []
    room = 0
    for at in positions:
        if not parts or len(parts[-1]) >= most or sizes[at] > room:
            parts.append([])
            room = most_bytes
        parts[-1].append(at)
        room -= sizes[at]
    return list(parts)
