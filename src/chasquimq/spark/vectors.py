"""Gathers jobs into batches for functions that work on whole columns, and gives each its part."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal, TypeAlias, get_args

import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from chasquimq.errors import ConfigError
from chasquimq.job import Job
from chasquimq.spark.batches import arrow_schema, batch
from chasquimq.spark.data import shaped, shaper
from chasquimq.spark.schemas import VECTORS, struct

Shape: TypeAlias = Literal["arrow", "pandas"]
SHAPES: tuple[str, ...] = get_args(Shape)

# A batch that is not full goes after this long.
_WAIT_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """How jobs come to a function: as what, how many, how many batches at a time."""

    shape: Shape
    size: int
    at_a_time: int
    schema: StructType | None = None
    """Of the payload, each field a column; None for one column `payload` of JSON."""


class Vectors:
    """A handler of single jobs over a function of batches.

    The function gets a `pyarrow.Table` or a pandas `DataFrame`, one row a job, and returns None or
    one value a row, in the same order. What it raises fails every job of its batch. A job that
    failed before comes in a batch of its own, so a bad one drags nobody along twice.
    """

    def __init__(self, function: Callable[[Any], Any], batching: Batching) -> None:
        """Needs no event loop yet; `ConfigError` if pandas is wanted and not here.

        On executors too, before they take a job: none must fail for that.
        """
        if batching.shape == "pandas" and find_spec("pandas") is None:
            msg = (
                "batch='pandas' needs pandas on the driver and on every executor, and it is not "
                "installed: `pip install 'pandas<3'`, or use batch='arrow'"
            )
            raise ConfigError(msg)
        self._function = function
        self._batching = batching
        self._waiting: list[tuple[Job, asyncio.Future[Any]]] = []
        self._due: asyncio.TimerHandle | None = None
        self._turns = asyncio.Semaphore(batching.at_a_time)
        self._calls: set[asyncio.Task[None]] = set()
        self.most = batching.size * batching.at_a_time
        """Jobs in hand at a time."""

    async def __call__(self, job: Job) -> Any:  # noqa: ANN401 -- the job's value
        """What the function returned for this job."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        if job.attempt > 1:
            await self._call([(job, answer)])
        else:
            self._waiting.append((job, answer))
            if len(self._waiting) >= self._batching.size:
                self._send()
            elif self._due is None:
                self._due = loop.call_later(_WAIT_S, self._send)
        return await answer

    def _send(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
        batch, self._waiting = self._waiting, []
        if batch:
            task = asyncio.get_running_loop().create_task(self._call(batch))
            self._calls.add(task)
            task.add_done_callback(self._calls.discard)

    async def _call(self, batch: "list[tuple[Job, asyncio.Future[Any]]]") -> None:
        jobs = [job for job, _ in batch]
        try:
            async with self._turns:
                values = await asyncio.to_thread(self._values, jobs)
        except Exception as error:  # noqa: BLE001 -- it is raised where each job is settled
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(error)
            return
        for (_, answer), value in zip(batch, values, strict=True):
            if not answer.done():
                answer.set_result(value)

    def _values(self, jobs: Sequence[Job]) -> list[Any]:
        table = table_of(jobs, self._batching.schema)
        given = table.to_pandas() if self._batching.shape == "pandas" else table
        return _one_each(self._function(given), len(jobs))


def table_of(jobs: Sequence[Job], schema: StructType | None) -> pa.Table:
    """One row a job: what is known of it, then its payload."""
    columns: dict[str, list[Any]] = {
        "job_id": [job.id for job in jobs],
        "name": [job.name or None for job in jobs],
        "attempt": [job.attempt for job in jobs],
        "created_at": [job.created_at_ms for job in jobs],
    }
    if schema is None:
        shape = shaper(StringType())
        columns["payload"] = [shape(job.data) for job in jobs]
    else:
        rows = [shaped(job.data, schema) or {} for job in jobs]
        columns |= {each.name: [row.get(each.name) for row in rows] for each in schema.fields}
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
