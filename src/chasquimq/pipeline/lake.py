"""Tables in a folder, or in any place that Spark can write: read, and replaced part by part.

A part is a folder of the table's partitions. Replacing one is what makes a step that is done twice
harmless. With Parquet it is not atomic for a reader that looks in that very moment; with Delta it
is.
"""

import json

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from chasquimq.errors import ConfigError
from chasquimq.pipeline.places import resolved
from chasquimq.pipeline.tables import BRONZE, Table


class Lake:
    """The tables below one path."""

    def __init__(self, spark: SparkSession, path: str, file_format: str = "parquet") -> None:
        """Nothing is read or made yet."""
        if not path.strip():
            msg = "the path of the tables is empty: name a folder, or a URL that Spark knows"
            raise ConfigError(msg)
        self.spark = spark
        self.path = resolved(path.rstrip("/") or path)
        self._format = file_format

    def __repr__(self) -> str:
        """Show where it is."""
        return f"<Lake {self._format} in {self.path}>"

    def where(self, name: str) -> str:
        """The path of something in it."""
        return f"{self.path}/{name}"

    def read(self, table: Table) -> DataFrame:
        """All rows; none if it was never written.

        With the columns of this version: one that an older version did not write is null.
        """
        reader = self.spark.read.format(self._format)
        if self._format == "parquet":
            # Else Spark would guess, and take the day or a queue named 7 for something else.
            reader = reader.schema(table.schema)
        try:
            frame = reader.load(self.where(table.name))
            return table.select(frame)
        except AnalysisException as error:
            if error.getCondition() not in {"PATH_NOT_FOUND", "DELTA_TABLE_NOT_FOUND"}:
                raise
            return self.spark.createDataFrame([], table.schema)

    def replace(self, table: Table, rows: DataFrame) -> None:
        """Write rows; folders that they are in are replaced, all others stay."""
        self._write(table, rows, "dynamic")

    def replace_all(self, table: Table, rows: DataFrame) -> None:
        """Write rows; nothing else is left of the table."""
        self._write(table, rows, "static")

    @property
    def checkpoint(self) -> str:
        """Where the query that fills it keeps how far it has read."""
        return self.where("_checkpoint")

    def query_id(self) -> str:
        """The id of that query, which lives as long as its checkpoint; empty if there is none."""
        try:
            lines = self.spark.read.text(f"{self.checkpoint}/metadata").collect()
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            return ""
        found = json.loads(lines[0]["value"])["id"]
        return str(found)

    def _write(self, table: Table, rows: DataFrame, mode: str) -> None:
        # One file in each folder. Bronze is written as it is read: its batch is what is large.
        gathered = rows if table is BRONZE else rows.repartition(*table.partitions)
        writer = gathered.write.format(self._format).partitionBy(*table.partitions)
        writer.mode("overwrite").option("partitionOverwriteMode", mode).save(self.where(table.name))
