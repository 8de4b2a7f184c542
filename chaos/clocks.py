"""The true clocks of the machine, and a false one for those whose clock is skewed.

A skew is of the whole process: `time.time` and `time.time_ns` are replaced before the library is
used, as a wrong clock of the machine would be seen. What is written into the history is always read
off the true ones.
"""

import time

_true_ns = time.time_ns
_true_s = time.time


def now_ms() -> int:
    """The true wall clock, in milliseconds: that of the servers."""
    return _true_ns() // 1_000_000


def now_us() -> int:
    """The monotonic clock that all processes of this machine share, in microseconds."""
    return time.monotonic_ns() // 1_000


def wrong_by_ms() -> int:
    """How far this process's wall clock, as the library reads it, is from the true one."""
    return round((time.time_ns() - _true_ns()) / 1_000_000)


def skew(ms: int) -> None:
    """Set this process's wall clock wrong by so much, for good."""
    time.time_ns = lambda: _true_ns() + ms * 1_000_000
    time.time = lambda: _true_s() + ms / 1_000
