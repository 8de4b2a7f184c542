"""Decides, on the driver, what a query of events reads: from where, up to where, in which tasks."""

from collections.abc import Mapping
from dataclasses import dataclass

from chasquimq.broker import pages
from chasquimq.broker.call import together
from chasquimq.broker.pages import StreamHead
from chasquimq.errors import DataLossError
from chasquimq.spark.links import Links
from chasquimq.spark.offsets import (
    Loss,
    Mark,
    Offset,
    beginning_of,
    end_of,
    loss_after,
    shares,
    split,
)
from chasquimq.spark.options import EventsOptions, Moment, Position
from chasquimq.wire.ids import StreamId
from chasquimq.wire.keys import QueueKeys

# Entries looked at in one step on the way to the end of a limited batch.
_STRIDE = 10_000
_USUAL_PARTS = 2


@dataclass(frozen=True, slots=True)
class Range:
    """What one task reads of one queue: from an entry that was there, up to an id."""

    queue: str
    first: str
    last: str


@dataclass(frozen=True, slots=True)
class Gap:
    """What nobody can read of one queue."""

    queue: str
    loss: Loss


class Planner:
    """Asks the server how the streams stand; copies of it ask anew."""

    def __init__(self, options: EventsOptions) -> None:
        """Nothing is connected yet."""
        self._options = options
        self._links = Links(options.target)
        self._keys = {queue: QueueKeys(queue) for queue in options.queues}

    def heads(self) -> dict[str, StreamHead]:
        """How each stream stands now."""
        return {
            queue: self._links.run(keys, pages.head(keys.events))
            for queue, keys in self._keys.items()
        }

    def starting(self, heads: Mapping[str, StreamHead], otherwise: Position) -> Offset:
        """Where a new query begins."""
        asked = self._options.starting
        return {
            queue: mark_at(asked.of(queue, otherwise) if asked else otherwise, head)
            for queue, head in heads.items()
        }

    def ending(self, heads: Mapping[str, StreamHead]) -> Offset:
        """Where a batch ends."""
        asked = self._options.ending
        marks = {
            queue: mark_at(asked.of(queue, "latest") if asked else "latest", head)
            for queue, head in heads.items()
        }
        return {
            queue: min(mark, end_of(heads[queue]), key=lambda each: each.id)
            for queue, mark in marks.items()
        }

    def next_end(
        self, start: Offset, ends: Offset, heads: Mapping[str, StreamHead], limit: int | None
    ) -> Offset:
        """How far the next micro-batch goes: to `ends`, or so far that it has `limit` rows."""
        begins = {queue: start.get(queue) or beginning_of(head) for queue, head in heads.items()}
        for queue, head in heads.items():
            if queue in start:
                self._check(queue, start[queue], head)
        # Never back: a stream that was deleted and is still empty gives nothing to move on to.
        ends = {
            queue: begins[queue]
            if head.length == 0 and head.last < begins[queue].id
            else ends[queue]
            for queue, head in heads.items()
        }
        if limit is None:
            return ends
        backlogs = [_backlog(begins[queue], ends[queue], heads[queue]) for queue in heads]
        if sum(backlogs) <= limit:
            return ends
        return {
            queue: self._walk(queue, begins[queue], ends[queue], share, heads[queue].removed)
            for queue, share in zip(heads, shares(backlogs, limit), strict=True)
        }

    def tasks(self, start: Offset, end: Offset) -> list[Range | Gap]:
        """What is between two offsets, in parts for tasks, with what is missing."""
        parts: list[Range | Gap] = []
        for queue in self._keys:
            if queue not in end or start.get(queue) == end[queue]:
                continue
            parts += self._tasks_of(queue, start.get(queue), end[queue])
        return parts

    def close(self) -> None:
        """Close the connections."""
        self._links.close()

    def _tasks_of(self, queue: str, mark: Mark | None, end: Mark) -> list[Range | Gap]:
        keys = self._keys[queue]
        after = StreamId.MIN if mark is None or end.id < mark.id else mark.id
        first = self._first(keys, after, end.id)
        # Asked after the first entry was seen: what is trimmed in between is then told as lost.
        head = self._links.run(keys, pages.head(keys.events))
        loss = None if mark is None else self._check(queue, mark, head)
        gaps: list[Range | Gap] = [] if loss is None else [Gap(queue, loss)]
        if first is None:
            return gaps
        ranges = split(first, end.id, self._parts(first, end, head))
        calls = [pages.entries(keys.events, str(low), str(high), 1) for low, high in ranges]
        found = self._links.run(keys, together(calls))
        return gaps + [
            Range(queue, entries[0][0].decode(), str(high))
            for (_, high), entries in zip(ranges, found, strict=True)
            if entries
        ]

    def _first(self, keys: QueueKeys, after: StreamId, last: StreamId) -> StreamId | None:
        if after >= last:
            return None
        found = self._links.run(keys, pages.entries(keys.events, f"({after}", str(last), 1))
        return StreamId.parse(found[0][0]) if found else None

    def _parts(self, first: StreamId, end: Mark, head: StreamHead) -> int:
        wanted = self._options.min_partitions
        if wanted is not None:
            # Rounded up: at least so many in all.
            return -(-wanted // len(self._options.queues))
        waiting = _backlog(Mark(first), end, head)
        return 1 if waiting <= self._options.fetch_count else _USUAL_PARTS

    def _check(self, queue: str, mark: Mark, head: StreamHead) -> Loss | None:
        loss = loss_after(mark, head)
        if loss is not None and self._options.fail_on_data_loss:
            raise data_loss(queue, loss)
        return loss

    def _walk(self, queue: str, start: Mark, end: Mark, count: int, removed: int | None) -> Mark:
        """The mark `count` entries after `start`, or `end` where there are not so many."""
        keys, at, left = self._keys[queue], start.id, count
        if end.id < at:
            at = StreamId.MIN
        while left:
            wanted = min(left, _STRIDE)
            page = self._links.run(keys, pages.entries(keys.events, f"({at}", str(end.id), wanted))
            if len(page) < wanted:
                return end
            at = StreamId.parse(page[-1][0])
            left -= wanted
        if start.added is None or removed is None:
            return Mark(at)
        return Mark(at, max(start.added, removed) + count)


def mark_at(position: Position, head: StreamHead) -> Mark:
    """The mark just before a place in a stream."""
    match position:
        case "earliest":
            return beginning_of(head)
        case "latest":
            return end_of(head)
        case Moment(ms):
            moment = StreamId(ms, 0)
            if head.first is None or moment <= head.first:
                return beginning_of(head)
            return end_of(head) if moment > head.last else Mark(moment.previous())
        case StreamId():
            return Mark(position.previous() if position > StreamId.MIN else position)


def data_loss(queue: str, loss: Loss) -> DataLossError:
    """The error for what is missing."""
    msg = (
        f"{loss.describe(queue)}; read more often, raise events_max_stream_len on workers and "
        "producers, or set failOnDataLoss to false to go on with a row that stands for them"
    )
    return DataLossError(msg)


def _backlog(start: Mark, end: Mark, head: StreamHead) -> int:
    """How many entries are between two marks; where ranks are unknown, at most so many."""
    if start.id == end.id:
        return 0
    if start.added is None or end.added is None or head.removed is None or end.id < start.id:
        return head.length
    return max(0, end.added - max(start.added, head.removed))
