"""`chasquimq_schedules`: the recurring jobs of queues as a table."""

from collections.abc import Iterator

from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from chasquimq.broker import repeats
from chasquimq.spark import schemas
from chasquimq.spark.job_rows import Row, Shape, schedule_row
from chasquimq.spark.links import Links
from chasquimq.spark.options import Options
from chasquimq.spark.snapshot import SnapshotReader
from chasquimq.spark.source import ChasquiSource
from chasquimq.wire.keys import QueueKeys

# Recurring jobs are written by people: more than this is a mistake, and still read as far as it.
_MOST = 1_000_000


class SchedulesSource(ChasquiSource[Options]):
    """Recurring jobs, each a row with when it fires next.

    Name: `chasquimq_schedules`. Options: `Options`. Schema: `schemas.SCHEDULES`; a schema of your
    own may give `payload` another type. Partitions: one for each queue.

        spark.read.format("chasquimq_schedules").option("queue", "emails").load()
    """

    format_name = "chasquimq_schedules"
    options_type = Options
    columns = schemas.SCHEDULES

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch."""
        return SchedulesReader(self.typed, self.checked_schema(schema))


class SchedulesReader(SnapshotReader[Options]):
    """Reads the specs, soonest first."""

    def pages(self, links: Links, part: object, shape: Shape) -> Iterator[list[Row]]:
        """All of a queue at once: there are few."""
        keys = QueueKeys(str(part))
        stored = links.drive(keys, repeats.listed(keys, _MOST))
        yield [schedule_row(keys.name, each, shape) for each in stored]
