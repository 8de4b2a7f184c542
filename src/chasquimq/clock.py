"""The only reader of wall and monotonic time, replaceable in tests.

Two clocks, two uses: `now_ms` is the wall clock, for instants that other processes will read;
`monotonic_us` never steps back, for durations inside this process. Neither decides when a job is
due: for delayed ones that is the server's clock, inside the scripts, for recurring ones
`engine/server_clock.py`.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """What the engine needs to know about time."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch, by this host's wall clock."""
        ...

    def monotonic_us(self) -> int:
        """Microseconds from an arbitrary start; never steps back."""
        ...

    def monotonic_ns(self) -> int:
        """The same clock in nanoseconds, for who looks at it for every job."""
        ...


class SystemClock:
    """The host's own clocks."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch, by this host's wall clock."""
        return time.time_ns() // 1_000_000

    def monotonic_us(self) -> int:
        """Microseconds from an arbitrary start; never steps back."""
        return time.perf_counter_ns() // 1_000

    # Not a method around it: that would double what a look at the clock costs.
    monotonic_ns = staticmethod(time.perf_counter_ns)


class ManualClock:
    """A clock that moves only when it is told to, for tests."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        """Start both clocks at `now_ms`."""
        self._now_us = now_ms * 1_000

    def now_ms(self) -> int:
        """The wall clock, as last set."""
        return self._now_us // 1_000

    def monotonic_us(self) -> int:
        """The same instant in microseconds: this clock has no steps to hide."""
        return self._now_us

    def monotonic_ns(self) -> int:
        """The same instant in nanoseconds."""
        return self._now_us * 1_000

    def advance(self, ms: float) -> None:
        """Let `ms` milliseconds pass."""
        if ms < 0:
            msg = f"a clock cannot advance by {ms} ms: use a non-negative number"
            raise ValueError(msg)
        self._now_us += int(ms * 1_000)


SYSTEM_CLOCK = SystemClock()


def monotonic_s() -> float:
    """Seconds from an arbitrary start, never stepping back: for deadlines of real waiting.

    Not replaceable: a thread that waits on a socket waits in real time, whatever a test says.
    """
    return time.monotonic()
