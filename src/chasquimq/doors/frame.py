"""What both doors to a queue are built on: a sender, the workers' group, and the jobs' defaults.

Every subject has three classes. The first checks arguments and makes steps of them, without I/O;
the other two have the public methods, and only drive those steps, with and without await.
"""

import inspect
from typing import TypeVar

from chasquimq.arguments import NO_DEFAULTS, JobDefaults
from chasquimq.broker.call import Steps
from chasquimq.engine.producing import Producing
from chasquimq.engine.sender import Sender, SyncSender
from chasquimq.job import JobQueue

T = TypeVar("T")
C = TypeVar("C", bound=type)


def one_class(door: C) -> C:
    """A door whose methods, wherever they are written, name it in errors and warnings.

    "coroutine 'Queue.add' was never awaited" helps; the name of a part would not.
    """
    for part in door.__mro__:
        for name, member in vars(part).items():
            if inspect.isfunction(member) and not name.startswith("_"):
                member.__qualname__ = f"{door.__name__}.{name}"
    return door


class Frame:
    """What is known of a queue without asking the server."""

    def __init__(self, producing: Producing, group: str, defaults: JobDefaults) -> None:
        """`producing` has the steps of everything that changes the queue."""
        self._producing = producing
        self._group = group
        self._defaults = defaults
        self._is_closed = False

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._producing.keys.name

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    def _source(self) -> JobQueue | None:
        """Whom a job that this queue returns may ask for more; None if it cannot."""
        return None


class AsyncFrame(Frame):
    """The same with a sender for event loops."""

    def __init__(self, sender: Sender, group: str, defaults: JobDefaults) -> None:
        """Nothing is connected yet."""
        super().__init__(sender.producing, group, defaults)
        self._sender = sender
        # Whether a job that says nothing of its own has nothing but a name and data.
        self._adds_plainly = defaults is NO_DEFAULTS and sender.joins_plain

    async def _drive(self, steps: Steps[T]) -> T:
        return await self._sender.drive(steps)


class SyncFrame(Frame):
    """The same with a sender for ordinary functions."""

    def __init__(self, sender: SyncSender, group: str, defaults: JobDefaults) -> None:
        """Nothing is connected yet."""
        super().__init__(sender.producing, group, defaults)
        self._sender = sender

    def _drive(self, steps: Steps[T]) -> T:
        return self._sender.drive(steps)
