"""`chasquimq_delayed`: the jobs that wait for their time, as a table."""

import hashlib

from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from chasquimq.broker import pages
from chasquimq.spark import schemas
from chasquimq.spark.job_rows import Row, Shape, delayed_row
from chasquimq.spark.links import Links
from chasquimq.spark.options import PagedOptions
from chasquimq.spark.snapshot import Scan, ScanReader
from chasquimq.spark.source import ChasquiSource
from chasquimq.wire.keys import QueueKeys


class DelayedSource(ChasquiSource[PagedOptions]):
    """Delayed jobs and retries, each a row with the time it is due.

    Name: `chasquimq_delayed`. Options: `PagedOptions`. Schema: `schemas.DELAYED`; a schema of your
    own may give `payload` another type. Partitions: one for each queue.

        spark.read.format("chasquimq_delayed").option("queue", "emails").load()
    """

    format_name = "chasquimq_delayed"
    options_type = PagedOptions
    columns = schemas.DELAYED

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch."""
        return DelayedReader(self.typed, self.checked_schema(schema))


class DelayedReader(ScanReader):
    """Scans the delayed set."""

    def step(self, links: Links, keys: QueueKeys, shape: Shape, scan: Scan) -> list[Row]:
        """A member that comes again is left out."""
        page = scan.pace.page(lambda count: pages.delayed(keys, scan.cursor, count))
        scan.cursor, members = links.drive(keys, page)
        scan.pace.heed(len(members), sum(len(member) for member, _ in members))
        rows = []
        for member, due_ms in members:
            digest = hashlib.blake2b(member, digest_size=12).digest()
            if digest not in scan.seen:
                scan.seen.add(digest)
                rows.append(delayed_row(keys.name, member, due_ms, shape))
        return rows
