"""Tables in a folder, or in any place that Spark can write: read, and replaced part by part.

A part is a folder of the table's partitions. Replacing one is what makes a step that is done twice
harmless. With Parquet it is not atomic for a reader that looks in that very moment; with Delta it
is.
"""

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own habit

from chasquimq.errors import ConfigError
from chasquimq.pipeline import sql
from chasquimq.pipeline.files import delete_folder_of, is_known_to_be_missing
from chasquimq.pipeline.folders import EVERY, is_pattern
from chasquimq.pipeline.places import resolved
from chasquimq.pipeline.tables import BATCHES, BRONZE, COMPACTIONS, Table

FORMATS = ("parquet", "delta")
"""Formats of the tables: those of which one folder can be replaced, and rows be taken away."""

COMPACTED = "compacted-"
"""What the names of folders begin with that were gathered from several."""

Folder = tuple[str, str, str]
"""A folder of bronze: day, queue, batch."""

_SEPARATOR = "\x1f"

# One task writes so many in less time than it takes to plan and start several.
_FEW = 10_000


def one_of(folders: Sequence[Folder]) -> str:
    """Whether a row of bronze is in one of these folders, in SQL; others are not even opened."""
    key = f"concat_ws({sql.text(_SEPARATOR)}, day, queue, batch)"
    return sql.is_in(key, (_SEPARATOR.join(folder) for folder in folders))


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

    def check_format(self) -> None:
        """Raise `ConfigError` for a format that is none of ours, or that the session has not."""
        if self._format not in FORMATS:
            msg = (
                f"the format of the tables is {self._format!r}: use parquet, or delta in a session "
                "that has it, and write what Pipeline.table() gives to have them in another, too"
            )
            raise ConfigError(msg)
        try:
            self.spark.read.format(self._format).schema("a int").load(self.where("_format"))
        except Exception as error:
            # Java's class for it has none in Python, so it comes as this or as that.
            if "[DATA_SOURCE_NOT_FOUND]" in str(error):
                msg = (
                    f"the format of the tables is {self._format!r}, which this Spark session does "
                    "not have: start it with what brings it (spark.jars.packages), or use parquet"
                )
                raise ConfigError(msg) from None
            if not isinstance(error, AnalysisException):  # which says that nothing is there yet
                raise

    def where(self, name: str) -> str:
        """The path of something in it."""
        return f"{self.path}/{name}"

    def read(self, table: Table, **folders: str) -> DataFrame:
        """All rows that count; none if it was never written.

        With the columns of this version: one that an older version did not write is null. Of bronze
        what the newest compaction says, so a reader sees a folder before or after it was gathered,
        never both. `folders`, by the column that they are of, are patterns: others are not listed,
        where the format is one of folders, so say the same in a condition, too.
        """
        if table is not BRONZE:
            return self.read_all(table, **folders)
        # Which folders count is asked before they are listed. The other way round, a compaction in
        # between would be heeded by a listing that lacks what it made, and neither would be read.
        counts = self._counting()
        return self.read_all(table, **folders).where(counts)

    def read_all(self, table: Table, **folders: str) -> DataFrame:
        """All rows of all folders, even of those that do not count."""
        rows = self.found(table, folders)
        if rows is None:
            # Known to be empty when Spark plans, which then leaves out joins with it.
            return table.padded(self.spark.range(0).where("false"))
        return rows

    def batch(self, key: str) -> Row | None:
        """What is noted of a batch that bronze holds whole; None if it does not."""
        found = self.found(BATCHES, {"batch": key})
        rows = [] if found is None else found.where(f"batch = {sql.text(key)}").collect()
        return rows[0] if rows else None

    def found(
        self, table: Table, folders: Mapping[str, str] = MappingProxyType({})
    ) -> DataFrame | None:
        """All rows; None if there is no such folder, which costs no job of Spark."""
        root = self.where(table.name)
        reader, path = self.spark.read.format(self._format), root
        if self._format == "parquet":
            # Else Spark would guess, and take the day or a queue named 7 for something else.
            reader = reader.schema(table.schema).option("basePath", root)
            path += _below(table, folders)
        if is_known_to_be_missing(self.spark, root if is_pattern(path[len(root) :]) else path):
            return None
        try:
            return table.padded(reader.load(path))
        except AnalysisException as error:
            if error.getCondition() not in {"PATH_NOT_FOUND", "DELTA_TABLE_NOT_FOUND"}:
                raise
            return None

    def replace(self, table: Table, rows: DataFrame, *, at_most: int | None = None) -> None:
        """Write rows, `at_most` so many; folders that they are in are replaced, all others stay."""
        self._write(table, rows, "dynamic", at_most)

    def replace_all(self, table: Table, rows: DataFrame, *, at_most: int | None = None) -> None:
        """Write rows; nothing else is left of the table."""
        self._write(table, rows, "static", at_most)

    def drop(self, table: Table, condition: str, **folders: str) -> None:
        """Delete the folders in which rows meet a condition, in SQL on columns of partitions.

        Of Delta, which has its own account of what is in folders, the rows.
        """
        found = self.found(table, folders)
        if found is None:
            return
        if self._format == "delta":
            path = self.where(table.name).replace("`", "``")
            self.spark.sql(f"DELETE FROM delta.`{path}` WHERE {condition}")  # noqa: S608 -- ours
            return
        files = found.where(condition).select(F.input_file_name()).distinct()
        for (file_url,) in files.collect():
            delete_folder_of(self.spark, file_url)

    def newest_compaction(self) -> list[Row]:
        """What the newest compaction says of bronze; nothing if there was none."""
        found = self.found(COMPACTIONS)
        if found is None:
            return []
        # All numbers in one look: there are few, since those that no reader needs are deleted.
        rows = found.selectExpr("*", "unix_millis(replaced_at) AS replaced_ms").collect()
        newest = max((row["compaction"] for row in rows), default="")
        return [row for row in rows if row["compaction"] == newest]

    def _counting(self) -> str:
        """Whether a row is in a folder that counts; what a killed compaction left is in no list."""
        told: dict[str, list[Folder]] = {"live": [], "replaced": []}
        for row in self.newest_compaction():
            told[row["state"]].append((row["day"], row["queue"], row["batch"]))
        is_gathered = f"startswith(batch, '{COMPACTED}')"
        return f"IF({is_gathered}, {one_of(told['live'])}, NOT {one_of(told['replaced'])})"

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

    def _write(self, table: Table, rows: DataFrame, mode: str, at_most: int | None) -> None:
        # One file in each folder. Bronze is written as it is read: its batch is what is large.
        if table is BRONZE:
            gathered = rows
        elif at_most is not None and at_most <= _FEW:
            gathered = rows.coalesce(1)
        else:
            gathered = rows.repartition(*table.partitions)
        writer = gathered.write.format(self._format).partitionBy(*table.partitions)
        # A mark that nobody reads, for which Hadoop makes two files and runs two programs.
        writer = writer.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        writer.mode("overwrite").option("partitionOverwriteMode", mode).save(self.where(table.name))


def _below(table: Table, folders: Mapping[str, str]) -> str:
    """The path of some folders below that of their table; no deeper than what is asked for."""
    levels = [(column, folders.get(column, EVERY)) for column in table.partitions]
    while levels and levels[-1][1] == EVERY:
        levels.pop()
    return "".join(f"/{column}={pattern}" for column, pattern in levels)
