"""`chasquimq`: the sink that turns rows into jobs, each once."""

import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from chasquimq.broker import runs
from chasquimq.broker.runs import Memory, RunJob
from chasquimq.broker.stream import Telling
from chasquimq.clock import SYSTEM_CLOCK, monotonic_s
from chasquimq.config import UNIQUE_GRACE_SECS
from chasquimq.errors import ConfigError, NotSupportedError, QueueFullError, RowError
from chasquimq.spark.links import Links
from chasquimq.spark.options import SinkOptions, shown
from chasquimq.spark.sink_rows import JobMaker, Layout, Unfit, layout
from chasquimq.spark.source import ChasquiSource
from chasquimq.wire.keys import QueueKeys

AFTERWARDS_S = 3_600
"""How long a run that is over is remembered."""

_CHUNK_BYTES = 4 << 20
# So small that the jobs of a second are spread over it.
_PACED_CHUNKS_PER_S = 10
_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 1.0


class QueueSink(ChasquiSource[SinkOptions]):
    """Rows become jobs of one queue, in a batch (mode `append`) or as a stream.

    Name: `chasquimq`. Options: `SinkOptions`. Columns `name`, `job_id`, `delay_ms` or `run_at`,
    `attempts` and `backoff` mean what they mean for `Queue.add`; the rest is the payload.

        jobs.write.format("chasquimq").option("queue", "emails").mode("append").save()
    """

    format_name = "chasquimq"
    options_type = SinkOptions
    columns = ()

    def schema(self) -> StructType:
        """There is none to read: this format is written to."""
        msg = "the format 'chasquimq' is a sink: read 'chasquimq_jobs' or 'chasquimq_events'"
        raise NotSupportedError(msg)

    def reader(self, schema: StructType) -> DataSourceReader:
        """None, as `schema` says."""
        raise NotImplementedError(self.schema())

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: FBT001
        """One write of a table: one run."""
        _refuse_overwrite(overwrite)
        options = self._for_one_queue()
        return BatchWriter(options, layout(schema, options), options.run_id or str(uuid.uuid4()))

    def streamWriter(  # noqa: N802 -- Spark's name
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001
    ) -> DataSourceStreamArrowWriter:
        """A streaming query: each micro-batch is a run."""
        _refuse_overwrite(overwrite)
        options = self._for_one_queue()
        if options.run_id is not None:
            msg = "option 'runId' is for a batch only: a stream's checkpoint says what was added"
            raise ConfigError(msg)
        return StreamWriter(options, layout(schema, options))

    def _for_one_queue(self) -> SinkOptions:
        if len(self.typed.queues) != 1:
            msg = f"option 'queue' is {','.join(self.typed.queues)!r}: a sink has one queue"
            raise ConfigError(msg)
        return self.typed


@dataclass
class Written(WriterCommitMessage):
    """What one task did."""

    run_id: str
    added: int
    """Jobs that were not there before."""


class BatchWriter(DataSourceArrowWriter):
    """Adds the rows of a table.

    What was added is remembered on the server under the run's id, so a task that is tried again
    adds what is left. A run with an id of its own is over when the write is: then it is forgotten.
    One with a `runId` is remembered, for the next write with the same. A write that fails leaves
    the jobs it added: adding is not all or nothing.
    """

    def __init__(self, options: SinkOptions, plan: Layout, run_id: str) -> None:
        """Keep values only: this is copied to the tasks."""
        self._options = options
        self._plan = plan
        self._run_id = run_id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task: add the rows of one partition."""
        partition = _task().partitionId()
        return add_rows(self._options, self._plan, self._run_id, partition, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 -- Spark's
        """All is added."""
        if self._options.run_id is None:
            let_go(self._options, self._run_id)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Keep what is known of the run: attempts of its tasks may still be under way."""


class StreamWriter(DataSourceStreamArrowWriter):
    """Adds the rows of micro-batches, each known by the query's id and its number.

    After a crash Spark carries out its last batch again, perhaps after `commit`. So a batch is
    forgotten only when the next one is added: by then it cannot come again.
    """

    def __init__(self, options: SinkOptions, plan: Layout) -> None:
        """Keep values only: this is copied to the tasks."""
        self._options = options
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task: add the rows of one partition of a micro-batch."""
        task = _task()
        query = task.getLocalProperty("sql.streaming.queryId")
        batch = task.getLocalProperty("streaming.sql.batchId")
        run_id = f"{query}:{batch}"
        return add_rows(self._options, self._plan, run_id, task.partitionId(), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """All of this batch is added: the one before can be forgotten."""
        for run_id in {each.run_id for each in messages if isinstance(each, Written)}:
            query, _, _ = run_id.rpartition(":")
            let_go(self._options, f"{query}:{batchId - 1}")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Keep what is known of the batch: it will come again."""


def add_rows(
    options: SinkOptions,
    plan: Layout,
    run_id: str,
    partition: int,
    batches: Iterator[pa.RecordBatch],
) -> Written:
    """Add rows in chunks, waiting while the queue is full; memory holds one chunk at a time.

    Raises `RowError` for one that cannot be a job; chunks before the one it is in are added.
    """
    keys = QueueKeys(options.queues[0])
    added, rows = 0, options.chunk_rows
    if options.max_jobs_per_s is not None:
        rows = min(rows, max(1, options.max_jobs_per_s // _PACED_CHUNKS_PER_S))
    with (
        closing(JobMaker(plan, options, run_id, partition)) as maker,
        Links(options.target) as links,
    ):
        for chunk in _chunks(maker, batches, rows, partition):
            added += _add(links, keys, options, run_id, chunk)
    return Written(run_id, added)


def let_go(options: SinkOptions, run_id: str) -> None:
    """Remember a run that cannot come again a little longer, then no more.

    An attempt of a task that was given up for lost may still be writing, in an executor that is cut
    off from the driver and not from the server: what it adds late must still be known.
    """
    keys = QueueKeys(options.queues[0])
    with Links(options.target) as links:
        links.run(keys, runs.remember(keys, run_id, AFTERWARDS_S))


def _chunks(
    maker: JobMaker, batches: Iterator[pa.RecordBatch], rows: int, partition: int
) -> Iterator[list[RunJob]]:
    chunk: list[RunJob] = []
    size, before = 0, 0
    for batch in batches:
        for at, job in enumerate(maker.jobs(batch, SYSTEM_CLOCK.now_ms())):
            if isinstance(job, Unfit):
                place = f"row {before + at + 1} of partition {partition}{_named(batch, at)}"
                msg = f"{job}; {place}; earlier chunks stay added"
                raise RowError(msg)
            chunk.append(job)
            size += len(job.envelope)
            if len(chunk) >= rows or size >= _CHUNK_BYTES:
                yield chunk
                chunk, size = [], 0
        before += batch.num_rows
    if chunk:
        yield chunk


def _named(batch: pa.RecordBatch, at: int) -> str:
    """What a row says of itself, as far as it has columns for it."""
    columns = [name for name in ("job_id", "name") if name in batch.schema.names]
    return "".join(f", {name} {shown(batch.column(name)[at].as_py())}" for name in columns)


def _add(
    links: Links, keys: QueueKeys, options: SinkOptions, run_id: str, chunk: list[RunJob]
) -> int:
    """Add a chunk, all of it, however long the queue is full; how many were new."""
    memory = Memory(options.dedup_ttl_s, UNIQUE_GRACE_SECS)
    added, pause_s, left = 0, _FIRST_PAUSE_S, chunk
    deadline = monotonic_s() + options.overflow_timeout_s
    while True:
        telling = Telling(SYSTEM_CLOCK.now_ms(), options.events_cap)
        call = runs.add(
            keys, run_id, left, limit=options.max_stream_len, memory=memory, telling=telling
        )
        answer = links.run(keys, call)
        new = answer.count(runs.ADDED)
        added += new
        if new and options.max_jobs_per_s is not None:
            time.sleep(links.run(keys, runs.pace(keys, run_id, new, options.max_jobs_per_s)) / 1000)
        left = left[len(answer) :]
        if not left:
            return added
        if answer:
            # There was some room, so somebody takes jobs: the patience begins anew.
            deadline, pause_s = monotonic_s() + options.overflow_timeout_s, _FIRST_PAUSE_S
        elif monotonic_s() + pause_s > deadline:
            raise _full(keys, options, len(left))
        time.sleep(pause_s)
        pause_s = min(_LONGEST_PAUSE_S, 2 * pause_s)


def _full(keys: QueueKeys, options: SinkOptions, wanted: int) -> QueueFullError:
    msg = (
        f"queue {keys.name!r} holds maxStreamLen, {options.max_stream_len} jobs, and had no room "
        f"for {wanted} more within overflowTimeoutSecs, {options.overflow_timeout_s}: "
        "add workers, or raise one of the two"
    )
    return QueueFullError(msg)


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None  # noqa: S101 -- Spark calls `write` in tasks only
    return task


def _refuse_overwrite(overwrite: bool) -> None:  # noqa: FBT001
    if overwrite:
        msg = "a queue cannot be overwritten: use mode('append')"
        raise ConfigError(msg)
