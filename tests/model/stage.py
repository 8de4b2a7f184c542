"""What the machine stands on: a queue and connections that all examples share, and operations.

Operations and not rules: of hypothesis' rules each example leaves many out, and hardly any example
would come as far as a late retry of a job that somebody else has taken over.
"""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from hypothesis.strategies import SearchStrategy

from chasquimq import SyncQueue
from chasquimq.arguments import job_defaults
from chasquimq.broker.blocking import BlockingConnection
from chasquimq.broker.call import Call
from chasquimq.broker.options import ConnectionOptions
from chasquimq.broker.url import parse_url
from chasquimq.clock import ManualClock
from chasquimq.config import ProducerConfig
from chasquimq.doors.frame import SyncFrame
from chasquimq.engine.sender import SyncSender
from chasquimq.wire.keys import QueueKeys
from tests.model.values import MAX_STREAM, START_MS

T = TypeVar("T")

CONSUMERS = ("c1", "c2")


@dataclass(frozen=True)
class Operation:
    """Something that can be done to both queues: when it means something, and with what."""

    run: Callable[..., None]
    weight: int
    when: Callable[[Any], object]
    arguments: dict[str, SearchStrategy[Any]]


OPERATIONS: list[Operation] = []


def operation(
    *, weight: int = 1, when: Callable[[Any], object] = lambda _: True, **arguments: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a method an operation; `weight` is how often it is tried among all."""

    def register(run: Callable[..., None]) -> Callable[..., None]:
        OPERATIONS.append(Operation(run, weight, when, arguments))
        return run

    return register


class AtOnce:
    """A connection as roles use it, over one that blocks: nothing is ever waited for."""

    def __init__(self, connection: BlockingConnection) -> None:
        self._connection = connection

    async def run(self, call: Call[T]) -> T:
        return self._connection.run(call)

    def sibling(self) -> "AtOnce":
        return self


def at_once(step: Coroutine[Any, Any, T]) -> T:
    """What a step returns that waits for nothing."""
    try:
        step.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    message = f"{step} waits for something"
    raise AssertionError(message)


class ClockedQueue(SyncQueue):
    """A queue whose clock is years behind the server's: it must not matter but to what recurs."""

    def __init__(self, name: str, url: str, clock: ManualClock) -> None:
        config = ProducerConfig(queue_name=name, max_stream_len=MAX_STREAM, max_delay_secs=0)
        sender = SyncSender(parse_url(url), config, clock=clock)
        SyncFrame.__init__(self, sender, "default", job_defaults(None))


class Stage:
    """What all examples of one run share: connections are dear, a queue is swept in between."""

    def __init__(self, server, queue_name: str) -> None:
        self.keys = QueueKeys(queue_name)
        self.client = server.client()
        self.clock = ManualClock(START_MS)
        self.queue = ClockedQueue(queue_name, server.socket_url, self.clock)
        self.connection = BlockingConnection(
            parse_url(server.socket_url), ConnectionOptions(), slot_key=self.keys.tag
        )

    def rewind(self) -> None:
        """Let the clock begin anew: the same steps have to come to the same windows."""
        ManualClock.__init__(self.clock, START_MS)

    def close(self) -> None:
        self.queue.close()
        self.connection.close()
