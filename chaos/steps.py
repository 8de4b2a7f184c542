"""Where in the life of a delivery a worker can be made to die.

Nothing in the library knows of this: the public metrics sink is told of a read before anything of
it is begun, and of a run before its acknowledgement leaves. A few turns of the event loop later the
acknowledgement is with the server, or half of it.
"""

import asyncio
from collections.abc import Callable

from chasquimq.metrics import JobOutcome, NoopSink, ReaderBatch

STEPS = ("after-read", "in-handler", "before-ack", "in-flush")

# The first turn gathers what is to be acknowledged, the next ones send it.
_TURNS = 2


class Steps(NoopSink):
    """Calls `die` when the step that is armed is reached; in between it does nothing."""

    def __init__(self, die: Callable[[], None]) -> None:
        """No step is armed."""
        self._die = die
        self._armed = ""

    def arm(self, step: str) -> None:
        """Die when this step is reached the next time."""
        self._armed = step

    def reached(self, step: str) -> None:
        """This is the step."""
        if step == self._armed:
            self._die()

    def reader_batch(self, batch: ReaderBatch) -> None:  # noqa: ARG002
        """Entries were read and nothing of them has begun."""
        self.reached("after-read")

    def job_outcome(self, outcome: JobOutcome) -> None:  # noqa: ARG002
        """A handler has ended and nothing of it is on its way."""
        self.reached("before-ack")
        if self._armed == "in-flush":
            self._die_after(_TURNS)

    def _die_after(self, turns: int) -> None:
        if turns == 0:
            self._die()
            return
        asyncio.get_running_loop().call_soon(self._die_after, turns - 1)
