"""Shows batches of jobs to functions that work on whole columns, and gives each job its part."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import Any, Literal, TypeAlias, get_args

import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from chasquimq.engine.admission import Run
from chasquimq.engine.disposition import Ok, Outcome
from chasquimq.engine.failure import failed
from chasquimq.errors import ConfigError, UndecodableDataError, UnrecoverableError
from chasquimq.handling import packed, unpacked
from chasquimq.spark.batches import arrow_schema, batch
from chasquimq.spark.data import shaped, shaper
from chasquimq.spark.schemas import VECTORS, struct

Shape: TypeAlias = Literal["arrow", "pandas"]
SHAPES: tuple[str, ...] = get_args(Shape)

# What returns something to be waited for or gone through, and not an answer.
_NO_ANSWERS = (iscoroutinefunction, isgeneratorfunction, isasyncgenfunction)

# Most functions return nothing that is stored: their jobs share one outcome.
_NOTHING = Ok(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """How jobs come to a function: as what, how many, how many batches at a time."""

    shape: Shape
    size: int
    at_a_time: int
    schema: StructType | None = None
    """Of the payload, each field a column; None for one column `payload` of JSON."""


class Vectors:
    """A handler of batches over a function of columns.

    The function gets a `pyarrow.Table` or a pandas `DataFrame`, one row a job, and returns None or
    one value a row, in the same order. What it raises fails every job of its batch; data that
    cannot be decoded, and a value that cannot be stored, fail the one job that it is of.
    """

    def __init__(
        self, function: Callable[[Any], Any], batching: Batching, *, keeps_results: bool
    ) -> None:
        """`ConfigError` if pandas is wanted and not here, or the function cannot be such a one.

        On executors too, before they take a job: none must fail for that.
        """
        if batching.shape == "pandas" and find_spec("pandas") is None:
            msg = (
                "batch='pandas' needs pandas on the driver and on every executor, and it is not "
                "installed: `pip install 'pandas<3'`, or use batch='arrow'"
            )
            raise ConfigError(msg)
        if any(is_so(function) for is_so in _NO_ANSWERS):
            msg = (
                f"{function!r} is async or a generator: a function of batches is called in a "
                "thread, and returns one value a row or None"
            )
            raise ConfigError(msg)
        self._function = function
        self._batching = batching
        self._keeps_results = keeps_results

    def __call__(self, runs: Sequence[Run]) -> list[Outcome]:
        """Call the function for those whose data can be read, and say what became of each."""
        outcomes: dict[Run, Outcome] = {}
        rows: list[tuple[Run, Any]] = []
        for run in runs:
            try:
                rows.append((run, unpacked(run.envelope)))
            except UndecodableDataError as error:
                outcomes[run] = failed(error)
        if rows:
            table = table_of(rows, self._batching.schema)
            given = table.to_pandas() if self._batching.shape == "pandas" else table
            values = _one_each(self._function(given), len(rows))
            for (run, _), value in zip(rows, values, strict=True):
                outcomes[run] = self._outcome(value)
        return [outcomes[run] for run in runs]

    def _outcome(self, value: Any) -> Outcome:  # noqa: ANN401 -- of the user's function
        if value is None or not self._keeps_results:
            return _NOTHING
        try:
            return Ok(packed(value))
        except UnrecoverableError as error:
            return failed(error)


def table_of(rows: Sequence[tuple[Run, Any]], schema: StructType | None) -> pa.Table:
    """One row a run and its data: what is known of the job, then its payload."""
    columns: dict[str, list[Any]] = {
        "job_id": [run.envelope.id for run, _ in rows],
        "name": [run.name or None for run, _ in rows],
        "attempt": [run.attempt for run, _ in rows],
        "created_at": [run.envelope.created_at_ms for run, _ in rows],
    }
    if schema is None:
        shape = shaper(StringType())
        columns["payload"] = [shape(data) for _, data in rows]
    else:
        found = [shaped(data, schema) or {} for _, data in rows]
        columns |= {each.name: [row.get(each.name) for row in found] for each in schema.fields}
    return pa.Table.from_batches([batch(arrow_schema(vector_schema(schema)), columns)])


def vector_schema(schema: StructType | None) -> StructType:
    """The columns of a batch; `ConfigError` if a payload's field has the name of one of ours."""
    ours = struct(VECTORS)
    if schema is None:
        return StructType([*ours.fields, StructField("payload", StringType())])
    taken = set(ours.names) & set(schema.names)
    if taken:
        msg = f"the schema names the column {min(taken)!r}, which every batch has: rename it"
        raise ConfigError(msg)
    return StructType([*ours.fields, *schema.fields])


def _one_each(values: Any, count: int) -> list[Any]:  # noqa: ANN401 -- what the function returned
    if values is None:
        return [None] * count
    values = _plain(values)
    if not isinstance(values, list | tuple) or len(values) != count:
        shown = f"{len(values)} values" if isinstance(values, list | tuple) else type(values)
        msg = f"the function returned {shown} for {count} jobs: return None, or one value a job"
        raise ValueError(msg)
    return [_plain(each) for each in values]


def _plain(value: Any) -> Any:  # noqa: ANN401 -- the user's data
    """Columns and scalars of Arrow, numpy and pandas as Python's own; all else as it is."""
    for name in ("to_pylist", "as_py", "tolist"):
        if hasattr(value, name):
            return getattr(value, name)()
    return value
