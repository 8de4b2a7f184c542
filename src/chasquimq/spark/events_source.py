"""`chasquimq_events`: the events of queues as a table, in a batch or as a stream."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from chasquimq.broker.pages import StreamHead
from chasquimq.errors import ConfigError
from chasquimq.spark import schemas
from chasquimq.spark.batches import arrow_schema, batch, uncollected
from chasquimq.spark.event_rows import event_columns, loss_columns
from chasquimq.spark.links import Links
from chasquimq.spark.offsets import Offset, end_of, from_json, to_json
from chasquimq.spark.options import EventsOptions, Moment, Position
from chasquimq.spark.planning import Gap, Planner, Range, data_loss
from chasquimq.spark.schemas import Column
from chasquimq.spark.source import ChasquiSource, Part, guarded_pages
from chasquimq.wire.ids import StreamId
from chasquimq.wire.keys import QueueKeys


class EventsSource(ChasquiSource[EventsOptions]):
    """The events of one or more queues; each row is one event.

    Name: `chasquimq_events`. Options: `EventsOptions`. Schema: `schemas.EVENTS`. Partitions: ranges
    of entry ids. Rows of a partition are in the order of the stream; queues are not merged.

        spark.read.format("chasquimq_events").option("queue", "emails").load()
        spark.readStream.format("chasquimq_events").option("queue", "emails,bills").load()
    """

    format_name = "chasquimq_events"
    options_type = EventsOptions
    columns = schemas.EVENTS

    def all_columns(self) -> tuple[Column, ...]:
        """Our columns, with the headers if they were asked for."""
        return (*self.columns, schemas.HEADERS) if self.typed.include_headers else self.columns

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch: what is there when it is planned."""
        _refuse_if_given("maxOffsetsPerTrigger", self.typed.max_offsets_per_trigger, "a stream")
        _refuse_backwards(self.typed)
        return EventsReader(self.typed, self.checked_schema(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 -- Spark's name
        """A stream: what is told from now on, or from where the checkpoint says."""
        _refuse_if_given("endingOffsets", self.typed.ending, "a batch")
        return EventsStreamReader(self.typed, self.checked_schema(schema))


class EventsReader(DataSourceReader):
    """Reads what is between two places, as they were when the query was planned.

    Takes no conditions from Spark (`pushFilters`): Spark 4.3 keeps what it planned for a filtered
    query and reads the next one over the same frame from that, so that rows would be missing.
    """

    def __init__(self, options: EventsOptions, schema: StructType) -> None:
        """Keep values only: this is copied to the tasks."""
        self._options = options
        self._schema = arrow_schema(schema)

    def partitions(self) -> Sequence[InputPartition]:
        """Ranges of ids, about equal in time."""
        planner = Planner(self._options)
        try:
            heads = planner.heads()
            ends = planner.ending(heads)
            starts = {
                queue: mark if mark.id < ends[queue].id else ends[queue]
                for queue, mark in planner.starting(heads, "earliest").items()
            }
            return [Part(each) for each in planner.tasks(starts, ends)]
        finally:
            planner.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The events of one range."""
        # Spark makes up a partition of its own where we gave none.
        if partition.value is None:
            return iter(())
        return uncollected(read_events(self._options, self._schema, partition.value))


class EventsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the streams; its offsets are entry ids with their ranks.

    Nothing is kept on the server. Spark's checkpoint says how far a query came; after a crash it
    plans the last batch anew from there, so what is missing is looked for in every plan.
    """

    def __init__(self, options: EventsOptions, schema: StructType) -> None:
        """Keep values only: this is copied to the tasks."""
        self._options = options
        self._schema = arrow_schema(schema)
        self._planner = Planner(options)
        self._initial: dict[str, Any] | None = None
        self._final: Offset | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 -- Spark's name
        """Where a new query begins; kept, because Spark asks twice and `latest` would move."""
        if self._initial is None:
            self._initial = to_json(self._planner.starting(self._planner.heads(), "latest"))
        return self._initial

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """How far the next micro-batch goes."""
        heads = self._planner.heads()
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        begin = from_json(start, self._options.queues)
        return to_json(self._planner.next_end(begin, self._ends(heads), heads, rows))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 -- Spark's name
        """As `maxOffsetsPerTrigger` says."""
        rows = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 -- Spark's name
        """How far the streams are: progress reports show by how much the query is behind."""
        return to_json(self._ends(self._planner.heads()))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 -- Spark's name
        """Note where the streams end now: an `availableNow` query ends there."""
        self._final = {q: end_of(head) for q, head in self._planner.heads().items()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Ranges of ids, about equal in time, and rows for what is missing."""
        queues = self._options.queues
        return [
            Part(each)
            for each in self._planner.tasks(from_json(start, queues), from_json(end, queues))
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The events of one range."""
        return uncollected(read_events(self._options, self._schema, partition.value))

    def stop(self) -> None:
        """Close the connections; Spark does not always get to this."""
        self._planner.close()

    def _ends(self, heads: Mapping[str, StreamHead]) -> Offset:
        if self._final is not None:
            return self._final
        return {queue: end_of(head) for queue, head in heads.items()}


def read_events(
    options: EventsOptions, schema: pa.Schema, part: Range | Gap
) -> Iterator[pa.RecordBatch]:
    """In a task: the events of a range, page by page, or the row that stands for a gap."""
    if isinstance(part, Gap):
        yield batch(schema, loss_columns(part.queue, part.loss))
        return
    keys, wanted = QueueKeys(part.queue), frozenset(schema.names)
    with Links(options.target) as links:
        pages = guarded_pages(links, keys, keys.events, part.first, part.last, options.fetch_count)
        for page, loss in pages:
            if loss is not None:
                if options.fail_on_data_loss:
                    raise data_loss(part.queue, loss)
                yield batch(schema, loss_columns(part.queue, loss))
            if page:
                yield batch(schema, event_columns(part.queue, page, wanted))


def _refuse_if_given(name: str, value: object, only: str) -> None:
    if value is not None:
        msg = f"option {name!r} is for {only} only: leave it out"
        raise ConfigError(msg)


def _refuse_backwards(options: EventsOptions) -> None:
    """Refuse an end before the beginning, where both are ids or times: nothing could be read."""
    for queue in options.queues:
        begin, end = (
            _id_at(asked.of(queue, "latest")) if asked else None
            for asked in (options.starting, options.ending)
        )
        if begin is not None and end is not None and end < begin:
            msg = (
                f"option 'endingOffsets' is {end} for queue {queue!r}, which is before option "
                f"'startingOffsets', {begin}: nothing is between them; exchange the two"
            )
            raise ConfigError(msg)


def _id_at(position: Position) -> StreamId | None:
    match position:
        case Moment(ms):
            return StreamId(ms, 0)
        case StreamId():
            return position
    return None
