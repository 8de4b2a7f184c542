"""Keeps what is computed for those who read it next: few rows on the driver, many where they are.

A frame that is read several times would be computed each time. Spark keeps one where it was made
(`persist`), and compares every plan from then on with the plan of what it keeps: of a batch of some
dozens of events that was half of the cost. Rows on the driver have no plan behind them.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame

from chasquimq.pipeline.settings import FEW
from chasquimq.pipeline.width import narrowed


@contextmanager
def kept(frame: DataFrame, rows: int | None) -> Iterator[DataFrame]:
    """The same rows, computed once for all who read them.

    `rows` is about how many they are, None if nobody knows.
    """
    if rows is not None and rows <= FEW:
        found = frame.toArrow()
        yield narrowed(frame.sparkSession.createDataFrame(found, frame.schema), found.num_rows)
        return
    persisted = frame.persist()
    try:
        yield persisted
    finally:
        persisted.unpersist()
