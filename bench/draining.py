"""How long a queue takes from its first job to its last, as the server sees it.

The start of processes does not count: the time runs from when the queue begins to shrink.
"""

import time
from collections.abc import Callable

_LOOK_S = 0.005
_LONGEST_S = 600


def drained_s(depth: Callable[[], int], go: Callable[[], object]) -> float:
    """Let workers begin, and return how long they took."""
    full = depth()
    go()
    deadline_s = time.monotonic() + _LONGEST_S
    _wait(lambda: depth() < full, deadline_s)
    began_s = time.perf_counter()
    _wait(lambda: depth() == 0, deadline_s)
    return time.perf_counter() - began_s


def _wait(is_so: Callable[[], bool], deadline_s: float) -> None:
    while not is_so():
        if time.monotonic() > deadline_s:
            msg = f"the queue was not worked off within {_LONGEST_S} s"
            raise RuntimeError(msg)
        time.sleep(_LOOK_S)
