"""Looks at rows before they are added: how many there are, and which cannot be jobs."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own habit
from pyspark.sql.pandas.functions import ArrowUDFType, arrow_udf

from chasquimq.broker.runs import RunJob
from chasquimq.clock import SYSTEM_CLOCK
from chasquimq.pipeline.shaping import PROBLEM
from chasquimq.spark.options import SinkOptions
from chasquimq.spark.sink_rows import JobMaker, Layout, Unfit, layout
from chasquimq.wire.codec import unpack
from chasquimq.wire.envelope import decode

# In each part: enough to see what is wrong, few enough to send to the driver.
_MOST_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Checked:
    """What was found."""

    rows: int
    unfit: int
    """How many of them cannot be jobs."""
    shown: tuple[Unfit, ...]
    """Some of those, in the order of their files."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A job that a row would become."""

    job_id: str
    name: str
    data: Any
    delay_ms: int
    run_at_ms: int | None
    attempts: int | None


def checked(frame: DataFrame, options: SinkOptions) -> Checked:
    """Make every row a job, and throw the jobs away; reads everything, sends nothing."""
    plan = layout(frame.drop(PROBLEM).schema, options)

    def seen(rows: Iterator[pa.StructArray]) -> Iterator[pa.StructArray]:
        yield from _examined(plan, options, rows)

    # A UDF, for only the sink's own code knows what can be a job. It sees the rows of a part in
    # their order, which is how it knows their places. Not `mapInArrow`, which asks for pandas.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it wants type hints, and pandas to read them
        examine = arrow_udf(seen, _SEEN, ArrowUDFType.SCALAR_ITER)
    found = (
        frame.select(examine(F.struct(*frame.columns)).alias("seen"))
        .agg(
            F.count(F.lit(1)).alias("rows"),
            F.count_if("seen.is_unfit").alias("unfit"),
            F.collect_list("seen.shown").alias("shown"),
        )
        .collect()[0]
    )
    shown = sorted((Unfit(*each) for each in found["shown"]), key=_place)
    return Checked(found["rows"], found["unfit"], tuple(shown[:_MOST_SHOWN]))


def first_jobs(frame: DataFrame, options: SinkOptions, run_id: str, count: int) -> list[Planned]:
    """The jobs that the first rows would become; those that cannot be jobs are passed over."""
    table = frame.where(frame[PROBLEM].isNull()).drop(PROBLEM).limit(count).toArrow()
    maker = JobMaker(layout(frame.drop(PROBLEM).schema, options), options, run_id, 0)
    found = [
        made for batch in table.to_batches() for made in maker.jobs(batch, SYSTEM_CLOCK.now_ms())
    ]
    return [_planned(each) for each in found if isinstance(each, RunJob)]


def _planned(job: RunJob) -> Planned:
    envelope = decode(job.envelope)
    attempts = None if envelope.retry is None else envelope.retry.max_attempts
    data = unpack(envelope.packed_data)
    return Planned(job.id, job.name, data, job.delay_ms, job.run_at_ms, attempts)


def _examined(
    plan: Layout, options: SinkOptions, parts: Iterator[pa.StructArray]
) -> Iterator[pa.StructArray]:
    maker = JobMaker(plan, options, "", 0)
    count = 0
    for part in parts:
        batch = pa.RecordBatch.from_struct_array(part)
        problems = batch.column(PROBLEM).to_pylist()
        places = batch.column(plan.origin).to_pylist() if plan.origin else [None] * len(problems)
        answer: list[dict[str, object]] = []
        for at, made in enumerate(maker.jobs(batch, SYSTEM_CLOCK.now_ms())):
            problem = problems[at] or (made.problem if isinstance(made, Unfit) else None)
            if problem is None:
                answer.append(_FIT)
                continue
            count += 1
            place = {"origin": places[at], "row": maker.rows_of(places[at]), "problem": problem}
            answer.append({"is_unfit": True, "shown": place if count <= _MOST_SHOWN else None})
        yield pa.array(answer, _ARROW_SEEN)


def _place(unfit: Unfit) -> tuple[str, int]:
    return unfit.origin or "", unfit.row


_SEEN = "is_unfit boolean, shown struct<origin: string, row: long, problem: string>"
_ARROW_SEEN = pa.struct(
    [
        ("is_unfit", pa.bool_()),
        (
            "shown",
            pa.struct([("origin", pa.string()), ("row", pa.int64()), ("problem", pa.string())]),
        ),
    ]
)
_FIT: dict[str, object] = {"is_unfit": False, "shown": None}
