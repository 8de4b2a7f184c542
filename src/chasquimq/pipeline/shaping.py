"""Rows of any table to rows of the sink: which column says what about a job, and what is payload.

`DataFrame -> DataFrame`; nothing is read or written here.
"""

from dataclasses import dataclass, fields
from typing import NoReturn

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own habit
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from chasquimq.errors import ConfigError
from chasquimq.pipeline.sources import CORRUPT, origin_of
from chasquimq.spark.sink_rows import MEANINGS

PAYLOAD = "payload"
ORIGIN = "origin"
PROBLEM = "problem"
"""What is wrong with a row, as far as columns tell; null if nothing is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Which columns of a table say how a job runs; None is the column of that very name, if any."""

    name: str | None = None
    job_id: str | None = None
    delay_ms: str | None = None
    run_at: str | None = None
    attempts: str | None = None
    backoff: str | None = None
    payload: str | None = None
    """The one column that is the payload; None: all that are left over, as a map."""


def shaped(
    frame: DataFrame, columns: Columns, fixed_name: str | None, *, has_places: bool
) -> DataFrame:
    """The columns of the sink, what is wrong with each row, and where it is from if files tell.

    `has_places` says that each part of a file is read by one task, in order. In a frame that
    somebody else made it may have been shuffled: it still tells the file, but no place in it.
    With a `fixed_name` a column `name` is payload, unless it was chosen for the names.
    """
    present = [each for each in frame.columns if each != CORRUPT]
    chosen = _chosen(present, columns, fixed_name)
    lifted, problems = [], []
    if CORRUPT in frame.columns:
        told = F.concat(F.lit("it does not fit the columns: "), _quoted(F.col(CORRUPT)))
        problems.append(F.when(F.col(CORRUPT).isNotNull(), told))
    for meaning, column in chosen.items():
        value, problem = _as(meaning, column, frame.schema[column].dataType)
        lifted.append(value.alias(meaning))
        problems += [] if problem is None else [problem]
    if "name" in chosen and fixed_name is None:
        nameless = f"column {chosen['name']!r} is null and names no job: fill it, or give a name"
        problems.append(F.when(_col(chosen["name"]).isNull(), F.lit(nameless)))
    origin = origin_of(frame) if has_places else None
    return frame.select(
        *lifted,
        *_payload(present, chosen, columns.payload),
        *([] if origin is None else [origin.alias(ORIGIN)]),
        (F.coalesce(*problems) if problems else F.lit(None).cast("string")).alias(PROBLEM),
    )


def spread(frame: DataFrame, parts: int) -> DataFrame:
    """Rows that hold the same in the same part, whatever order or parts they come in.

    Then the ids of the sink, which are made of the part and of what is in the row, are the same
    each time. Maps cannot be compared, and are left out of the choice.
    """
    names = [each.name for each in frame.schema.fields if not _has_map(each.dataType)]
    return frame.repartition(parts, *map(_col, names)) if names else frame.repartition(1)


def _chosen(present: list[str], columns: Columns, fixed_name: str | None) -> dict[str, str]:
    """The column for each thing that is said about a job."""
    found = {}
    for each in fields(Columns):
        wanted = getattr(columns, each.name)
        if wanted is not None and wanted not in present:
            _refuse(
                f"there is no column {wanted!r} for {each.name}: the source has "
                f"{', '.join(map(repr, present))}"
            )
        if each.name == PAYLOAD:
            continue
        if wanted is None and each.name in present and each.name != columns.payload:
            wanted = None if each.name == "name" and fixed_name is not None else each.name
        if wanted is not None:
            found[each.name] = wanted
    if {"delay_ms", "run_at"} <= found.keys():
        _refuse(
            f"columns {found['delay_ms']!r} and {found['run_at']!r} both say when a job is due: "
            "leave one out of the source"
        )
    return found


def _payload(present: list[str], chosen: dict[str, str], whole: str | None) -> list[Column]:
    if whole is not None:
        return [_col(whole).alias(PAYLOAD)]
    rest = [each for each in present if each not in chosen.values()]
    return [F.struct(*map(_col, rest)).alias(PAYLOAD)] if rest else []


def _as(meaning: str, column: str, found: DataType) -> tuple[Column, Column | None]:
    """A column as the sink wants it, and what is wrong where a text could not be made so."""
    kinds, rule = MEANINGS[meaning]
    value = _col(column)
    if isinstance(found, kinds) or meaning == "backoff":
        return value, None
    if kinds == (StringType,) and not isinstance(found, StructType | ArrayType | MapType):
        return value.cast("string"), None
    if not isinstance(found, StringType):
        return value, None  # the sink refuses it, by its type
    made = value.try_cast("bigint")
    if TimestampType in kinds:
        made = F.coalesce(value.try_cast("timestamp"), F.timestamp_millis(made))
    told = F.concat(F.lit(f"column {column!r} is "), _quoted(value), F.lit(f": it must be {rule}"))
    return made, F.when(value.isNotNull() & made.isNull(), told)


def _quoted(text: Column) -> Column:
    return F.concat(F.lit("'"), F.substring(text, 1, 80), F.lit("'"))


def _has_map(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_has_map(each.dataType) for each in kind.fields)
    return isinstance(kind, MapType) or (isinstance(kind, ArrayType) and _has_map(kind.elementType))


def _col(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")


def _refuse(problem: str) -> NoReturn:
    raise ConfigError(problem)
