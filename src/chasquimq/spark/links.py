"""Connections of one process to the servers of its queues, made when first needed."""

from types import TracebackType
from typing import Self, TypeVar

from chasquimq.broker.blocking import BlockingConnection
from chasquimq.broker.call import Call, Steps
from chasquimq.broker.options import ConnectionOptions
from chasquimq.broker.steps import drive_blocking
from chasquimq.broker.url import Target
from chasquimq.wire.keys import QueueKeys

T = TypeVar("T")


class Links:
    """One connection for each queue, since in a cluster each may live elsewhere.

    Spark copies readers and writers to other processes at will: a copy has no connections, and
    makes its own.
    """

    def __init__(self, target: Target) -> None:
        """Nothing is opened yet."""
        self._target = target
        self._open: dict[str, BlockingConnection] = {}

    def __repr__(self) -> str:
        """Show where it leads; never a secret."""
        return f"<Links to {self._target.safe_text} for {', '.join(self._open) or 'no queue yet'}>"

    def __reduce__(self) -> tuple[type[Self], tuple[Target]]:
        """Travel without the connections."""
        return type(self), (self._target,)

    def __enter__(self) -> Self:
        """For a task: all is closed when it ends."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()

    def run(self, keys: QueueKeys, call: Call[T]) -> T:
        """Carry out a call on the server of a queue."""
        return self._link(keys).run(call)

    def drive(self, keys: QueueKeys, steps: Steps[T]) -> T:
        """Carry out several calls, each chosen in the light of the answer before."""
        return drive_blocking(self._link(keys), steps)

    def _link(self, keys: QueueKeys) -> BlockingConnection:
        connection = self._open.get(keys.name)
        if connection is None:
            options = ConnectionOptions(client_name="chasquimq-spark")
            connection = BlockingConnection(self._target, options, slot_key=keys.tag)
            self._open[keys.name] = connection
        return connection

    def close(self) -> None:
        """Close all; a later call opens anew."""
        while self._open:
            self._open.popitem()[1].close()
