"""`ServerClock`: what time it is by the server, as far as one process can know without asking.

The server is asked now and then; in between its time goes on by the monotonic clock of this host,
which nobody sets. So leaders of a queue agree on what is due within the time that an answer takes,
whatever their own clocks say. What it misses for up to ten seconds: somebody who sets the server's
clock, and a host that was stopped with all of its clocks.
"""

from chasquimq.broker import upkeep
from chasquimq.broker.connection import Connection
from chasquimq.clock import SYSTEM_CLOCK, Clock

# Two clocks in step drift by less than a millisecond in that time.
_ASK_AGAIN_US = 10_000_000
# The clock lags by what the answer took at most: from here on it is asked once more, some times.
_PROMPT_US = 20_000
_MOST_QUESTIONS = 3
# By so much do both clocks of this host disagree about how much time has passed, if it was asleep:
# the monotonic one stands still then. (A wall clock that was set looks the same: one question.)
_SLEPT_US = 100_000


class ServerClock:
    """Asked by `look`, read by `now_ms`."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        """`clock` tells how much time has passed here, and nothing else."""
        self._clock = clock
        self._server_us = 0
        self._told_us = 0
        self._told_wall_us = 0
        # Of the connection that it was told over; another may lead to another server.
        self._reconnects = -1

    def now_ms(self) -> int:
        """Milliseconds since the epoch, by the server; before the first `look` it means nothing."""
        return (self._server_us + self._clock.monotonic_us() - self._told_us) // 1_000

    async def look(self, connection: Connection) -> None:
        """Ask the server, if what it said last is old or cannot be relied on."""
        if not self._is_stale(connection):
            return
        for _ in range(_MOST_QUESTIONS):
            asked_us = self._clock.monotonic_us()
            server_ms = await connection.run(upkeep.server_time_ms())
            self._server_us = server_ms * 1_000
            self._told_us = self._clock.monotonic_us()
            if self._told_us - asked_us <= _PROMPT_US:
                break
        self._told_wall_us = self._wall_us()
        self._reconnects = connection.reconnects

    def _is_stale(self, connection: Connection) -> bool:
        passed_us = self._clock.monotonic_us() - self._told_us
        has_slept = abs(self._wall_us() - self._told_wall_us - passed_us) > _SLEPT_US
        is_another = connection.reconnects != self._reconnects
        return passed_us > _ASK_AGAIN_US or has_slept or is_another

    def _wall_us(self) -> int:
        return self._clock.now_ms() * 1_000
