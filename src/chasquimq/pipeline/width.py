"""How many tasks a frame is worth: a small one is one, and plans over it need no shuffle. Pure.

Most batches are small, and what they cost is planning: Spark moves rows between tasks for every
group and join, by stages that it plans, starts and watches, unless all rows are in one task.
"""

from pyspark.sql import DataFrame

FEW = 100_000
"""Rows that are left to one task: a guess, from batches of some dozens, where planning is all."""


def narrowed(frame: DataFrame, rows: int | None, *, of_more: bool = False) -> DataFrame:
    """The frame, in one task if it is known to have few rows.

    `of_more` says that many others are looked at to find them, which several tasks do.
    """
    if rows is None or rows > FEW:
        return frame
    return frame.repartition(1) if of_more else frame.coalesce(1)
