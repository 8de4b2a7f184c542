"""Batches taken into a lake one by one, as its query would, without the query."""

import functools
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from chasquimq.pipeline import Pipeline, Slo
from chasquimq.pipeline.lake import Lake
from chasquimq.pipeline.steps import Steps
from tests.support.told import frame

MADE = ("runs", "jobs", "minutes", "failures", "tallies", "hours", "days")
"""The tables of silver and gold."""

_QUERY = "0123abcd"


def content(pipeline: Pipeline, names: Sequence[str] = MADE) -> dict[str, list[str]]:
    """All rows of tables as JSON, in an order that does not depend on files; one job of Spark."""
    frames = [
        pipeline.table(name).selectExpr(f"'{name}' AS name", "to_json(struct(*)) AS row")
        for name in names
    ]
    found: dict[str, list[str]] = {name: [] for name in names}
    for name, row in functools.reduce(DataFrame.unionAll, frames).collect():
        found[name].append(row)
    return {name: sorted(rows) for name, rows in found.items()}


def batch_key(number: int) -> str:
    """How a batch of that number is called."""
    return f"{_QUERY}-{number:08d}"


class Batches:
    """What takes batches into the lake in a folder."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        """The lake is empty, but has a query."""
        checkpoint = folder / "_checkpoint"
        checkpoint.mkdir(parents=True)
        (checkpoint / "metadata").write_text(json.dumps({"id": f"{_QUERY}-and-so-on"}))
        self._lake = Lake(spark, str(folder))
        self._steps = Steps(self._lake.path, "parquet", Slo())

    def keep(self, number: int, events: Iterable[dict[str, Any]]) -> None:
        """Take a batch into bronze, and no further."""
        rows = frame(self._lake.spark, events)
        self._steps.write_bronze(self._lake, rows, batch_key(number))

    def take(self, number: int, events: Iterable[dict[str, Any]]) -> None:
        """Take a batch through all tables; one that came before is like one that comes again."""
        rows = frame(self._lake.spark, events)
        self._steps.take_in(self._lake, rows, batch_key(number))
