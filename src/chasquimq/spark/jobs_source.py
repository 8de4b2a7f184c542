"""`chasquimq_jobs`: what waits and what is in flight, as a table."""

from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from chasquimq.broker import pages
from chasquimq.broker.pages import Entry
from chasquimq.spark import schemas
from chasquimq.spark.job_rows import Row, Shape, job_row
from chasquimq.spark.links import Links
from chasquimq.spark.options import JobsOptions
from chasquimq.spark.snapshot import StreamSnapshotReader
from chasquimq.spark.source import ChasquiSource
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
