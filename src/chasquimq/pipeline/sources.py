"""What a backfill reads: files of one format, a table of the catalog, or a frame.

Files are told apart from tables by their ending. A row of a text format that does not fit its
columns is kept, whole, in a column of its own, rather than turned into nulls as Spark would.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own habit
from pyspark.sql.types import StringType, StructType

from chasquimq.errors import ConfigError
from chasquimq.pipeline.folders import PATTERNS, is_pattern
from chasquimq.pipeline.places import resolved
from chasquimq.pipeline.problems import first_line

CORRUPT = "__chasquimq_corrupt"
"""The column that holds a row which does not fit the others."""

TABLE = "table"
_FORMATS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
    ".orc": "orc",
}
_COMPRESSED = frozenset({".gz", ".bz2", ".zst", ".snappy", ".lz4", ".deflate"})
_OF_TEXT = frozenset({"csv", "json"})
# Options of a reader that choose files, so that listing them chooses the same.
_CHOOSING = frozenset({"pathglobfilter", "recursivefilelookup", "modifiedbefore", "modifiedafter"})


@dataclass(frozen=True, slots=True)
class FileSeen:
    """A file as it was: if any of this changes, so may its rows."""

    path: str
    size: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Source:
    """Where rows come from, and how they are read."""

    paths: tuple[str, ...]
    """Absolute paths, URLs and globs; of a table its one name."""
    file_format: str
    options: Mapping[str, str]
    schema: str | None

    def read(self, spark: SparkSession) -> DataFrame:
        """Its rows; of text with the column `CORRUPT`. `ConfigError` if it cannot be opened."""
        try:
            if self.file_format == TABLE:
                return spark.table(self.paths[0])
            frame = self._load(spark, self.schema)
            if self.file_format not in _OF_TEXT:
                return frame
            columns = StructType(frame.schema.fields)
            if columns.fieldNames() == [CORRUPT]:
                _refuse(
                    f"no line of {self.shown} is an object of JSON: if one goes over several "
                    "lines, give the option multiLine=true"
                )
            if CORRUPT not in columns.fieldNames():
                columns = columns.add(CORRUPT, StringType())
            return self._load(spark, columns)
        except (AnalysisException, ParseException) as error:
            why = first_line(error)
            _refuse(f"{self.shown} cannot be read: {why} Look at path, format and schema")

    def files(self, spark: SparkSession) -> tuple[FileSeen, ...]:
        """The files as they are now, by their paths; none if it is a table that has no files."""
        if self.file_format == TABLE:
            frame = spark.table(self.paths[0])
            if origin_of(frame) is None:
                return ()
            listed = frame.select(
                frame.metadataColumn("_metadata").getField("file_path").alias("path"),
                frame.metadataColumn("_metadata").getField("file_size").alias("length"),
                frame.metadataColumn("_metadata").getField("file_modification_time").alias("at"),
            ).distinct()
        else:
            chosen = {k: v for k, v in self.options.items() if k.lower() in _CHOOSING}
            reader = spark.read.format("binaryFile").options(**chosen)
            listed = reader.load(list(self.paths)).select(
                "path", "length", F.col("modificationTime").alias("at")
            )
        rows = listed.select("path", "length", F.unix_millis("at").alias("at")).collect()
        files = sorted((FileSeen(*row) for row in rows), key=lambda each: each.path)
        for file, following in pairwise(files):
            if file.path == following.path:
                _refuse(f"{file.path} is named twice: its rows would be read twice; name it once")
        return tuple(files)

    @property
    def shown(self) -> str:
        """For messages."""
        kind = "table" if self.file_format == TABLE else self.file_format
        return f"{kind} {', '.join(self.paths)}"

    def _load(self, spark: SparkSession, schema: StructType | str | None) -> DataFrame:
        reader = spark.read.format(self.file_format).options(**self.options)
        if self.file_format in _OF_TEXT:
            reader = reader.option("columnNameOfCorruptRecord", CORRUPT)
        return (reader if schema is None else reader.schema(schema)).load(list(self.paths))


def find(
    spark: SparkSession,
    given: str | Sequence[str],
    file_format: str | None = None,
    options: Mapping[str, str] | None = None,
    schema: str | None = None,
) -> Source:
    """What is meant by paths, globs, URLs, or the name of a table; nothing is read yet."""
    names = [given] if isinstance(given, str) else list(given)
    if not names or not all(each.strip() for each in names):
        _refuse(f"the source is {given!r}: name a file, a folder, a glob or a table")
    guessed = file_format or _guess(spark, names)
    if guessed == TABLE:
        if len(names) > 1 or schema or options:
            _refuse(f"the source is the table {names[0]!r}: it is one, without schema and options")
        return Source((names[0],), TABLE, {}, None)
    paths = tuple(_present(each) for each in names)
    return Source(paths, guessed, _defaults(guessed, names) | dict(options or {}), schema)


def must_be_there(name: str, file_format: str | None) -> bool:
    """Whether a name can only be that of a file or folder: of no table, and no glob."""
    is_path = "/" in name or (file_format or _of_ending(name)) is not None
    return is_path and file_format != TABLE and not is_pattern(name)


def origin_of(frame: DataFrame) -> Column | None:
    """The file and the part of it that a row is from, as text; None if it is from no file.

    Parts of a file are those that Spark cuts it into: each is read by one task, in order.
    """
    try:
        place = frame.metadataColumn("_metadata")
        path, start = place.getField("file_path"), place.getField("file_block_start")
        part = F.when(start > 0, F.concat(F.lit(" from byte "), start)).otherwise("")
        origin = F.concat(path, part)
        frame.select(origin).schema  # noqa: B018 -- asks Spark whether there is such a column
    except AnalysisException:
        return None
    return origin


def _guess(spark: SparkSession, names: Sequence[str]) -> str:
    found = {_of_ending(each) or _of_folder(each) for each in names}
    if len(found) > 1:
        shown = ", ".join(sorted(str(each) for each in found))
        _refuse(f"the source has files of several formats, {shown}: give one format at a time")
    [guessed] = found
    if guessed is not None:
        return guessed
    if len(names) == 1 and not Path(names[0]).exists():
        try:
            if spark.catalog.tableExists(names[0]):
                return TABLE
        except (AnalysisException, ParseException):
            pass  # no name that a table could have
    msg = (
        f"the format of {names[0]!r} cannot be told from its ending, and there is no table of that "
        f"name: give the format: {', '.join(sorted(set(_FORMATS.values())))}, or table"
    )
    raise ConfigError(msg)


def _of_ending(path: str) -> str | None:
    suffixes = [each.lower() for each in Path(path).suffixes[-2:]]
    if suffixes and suffixes[-1] in _COMPRESSED:
        suffixes.pop()
    return _FORMATS.get(suffixes[-1]) if suffixes else None


def _of_folder(path: str) -> str | None:
    """The format of the files in a local folder, as far as the first of them tells."""
    for folder, below, files in os.walk(path):
        del folder
        below.sort()
        for name in sorted(files):
            if not name.startswith((".", "_")) and (found := _of_ending(name)):
                return found
    return None


def _defaults(file_format: str, names: Sequence[str]) -> dict[str, str]:
    if file_format != "csv":
        return {}
    # Else a file whose columns stand in another order would be read as if they did not.
    chosen = {"header": "true", "enforceSchema": "false"}
    if all(".tsv" in each.lower() for each in names):
        chosen["sep"] = "\t"
    return chosen


def _present(path: str) -> str:
    """The path for Spark; one that is there is taken as it is, even if it looks like a glob."""
    whole = resolved(path)
    if not whole.startswith("/"):
        return whole
    if Path(whole).exists():
        return "".join(f"\\{char}" if char in PATTERNS else char for char in whole)
    return whole


def _refuse(problem: str) -> NoReturn:
    raise ConfigError(problem)
