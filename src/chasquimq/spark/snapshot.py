"""What the sources of a queue's present state share: parts for tasks, rows in pages, no changes."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from chasquimq.broker import pages
from chasquimq.broker.pages import Entry
from chasquimq.broker.seek import Pace, Pages
from chasquimq.spark.batches import arrow_schema, batch
from chasquimq.spark.data import shaper
from chasquimq.spark.job_rows import Row, Shape
from chasquimq.spark.links import Links
from chasquimq.spark.offsets import split
from chasquimq.spark.options import Options, PagedOptions, RangeOptions
from chasquimq.spark.planning import Range
from chasquimq.spark.source import Part
from chasquimq.wire.keys import QueueKeys

O = TypeVar("O", bound=Options)  # noqa: E741 -- options of one format
R = TypeVar("R", bound=RangeOptions)

USUAL_PARTS = 2
"""Of what is more than one request brings."""

# Columns that tell of data which cannot be unpacked.
_OF_DATA = {"problem", "raw"}


class SnapshotReader(DataSourceReader, Generic[O]):
    """Reads what is there, a task for each queue. Not one moment's view: jobs go on moving."""

    data_column = "payload"

    def __init__(self, options: O, schema: StructType) -> None:
        """Keep values only: this is copied to the tasks."""
        self.options = options
        self._schema = arrow_schema(schema)
        self._kinds = {each.name: each.dataType for each in schema.fields}

    def partitions(self) -> Sequence[InputPartition]:
        """One for each queue."""
        return [Part(queue) for queue in self.options.queues]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part."""
        # Spark makes up a partition of its own where we gave none.
        if partition.value is None:
            return
        with Links(self.options.target) as links:
            for page in self.pages(links, partition.value, self.shape()):
                if page:
                    yield batch(
                        self._schema,
                        {name: [row.get(name) for row in page] for name in self._schema.names},
                    )

    def shape(self) -> Shape:
        """What the columns that are asked for make of the user's data."""
        kind = self._kinds.get(self.data_column)
        if kind is not None:
            return shaper(kind)
        return (lambda _: None) if _OF_DATA & self._kinds.keys() else None

    @abstractmethod
    def pages(self, links: Links, part: object, shape: Shape) -> Iterator[list[Row]]:
        """Rows, in lists that memory can hold."""


class StreamSnapshotReader(SnapshotReader[R]):
    """Reads a stream in ranges of ids, about equal in time."""

    @abstractmethod
    def stream_of(self, keys: QueueKeys) -> bytes:
        """Which stream."""

    @abstractmethod
    def rows(self, links: Links, keys: QueueKeys, page: list[Entry], shape: Shape) -> list[Row]:
        """The rows of a page."""

    def partitions(self) -> Sequence[InputPartition]:
        """Ranges of ids."""
        found: list[InputPartition] = []
        with Links(self.options.target) as links:
            for queue in self.options.queues:
                keys = QueueKeys(queue)
                head = links.run(keys, pages.head(self.stream_of(keys)))
                if head.first is None:
                    continue
                usual = USUAL_PARTS if head.length > self.options.fetch_count else 1
                wanted = self.options.min_partitions
                count = usual if wanted is None else -(-wanted // len(self.options.queues))
                found += [
                    Part(Range(queue, str(first), str(last)))
                    for first, last in split(head.first, head.last, count)
                ]
        return found

    def pages(self, links: Links, part: object, shape: Shape) -> Iterator[list[Row]]:
        """The entries of a range that are there when it is read."""
        assert isinstance(part, Range)  # noqa: S101 -- as `partitions` made them
        keys, most = QueueKeys(part.queue), self.options.fetch_count
        walk = Pages(self.stream_of(keys), part.first, part.last, pace=Pace(most, most))
        while not walk.is_over:
            page = links.drive(keys, walk.next(most))
            if page:
                yield self.rows(links, keys, page, shape)


@dataclass(slots=True)
class Scan:
    """How far a scan is: where, what it has given already, and how much it asks for at a time."""

    cursor: bytes
    pace: Pace
    seen: set[bytes] = field(default_factory=set)


class ScanReader(SnapshotReader[PagedOptions]):
    """Reads what can only be scanned, and gives each thing once."""

    @abstractmethod
    def step(self, links: Links, keys: QueueKeys, shape: Shape, scan: Scan) -> list[Row]:
        """Move the cursor on: rows of what was not seen, which then is."""

    def pages(self, links: Links, part: object, shape: Shape) -> Iterator[list[Row]]:
        """Step by step, until the cursor is at its start again."""
        keys, most = QueueKeys(str(part)), self.options.fetch_count
        scan = Scan(pages.FROM_START, Pace(most, most))
        while True:
            yield self.step(links, keys, shape, scan)
            if scan.cursor == pages.FROM_START:
                return
