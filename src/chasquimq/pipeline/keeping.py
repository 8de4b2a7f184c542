"""Keeps what is computed for those who read it next: few rows on the driver, many where they are.

A frame that is read several times would be computed each time. Spark keeps one where it was made
(`persist`), and compares every plan from then on with the plan of what it keeps: of a batch of some
dozens of events that was half of the cost. Rows on the driver have no plan behind them.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame

from chasquimq.pipeline.width import narrowed

FEW = 2_000
"""Rows that are kept on the driver: what Spark sends along with a task that reads them, of which it
warns beyond a megabyte. Ours have some hundred bytes each."""


@contextmanager
def kept(frame: DataFrame, rows: int | None) -> Iterator[DataFrame]:
    """The same rows, computed once for all who read them.

    `rows` is about how many they are, None if nobody knows. Where they turn out to be more than
    few, which is rare, what was computed to find that out is computed again.
    """
    if rows is not None and rows <= FEW:
        # Arrow refuses a struct that is null where its fields are said never to be.
        schema = frame.schema.toNullable()
        found = frame.to(schema).limit(FEW + 1).toArrow()
        if found.num_rows <= FEW:
            at_hand = frame.sparkSession.createDataFrame(found, schema)
            yield narrowed(at_hand, found.num_rows)
            return
    persisted = frame.persist()
    try:
        yield persisted
    finally:
        persisted.unpersist()
