"""`chasquimq_dlq`: the dead letters of queues as a table."""

from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from chasquimq.broker.pages import Entry
from chasquimq.spark import schemas
from chasquimq.spark.job_rows import Row, Shape, dead_letter_row
from chasquimq.spark.links import Links
from chasquimq.spark.options import RangeOptions
from chasquimq.spark.snapshot import StreamSnapshotReader
from chasquimq.spark.source import ChasquiSource
from chasquimq.wire.keys import QueueKeys


class DlqSource(ChasquiSource[RangeOptions]):
    """Dead letters, each a row with why, what and where.

    Name: `chasquimq_dlq`. Options: `RangeOptions`. Schema: `schemas.DLQ`; a schema of your own may
    give `payload` another type. Partitions: ranges of entry ids.

        spark.read.format("chasquimq_dlq").option("queue", "emails").load()
    """

    format_name = "chasquimq_dlq"
    options_type = RangeOptions
    columns = schemas.DLQ

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch."""
        return DlqReader(self.typed, self.checked_schema(schema))


class DlqReader(StreamSnapshotReader[RangeOptions]):
    """Reads the dead-letter stream."""

    def stream_of(self, keys: QueueKeys) -> bytes:
        """The dead letters."""
        return keys.dlq

    def rows(self, links: Links, keys: QueueKeys, page: list[Entry], shape: Shape) -> list[Row]:
        """Dead letters; the server is not asked again."""
        del links
        return [dead_letter_row(keys.name, entry, shape) for entry in page]
