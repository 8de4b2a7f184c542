"""How far a stream of events was read: marks, what is missing after one, ranges, shares. Pure.

A mark is an entry id and its rank: how many entries the stream had been given up to it. The id says
where to read on. The rank says how many entries wait, without counting them, and, beside what the
server says it removed, whether any was trimmed unread: ids alone cannot tell.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from chasquimq.broker.pages import StreamHead
from chasquimq.errors import ConfigError, DecodeError
from chasquimq.wire.ids import StreamId


@dataclass(frozen=True, slots=True)
class Mark:
    """All entries up to `id`, itself included; `added` is None where its rank is not known."""

    id: StreamId
    added: int | None = None


Offset: TypeAlias = dict[str, Mark]
"""A mark for each queue."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Entries that are gone before they were read; `count` is None where nobody can tell."""

    after: StreamId
    reason: str
    count: int | None = None

    def describe(self, queue: str) -> str:
        """What is missing, for an error and for the row that stands for it."""
        many = "an unknown number of" if self.count is None else f"{self.count}"
        return f"queue {queue!r}: {many} events after {self.after} are missing, {self.reason}"


def end_of(head: StreamHead) -> Mark:
    """Everything a stream was given so far."""
    return Mark(head.last, head.added)


def beginning_of(head: StreamHead) -> Mark:
    """Just before the oldest entry that is still there."""
    if head.first is None:
        return end_of(head)
    return Mark(head.first.previous(), head.removed)


def loss_after(mark: Mark, head: StreamHead) -> Loss | None:
    """What of a stream is missing after a mark; None if all of it can be read.

    Exact where rank and server count are known. Elsewhere a stream whose oldest entry is younger
    than the mark counts as trimmed, although it may have been trimmed just up to the mark.
    """
    if head.last < mark.id or _went_back(mark, head):
        return Loss(mark.id, "the stream was deleted")
    if mark.added is None or head.removed is None:
        return _loss_by_id(mark, head)
    if head.removed > mark.added:
        return Loss(mark.id, "trimmed unread", head.removed - mark.added)
    if head.removed < mark.added and (head.first is None or head.first > mark.id):
        return Loss(mark.id, "the stream was deleted, and has grown again")
    return None


def _went_back(mark: Mark, head: StreamHead) -> bool:
    return mark.added is not None and head.added is not None and head.added < mark.added


def _loss_by_id(mark: Mark, head: StreamHead) -> Loss | None:
    nothing_is_gone = head.removed == 0
    is_at_end = head.last == mark.id
    if nothing_is_gone or is_at_end or mark.id == StreamId.MIN:
        return None
    if head.first is not None and head.first <= mark.id.next():
        return None
    return Loss(mark.id, "trimmed unread")


def split(first: StreamId, last: StreamId, parts: int) -> list[tuple[StreamId, StreamId]]:
    """At most `parts` ranges of about equal time, in order, that cover first to last exactly."""
    span_ms = last.ms - first.ms + 1
    count = max(1, min(parts, span_ms))
    cuts = [StreamId(first.ms + span_ms * at // count, 0) for at in range(1, count)]
    starts = [first, *cuts]
    ends = [*(cut.previous() for cut in cuts), last]
    return list(zip(starts, ends, strict=True))


def shares(backlogs: Sequence[int], limit: int) -> list[int]:
    """Parts of `limit` in proportion to each backlog, no larger than it; who waits gets some."""
    total = sum(backlogs)
    if total <= limit:
        return list(backlogs)
    return [min(each, max(1, limit * each // total)) if each else 0 for each in backlogs]


def to_json(offset: Mapping[str, Mark]) -> dict[str, Any]:
    """An offset as the checkpoint stores it."""
    return {queue: {"id": str(mark.id), "added": mark.added} for queue, mark in offset.items()}


def from_json(stored: Mapping[str, Any], queues: Iterable[str]) -> Offset:
    """The marks of those `queues` that a stored offset knows.

    Raises `ConfigError` for what no query of ours stored.
    """
    try:
        return {queue: _mark(stored[queue]) for queue in queues if queue in stored}
    except (KeyError, TypeError, AttributeError, ValueError, DecodeError) as error:
        msg = f"the checkpoint holds an offset that is not ours ({error}): use a new checkpoint"
        raise ConfigError(msg) from error


def _mark(stored: Mapping[str, Any]) -> Mark:
    added = stored["added"]
    return Mark(StreamId.parse(stored["id"]), None if added is None else int(added))
