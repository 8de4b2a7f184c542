"""`chasquimq_results`: what is kept of jobs that have ended, as a table."""

from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from chasquimq.broker import pages
from chasquimq.broker.call import together
from chasquimq.clock import SYSTEM_CLOCK
from chasquimq.spark import schemas
from chasquimq.spark.job_rows import Row, Shape, result_row
from chasquimq.spark.links import Links
from chasquimq.spark.options import PagedOptions
from chasquimq.spark.snapshot import Scan, ScanReader
from chasquimq.spark.source import ChasquiSource
from chasquimq.wire.keys import QueueKeys


class ResultsSource(ChasquiSource[PagedOptions]):
    """Results and failures that are still kept, each a row.

    Name: `chasquimq_results`. Options: `PagedOptions`. Schema: `schemas.RESULTS`; a schema of your
    own may give `value` another type. Partitions: one for each queue. Results have no list of their
    own: all keys of the server are looked through.

        spark.read.format("chasquimq_results").option("queue", "emails").load()
    """

    format_name = "chasquimq_results"
    options_type = PagedOptions
    columns = schemas.RESULTS

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch."""
        return ResultsReader(self.typed, self.checked_schema(schema))


class ResultsReader(ScanReader):
    """Scans the keys of the server."""

    data_column = "value"

    def step(self, links: Links, keys: QueueKeys, shape: Shape, scan: Scan) -> list[Row]:
        """A job whose result and outcome are both kept is one row."""
        call = pages.results(keys, scan.cursor, self.options.fetch_count)
        scan.cursor, found = links.run(keys, call)
        fresh = [job_id for job_id in dict.fromkeys(found) if job_id.encode() not in scan.seen]
        scan.seen.update(job_id.encode() for job_id in fresh)
        if not fresh:
            return []
        kept = links.run(keys, together([pages.expiring(keys, job_id) for job_id in fresh]))
        now_ms = SYSTEM_CLOCK.now_ms()
        rows = (
            result_row(keys.name, job_id, each, now_ms, shape)
            for job_id, each in zip(fresh, kept, strict=True)
        )
        return [row for row in rows if row is not None]
