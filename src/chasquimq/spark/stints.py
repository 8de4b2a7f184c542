"""Tells what the stints of a fleet did, as Spark's progress has it: a line for each in the log."""

import logging

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own habit
from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger("chasquimq.spark")

_NAME = "stints"
_COUNTS = ("completed", "failed", "retried", "dead")
_MS_PER_S = 1_000


def counted(stints: DataFrame) -> DataFrame:
    """The same rows; what they add up to goes into the progress of their query."""
    return stints.observe(_NAME, *(F.sum(name).alias(name) for name in _COUNTS))


class Stints:
    """Looks at the progress of one query; of stints that end between two looks it tells the last.

    Of those in which no job was run it tells nothing.
    """

    def __init__(self, query: StreamingQuery, fleet: str, queue: str) -> None:
        """Nothing was told yet."""
        self._query = query
        self._about = fleet, queue
        self._told = -1

    def look(self) -> None:
        """Say what the last stints did, unless that was said."""
        progress = self._query.lastProgress
        if progress is None or progress.batchId == self._told:
            return
        found = progress.observedMetrics.get(_NAME)
        if not progress.numInputRows or found is None:
            return
        self._told = progress.batchId
        if not found["completed"] and not found["failed"]:
            return
        fleet, queue = self._about
        log.info(
            "fleet %s on queue %s: slots that came to their end tell of %d jobs completed, %d runs "
            "failed (%d jobs will run again, %d were given up), in %.1f s",
            fleet, queue, *found, progress.batchDuration / _MS_PER_S,
            extra={"queue": queue},
        )  # fmt: skip
