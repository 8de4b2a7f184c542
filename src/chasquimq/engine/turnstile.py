"""**Pure.** How many due jobs may join the line, so that a flood of them leaves room for new ones.

The stream is one line. Were all that is due let in at once, a new job would stand behind a million
others; were due jobs to wait until the line is short, a queue with a backlog would never run its
retries. So they may be half of the line, or some batches of it if it is short: a new job waits for
these at most, and due jobs have half of what the workers do, or all of it if nobody else wants it.
"""

from collections import deque

from chasquimq.broker.line import Line
from chasquimq.wire.ids import StreamId

# Enough to keep many workers busy between two looks at the line; at a thousand jobs a second, with
# batches of 256, a new job waits for a second.
_BATCHES = 4


class Turnstile:
    """Counts those that were let in and have not been read yet. It knows only its own.

    What a crash of the leader leaves behind: a line whose due jobs the next leader takes for new
    ones. It lets in as many again, once.
    """

    def __init__(self, batch: int) -> None:
        """Let in so many at a time."""
        self._batch = batch
        self._inside: deque[tuple[StreamId, int]] = deque()

    def entered(self, count: int, last: StreamId) -> None:
        """Note that so many were let in, the last of them with this entry id."""
        self._inside.append((last, count))

    def room(self, line: Line | None) -> int:
        """How many may be let in now: a batch, or none. Without readers there is no line."""
        if line is None:
            self._inside.clear()
            return self._batch
        while self._inside and self._inside[0][0] <= line.read_up_to:
            self._inside.popleft()
        # Those that were drained or removed unread are in no line any more.
        ours = min(line.waiting, sum(count for _, count in self._inside))
        others = line.waiting - ours
        return self._batch if ours + self._batch <= max(_BATCHES * self._batch, others) else 0

    def clear(self) -> None:
        """Forget them: the flood is over, or another lets them in."""
        self._inside.clear()
