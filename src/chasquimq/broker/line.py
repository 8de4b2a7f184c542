"""The line before the workers: how many jobs wait in it, and how far it has been read."""

from dataclasses import dataclass

from chasquimq.broker.call import Call, Reply, checked, command, unless_missing
from chasquimq.wire.ids import StreamId
from chasquimq.wire.keys import QueueKeys


@dataclass(frozen=True, slots=True)
class Line:
    """The line at a moment."""

    waiting: int
    """Jobs that nobody has read."""
    read_up_to: StreamId
    """The last one that somebody has."""


def look(keys: QueueKeys) -> Call[Line | None]:
    """How the line stands; None if nobody has ever read from it. Costs the same for any length."""
    requests = (command("XLEN", keys.stream), command("XINFO", "GROUPS", keys.stream))

    def read(replies: list[Reply]) -> Line | None:
        length, groups = checked(replies[0]), unless_missing(replies[1])
        if not groups:
            return None
        # A queue has one group, whatever its name.
        facts = dict(zip(groups[0][::2], groups[0][1::2], strict=True))
        waiting = max(0, length - facts[b"pending"])
        return Line(waiting, StreamId.parse(facts[b"last-delivered-id"]))

    return Call(requests, read)
