"""`chasquimq_jobs`: what waits and what is in flight, as a table."""

from collections.abc import Iterator, Sequence

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from chasquimq.broker import pages
from chasquimq.broker.pages import Entry
from chasquimq.broker.seek import Pace
from chasquimq.spark import schemas
from chasquimq.spark.job_rows import Row, Shape, job_row
from chasquimq.spark.links import Links
from chasquimq.spark.options import JobsOptions
from chasquimq.spark.snapshot import USUAL_PARTS, SnapshotReader, StreamSnapshotReader
from chasquimq.spark.source import ChasquiSource, Part
from chasquimq.wire.keys import QueueKeys


class JobsSource(ChasquiSource[JobsOptions]):
    """Jobs in the stream, each a row, none of them touched.

    Name: `chasquimq_jobs`. Options: `JobsOptions`. Schema: `schemas.JOBS`; a schema of your own may
    give `payload` another type. Partitions: ranges of entry ids.

        spark.read.format("chasquimq_jobs").option("queue", "emails").load()
    """

    format_name = "chasquimq_jobs"
    options_type = JobsOptions
    columns = schemas.JOBS

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch."""
        return JobsReader(self.typed, self.checked_schema(schema))


class ChosenJobs(JobsSource):
    """Of one queue the entries that its maker has chosen, and no others.

    A class of its own is made for each choice: Spark keeps the class, and an option that holds so
    many ids would stand in every plan. Who has them is not asked.
    """

    entry_ids: tuple[bytes, ...] = ()

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch."""
        return ChosenReader(self.typed, self.checked_schema(schema), self.entry_ids)


class JobsReader(StreamSnapshotReader[JobsOptions]):
    """Reads the stream, and beside each page the book of what is delivered."""

    def stream_of(self, keys: QueueKeys) -> bytes:
        """The jobs."""
        return keys.stream

    def rows(self, links: Links, keys: QueueKeys, page: list[Entry], shape: Shape) -> list[Row]:
        """Jobs, with who has them."""
        first, last = page[0][0].decode(), page[-1][0].decode()
        held = links.run(keys, pages.held(keys, self.options.group, first, last, len(page)))
        return [job_row(keys.name, entry, held.get(entry[0]), shape) for entry in page]


class ChosenReader(SnapshotReader[JobsOptions]):
    """Reads entries one by one, many in a request: what lies between them may be anybody's."""

    def __init__(
        self, options: JobsOptions, schema: StructType, entry_ids: Sequence[bytes]
    ) -> None:
        """Keep values only: this is copied to the tasks."""
        super().__init__(options, schema)
        self._entry_ids = entry_ids

    def partitions(self) -> Sequence[InputPartition]:
        """Parts of about the same number of entries."""
        ids, wanted = self._entry_ids, self.options.min_partitions
        usual = USUAL_PARTS if len(ids) > self.options.fetch_count else 1
        size = max(1, -(-len(ids) // (wanted or usual)))
        return [Part(ids[at : at + size]) for at in range(0, len(ids), size)]

    def pages(self, links: Links, part: object, shape: Shape) -> Iterator[list[Row]]:
        """Those that are still there."""
        assert isinstance(part, tuple)  # noqa: S101 -- as `partitions` made them
        keys, most, at = QueueKeys(self.options.queues[0]), self.options.fetch_count, 0
        # Small at first: nobody knows how large they are, and each comes in a reply of its own, of
        # which none is too large.
        pace = Pace(most=most)
        while at < len(part):
            wanted = part[at : at + pace.count]
            page = links.run(keys, pages.chosen(keys.stream, wanted))
            at += len(wanted)
            pace.heed(len(page), sum(len(value) for entry in page for value in entry[1]))
            yield [job_row(keys.name, entry, None, shape) for entry in page]
