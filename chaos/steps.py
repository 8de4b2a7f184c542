"""Where in the life of a delivery a worker can be made to die.

Nothing in the library knows of this: the public metrics sink is told of a read before anything of
it is begun, and of a run before its acknowledgement leaves. When an acknowledgement has left is
seen at the link that writes it.
"""

import asyncio
from collections.abc import Callable, Sequence

from chasquimq.broker import scripts
from chasquimq.broker.call import bulks
from chasquimq.broker.link import Link, Pending
from chasquimq.metrics import JobOutcome, NoopSink, ReaderBatch

STEPS = ("after-read", "in-handler", "before-ack", "in-flush")


def acknowledgements(stream: bytes) -> tuple[bytes, ...]:
    """What is in a request that acknowledges entries of this stream: one or the other.

    A bare `XACKDEL` is what a worker sends that tells and keeps nothing, where the server has it;
    with the stream, as every connection asks by an `XACKDEL` of its own whether it has.
    """
    return scripts.COMPLETE.sha, bulks((b"XACKDEL", stream))


class Steps(NoopSink):
    """Calls `die` when the step that is armed is reached; in between it does nothing."""

    def __init__(self, die: Callable[[str], None]) -> None:
        """No step is armed."""
        self._die = die
        self._armed = ""

    def arm(self, step: str) -> None:
        """Die when this step is reached the next time; never, if it is empty."""
        self._armed = step

    def reached(self, step: str) -> None:
        """This is the step."""
        if step == self._armed:
            self._die(step)

    def reader_batch(self, batch: ReaderBatch) -> None:  # noqa: ARG002
        """Entries were read and nothing of them has begun."""
        self.reached("after-read")

    def job_outcome(self, outcome: JobOutcome) -> None:  # noqa: ARG002
        """A handler has ended and nothing of it is on its way."""
        self.reached("before-ack")

    def watch_flushes(self, stream: bytes) -> None:
        """See every acknowledgement that leaves this process, from here on."""
        markers, send = acknowledgements(stream), Link.send

        def seen(link: Link, requests: Sequence[bytes], block_ms: int = 0) -> Pending:
            pending = send(link, requests, block_ms)
            if self._armed == "in-flush" and _is_among(markers, requests):
                # The link writes in a callback that was asked for before this one, so the two run
                # in the same turn; the answer is heard in a later one.
                asyncio.get_running_loop().call_soon(self._wrote, link)
            return pending

        Link.send = seen  # type: ignore[assignment, method-assign]

    def _wrote(self, link: Link) -> None:
        transport = link._transport  # noqa: SLF001
        # What a lost link was given has not left, nor what a full socket did not take.
        if link.lost is None and transport and not transport.get_write_buffer_size():
            self.reached("in-flush")


def _is_among(markers: Sequence[bytes], requests: Sequence[bytes]) -> bool:
    return any(marker in request for marker in markers for request in requests)
