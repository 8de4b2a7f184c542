"""Rows of any table, CSV, JSON or Parquet become jobs of a queue, each once, however often it runs.

The sink adds them and remembers which it added. What is kept here beside that is what makes a row
the same row in the next attempt: see `record`.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import NoReturn

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from chasquimq.broker import runs
from chasquimq.clock import monotonic_s
from chasquimq.errors import BackfillError, ConfigError
from chasquimq.pipeline.checking import Checked, Planned, checked, first_jobs
from chasquimq.pipeline.effort import OnStep, told
from chasquimq.pipeline.problems import told_plainly
from chasquimq.pipeline.record import RECORD_TTL_S, Record, check_run_id, digest_of, listed
from chasquimq.pipeline.shaping import ORIGIN, PAYLOAD, PROBLEM, Columns, shaped, spread
from chasquimq.pipeline.sources import FileSeen, Source, find
from chasquimq.pipeline.watch import Progress, Watch
from chasquimq.spark import session
from chasquimq.spark.links import Links
from chasquimq.spark.options import SinkOptions, read_options
from chasquimq.spark.queue_sink import AFTERWARDS_S
from chasquimq.spark.sink_rows import layout
from chasquimq.spark.source import server_of
from chasquimq.wire.keys import QueueKeys

# Of these Spark makes the size of the parts that it cuts files into.
_CUT = (
    "spark.sql.files.maxPartitionBytes",
    "spark.sql.files.openCostInBytes",
    "spark.sql.files.minPartitionNum",
    "spark.sql.files.maxPartitionNum",
)
# Without it Spark takes the number of cores, which may be another next time.
_MIN_PARTS = "spark.sql.files.minPartitionNum"
# A session of Spark Connect does not tell its cores.
_PARTS_ELSEWHERE = "8"
# Tasks of a driver that was killed may live on for a while: they must find what they have added.
_OURS = frozenset(
    {"queue", "queues", "redis_url", "runid", "origincolumn", "payloadcolumn", "jobname"}
)


# Which one it is, is not known before Spark has started, and does not matter to the others.
_ANY_SERVER = "redis://127.0.0.1"


@dataclass(frozen=True, slots=True)
class Preview:
    """What a dry run found."""

    run_id: str
    rows: int
    unfit: int
    """How many cannot be jobs; while there are any nothing is added."""
    problems: tuple[str, ...]
    """Some of them: what is wrong, and in which row of which file."""
    jobs: tuple[Planned, ...]
    """What the first rows would become."""


@dataclass(frozen=True, slots=True)
class Filled:
    """What a backfill came to."""

    run_id: str
    rows: int
    added: int
    """Jobs that this call has added."""
    before: int
    """Those that earlier calls of this run had added."""
    taken: int
    """Rows whose `job_id` was taken, by another row or another producer: nothing was added."""
    seconds: float


def check_sink_options(queue: str, more: Mapping[str, str]) -> None:
    """Refuse options of the sink that will not do; the server is none of them."""
    for key in more:
        if key.lower() in _OURS:
            _refuse(f"option {key!r} of the sink is chosen by the backfill: use its own argument")
    read_options(SinkOptions, dict(more) | {"queue": queue}, url=_ANY_SERVER)


class Backfill:
    """One source for one queue.

    backfill = Backfill("orders/*.csv", "orders", name="import")
    print(backfill.preview())
    backfill.run()
    """

    def __init__(  # noqa: PLR0913 -- the documented arguments
        self,
        source: str | Sequence[str] | DataFrame,
        queue: str,
        *,
        redis_url: str | None = None,
        spark: SparkSession | None = None,
        file_format: str | None = None,
        options: Mapping[str, str] | None = None,
        schema: str | None = None,
        columns: Columns | None = None,
        name: str | None = None,
        run_id: str | None = None,
        rate: int | None = None,
        sink: Mapping[str, str] | None = None,
    ) -> None:
        """Open the source and look at its columns; `ConfigError` if they will not do.

        `source` is paths, globs, URLs, the name of a table, or a frame, which needs a `run_id`.
        `name` is that of all jobs, or of those whose name column is null. `rate` is jobs added in a
        second by all tasks together. `options` are the reader's, `sink` more options of the sink.
        """
        self._keys = QueueKeys(queue)
        check_sink_options(queue, sink or {})
        self._spark = spark or session()
        self._columns = columns or Columns()
        self._source: Source | None = None
        if isinstance(source, DataFrame):
            if run_id is None:
                _refuse("the source is a frame, which has no name: give a run_id")
            frame = source
        else:
            self._source = find(self._spark, source, file_format, options, schema)
            frame = self._source.read(self._spark)
        self._frame = shaped(frame, self._columns, name, has_places=self._source is not None)
        self._how = self._digest(queue, name)
        self.run_id = run_id or f"backfill-{self._how}"
        check_run_id(self.run_id)
        self._sink = self._sink_options(queue, redis_url, name, rate, sink or {})
        self._options = read_options(SinkOptions, self._sink)
        layout(self._rows.schema, self._options)

    def __repr__(self) -> str:
        """Show what goes where."""
        return f"<Backfill {self.run_id} of {self._keys.name} from {self._shown}>"

    def preview(self, count: int = 5, *, on_step: OnStep | None = None) -> Preview:
        """The dry run: looks at all rows, and writes nothing. `on_step` as in `run`."""
        with told_plainly(self._reading):
            found = self._check(on_step)
            jobs = first_jobs(self._frame, self._options, self.run_id, count)
        problems = tuple(str(each) for each in found.shown)
        return Preview(self.run_id, found.rows, found.unfit, problems, tuple(jobs))

    def run(
        self,
        *,
        anew: bool = False,
        on_progress: Callable[[Progress], None] | None = None,
        on_step: OnStep | None = None,
    ) -> Filled:
        """Add the job of each row that this run has not added yet, and return when all are.

        Killed at any moment and called again, with the same `run_id` and source, it goes on. A run
        that is done adds nothing; `anew` forgets that, and adds all. Rows are looked at first: if
        one cannot be a job, or the source is not what it was when the run began, `BackfillError`,
        and nothing is added: `on_step` is told, in words, how far that look is. `on_progress` is
        called twice a second while rows are added. Both from threads of their own.
        """
        began_s = monotonic_s()
        with Links(self._options.target) as links:
            record = self._begun(links, on_step, anew=anew)
            if record.is_done:
                taken = record.rows - record.added
                return Filled(self.run_id, record.rows, 0, record.added, taken, 0.0)
            run_id = record.run_id(self.run_id)
            before = links.run(self._keys, runs.added(self._keys, run_id))
            self._refuse_forgotten(record, before)
            watch = Watch(self._options, self._keys, record, self.run_id, on_progress)
            with told_plainly(f"run {self.run_id!r} broke off"), watch, self._cut(record):
                self._write(run_id, record)
            self._refuse_changed(record, "while it was read: some rows may be missing or wrong")
            total = links.run(self._keys, runs.added(self._keys, run_id))
            self._note(links, replace(record, added=total, is_done=True))
            links.run(self._keys, runs.remember(self._keys, run_id, AFTERWARDS_S))
        taken = record.rows - total
        return Filled(
            self.run_id, record.rows, total - before, before, taken, monotonic_s() - began_s
        )

    def _begun(self, links: Links, on_step: OnStep | None, *, anew: bool) -> Record:
        """What is known of the run; looks at all rows before a new one begins."""
        kept = links.run(self._keys, runs.noted(self._keys, self.run_id))
        last = None if kept is None else Record.from_json(kept)
        if last is not None and not anew:
            self._refuse_changed(
                last, f"since run {self.run_id!r} {'ended' if last.is_done else 'began'}"
            )
            return last
        files = self._files()
        with told_plainly(self._reading):
            found = self._check(on_step)
        if found.unfit:
            shown = "; ".join(str(each) for each in found.shown)
            msg = (
                f"{found.unfit} of {found.rows} rows cannot be jobs, so nothing was added: {shown}"
            )
            raise BackfillError(msg)
        first = Record(
            1 if last is None else last.generation + 1,
            digest_of(files),
            listed(files),
            self._cut_now(),
            int(self._spark.conf.get("spark.sql.shuffle.partitions", "8") or 8),
            found.rows,
            reading=self._how,
        )
        if last is not None:
            self._note(links, first)
            return first
        begin = runs.begin(self._keys, self.run_id, first.as_json(), RECORD_TTL_S, step=first.step)
        links.run(self._keys, begin)
        # Another driver may have been quicker: then its cut is the one that counts.
        kept = links.run(self._keys, runs.noted(self._keys, self.run_id))
        return first if kept is None else Record.from_json(kept)

    def _write(self, run_id: str, record: Record) -> None:
        rows = self._rows if ORIGIN in self._frame.columns else spread(self._rows, record.parts)
        options = self._sink | {"runId": run_id}
        rows.write.format("chasquimq").options(**options).mode("append").save()

    def _check(self, on_step: OnStep | None) -> Checked:
        with told(self._spark, f"looking at all rows of {self._shown}", on_step):
            return checked(self._frame, self._options)

    def _files(self) -> tuple[FileSeen, ...]:
        if self._source is None:
            return ()
        with told_plainly(self._reading):
            return self._source.files(self._spark)

    @property
    def _rows(self) -> DataFrame:
        return self._frame.drop(PROBLEM)

    @property
    def _shown(self) -> str:
        return "a frame" if self._source is None else self._source.shown

    @property
    def _reading(self) -> str:
        return (
            "the source cannot be read"
            if self._source is None
            else f"{self._source.shown} cannot be read"
        )

    def _refuse_changed(self, record: Record, since: str) -> None:
        change = record.change(self._files(), self._how)
        if change is not None:
            msg = (
                f"the source has changed {since}: {change}. Which rows were added is known by "
                "their places, so it must be as it was; to add all rows of what it is now, start "
                "the run anew, or give another run id"
            )
            raise BackfillError(msg)

    def _refuse_forgotten(self, record: Record, before: int) -> None:
        if before == 0 and record.added > 0:
            msg = (
                f"run {self.run_id!r} broke off after {record.added} of {record.rows} rows, too "
                "long ago: which they were is forgotten; start it anew, and all are added again"
            )
            raise BackfillError(msg)

    def _note(self, links: Links, record: Record) -> None:
        text = record.as_json()
        links.run(
            self._keys, runs.note(self._keys, self.run_id, text, RECORD_TTL_S, step=record.step)
        )

    def _cut_now(self) -> dict[str, str | None]:
        cut = {name: self._spark.conf.get(name, None) for name in _CUT}
        if cut[_MIN_PARTS] is None:
            try:
                cut[_MIN_PARTS] = str(self._spark.sparkContext.defaultParallelism)
            except PySparkException:
                cut[_MIN_PARTS] = _PARTS_ELSEWHERE
        return cut

    @contextmanager
    def _cut(self, record: Record) -> Iterator[None]:
        """Let Spark cut files as it did when the run began."""
        before = {name: self._spark.conf.get(name, None) for name in _CUT}
        self._set(record.cut)
        try:
            yield
        finally:
            self._set(before)

    def _set(self, settings: Mapping[str, str | None]) -> None:
        for name, value in settings.items():
            if value is None:
                self._spark.conf.unset(name)
            else:
                self._spark.conf.set(name, value)

    def _digest(self, queue: str, name: str | None) -> str:
        """Of what is read and what becomes of it; of a frame only the latter is known."""
        source = None if self._source is None else asdict(self._source)
        text = json.dumps([source, asdict(self._columns), queue, name], sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()

    def _sink_options(
        self,
        queue: str,
        redis_url: str | None,
        name: str | None,
        rate: int | None,
        more: Mapping[str, str],
    ) -> dict[str, str]:
        found = dict(more) | {"queue": queue, "runId": self.run_id}
        url = server_of(self._spark, redis_url)
        for key, value in (("redis_url", url), ("jobName", name), ("maxJobsPerSec", rate)):
            if value is not None:
                found[key] = str(value)
        if ORIGIN in self._frame.columns:
            found["originColumn"] = ORIGIN
        if PAYLOAD in self._frame.columns:
            found["payloadColumn"] = PAYLOAD
        return found


def _refuse(problem: str) -> NoReturn:
    raise ConfigError(problem)
