"""Dead letters in groups that have one cause, and a group's replay or end.

Grouping is done by Spark over `chasquimq_dlq`; what changes a queue goes through its front door.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own habit

from chasquimq.clock import monotonic_s
from chasquimq.errors import ConfigError
from chasquimq.pipeline import fingerprints
from chasquimq.pipeline.effort import OnStep, told
from chasquimq.pipeline.export import writer_for
from chasquimq.pipeline.problems import first_line, ours
from chasquimq.pipeline.watch import Progress
from chasquimq.spark import session
from chasquimq.spark.source import server_of
from chasquimq.sync_queue import SyncQueue

_SAMPLES = 3
# Ids that go to the server at a time.
_AT_ONCE = 1_000
# The first part of all SQL states that mean: a value cannot be worked with.
_DATA_EXCEPTION = "22"


@dataclass(frozen=True, slots=True)
class Group:
    """Dead letters of one queue that look alike."""

    fingerprint: str
    count: int
    reason: str
    names: tuple[str, ...]
    error_type: str | None
    message: str
    """Without its particulars."""
    frames: str
    """The innermost of the traceback, innermost first."""
    error_fingerprint: str | None
    """The one that the pipeline's tables have, which know neither types nor tracebacks."""
    first_ms: int | None
    last_ms: int | None
    """When the first and the last of them were given up, epoch ms."""
    samples: tuple[str, ...]
    """Some of the errors as they were."""
    ids: tuple[str, ...]
    """Some of the dead letters."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was chosen, and what became of it."""

    found: int
    changed: int


class Triage:
    """The dead letters of one queue.

    triage = Triage("emails")
    for group in triage.groups():
        print(group.count, group.message)
    triage.replay(triage.choose(fingerprint=group.fingerprint))
    """

    def __init__(
        self, queue: str, *, redis_url: str | None = None, spark: SparkSession | None = None
    ) -> None:
        """Nothing is read yet; without `spark` a session is had when one is needed."""
        self._queue = queue
        self._redis_url = redis_url
        self._spark = spark

    def __repr__(self) -> str:
        """Show whose."""
        return f"<Triage of {self._queue}>"

    def letters(self) -> DataFrame:
        """All dead letters, with their fingerprints; read anew each time it is used."""
        spark = self._session()
        reader = spark.read.format("chasquimq_dlq").option("queue", self._queue)
        if (url := server_of(spark, self._redis_url)) is not None:
            reader = reader.option("redis_url", url)
        return fingerprinted(reader.load())

    def groups(self, where: str | None = None, *, on_step: OnStep | None = None) -> list[Group]:
        """Those that look alike together, most first; `where` is a condition in SQL.

        `on_step`, here and elsewhere, is told in words how far that is, some of them from a thread
        of its own.
        """
        with self._looking(where, on_step):
            rows = grouped(_filtered(self.letters(), None, where)).collect()
        return [_group(row) for row in rows]

    def choose(
        self,
        *,
        fingerprint: str | None = None,
        where: str | None = None,
        on_step: OnStep | None = None,
    ) -> list[str]:
        """The ids of dead letters by their group, by a condition in SQL, or both; oldest first.

        The dry run of `replay` and `discard`. Raises `ConfigError` if neither is given: all of them
        must be asked for, as `where="true"`.
        """
        if fingerprint is None and where is None:
            msg = (
                "neither fingerprint nor where is given: name a group, or say where='true' for all"
            )
            raise ConfigError(msg)
        with self._looking(where, on_step):
            chosen = _filtered(self.letters(), fingerprint, where)
            rows = chosen.orderBy("failed_at", "dlq_id").select("dlq_id").collect()
        return [row["dlq_id"] for row in rows]

    def export(
        self,
        path: str,
        *,
        fingerprint: str | None = None,
        where: str | None = None,
        on_step: OnStep | None = None,
    ) -> list[str]:
        """Write dead letters to a file, with payloads and fingerprints; answers their ids.

        What could not be read goes with its bytes, in text files as base 64: nothing that is
        discarded afterwards is lost.

        All of them, unless a group or a condition is given; oldest first. By its ending the file is
        Parquet, CSV or JSON, an object a line. It is there whole or not at all; one that is there
        already is refused. Goes through the memory of the driver: the DLQ, being capped, fits.
        """
        write = writer_for(path)
        with self._looking(where, on_step):
            chosen = _filtered(self.letters(), fingerprint, where).orderBy("failed_at", "dlq_id")
            table = chosen.drop("shown_error").toArrow()
        write(table)
        return [str(each) for each in table.column("dlq_id").to_pylist()]

    def replay(
        self, ids: Sequence[str], *, on_progress: Callable[[Progress], None] = lambda _: None
    ) -> Verdict:
        """Send these round again with a full budget of attempts, a thousand at a time.

        Broken off, killed even, do it again: each is sent round and taken out in one step, and
        those that are gone from the dead letters are passed over. Needs no Spark. `on_progress` is
        called after each thousand.
        """
        return self._dispose(ids, "replay", on_progress)

    def discard(
        self, ids: Sequence[str], *, on_progress: Callable[[Progress], None] = lambda _: None
    ) -> Verdict:
        """Delete these for good, a thousand at a time; broken off, do it again. Needs no Spark."""
        return self._dispose(ids, "discard", on_progress)

    def _dispose(
        self,
        ids: Sequence[str],
        verb: Literal["replay", "discard"],
        on_progress: Callable[[Progress], None],
    ) -> Verdict:
        if isinstance(ids, str):
            msg = "ids is a text: use a list of ids, as choose() gives"
            raise TypeError(msg)
        # Ids are those of the server that they were read from.
        url = self._redis_url if self._spark is None else server_of(self._spark, self._redis_url)
        changed, began_s = 0, monotonic_s()
        with SyncQueue(self._queue, redis_url=url) as queue:
            act = queue.replay_dlq if verb == "replay" else queue.discard_dlq
            for first in range(0, len(ids), _AT_ONCE):
                some = ids[first : first + _AT_ONCE]
                changed += act(len(some), ids=some)
                done, spent_s = first + len(some), monotonic_s() - began_s
                on_progress(Progress(done, len(ids), done / spent_s if spent_s else 0.0))
        return Verdict(len(ids), changed)

    def _session(self) -> SparkSession:
        self._spark = self._spark or session()
        return self._spark

    @contextmanager
    def _looking(self, where: str | None, on_step: OnStep | None) -> Iterator[None]:
        doing = f"looking through the dead letters of {self._queue}"
        with _told_plainly(where), told(self._session(), doing, on_step):
            yield


def fingerprinted(letters: DataFrame) -> DataFrame:
    """Rows of `chasquimq_dlq` with what tells their causes apart.

    What never ran has no error: there the reason and its detail stand for one.
    """
    error = F.coalesce("error", F.concat_ws(": ", "reason", "detail"))
    of_error = fingerprints.of_error(error, F.coalesce("traceback", F.lit("")))
    bare = fingerprints.message_of(F.col("error"))
    return letters.withColumns(
        {
            "fingerprint": of_error,
            "error_fingerprint": fingerprints.of_message(bare),
            "error_type": fingerprints.error_type(F.col("error")),
            "message": fingerprints.normalised(fingerprints.message_of(error)),
            "frames": fingerprints.top_frames(F.coalesce("traceback", F.lit(""))),
            "shown_error": error,
        }
    )


def grouped(letters: DataFrame) -> DataFrame:
    """A row for each group, most letters first."""
    oldest_first = F.array_sort(F.collect_list(F.struct("failed_at", "dlq_id")))
    some = F.slice(oldest_first, 1, _SAMPLES)
    return (
        letters.groupBy("fingerprint")
        .agg(
            F.count(F.lit(1)).alias("count"),
            F.max("reason").alias("reason"),
            F.array_sort(F.collect_set(F.coalesce("name", F.lit("")))).alias("names"),
            F.max("error_type").alias("error_type"),
            F.max("message").alias("message"),
            F.max("frames").alias("frames"),
            F.max("error_fingerprint").alias("error_fingerprint"),
            F.unix_millis(F.min("failed_at")).alias("first_ms"),
            F.unix_millis(F.max("failed_at")).alias("last_ms"),
            F.slice(F.array_sort(F.collect_set("shown_error")), 1, _SAMPLES).alias("samples"),
            some["dlq_id"].alias("ids"),
        )
        .orderBy(F.desc("count"), "fingerprint")
    )


def _filtered(letters: DataFrame, fingerprint: str | None, where: str | None) -> DataFrame:
    if fingerprint is not None:
        letters = letters.where(F.col("fingerprint") == fingerprint)
    if where is not None:
        try:
            letters = letters.where(where)
        except (AnalysisException, ParseException) as error:
            raise _unfit(where, "is no condition on dead letters", error) from None
    return letters


@contextmanager
def _told_plainly(where: str | None) -> Iterator[None]:
    """Raise what ended the reading in a line: ours as it was, or what the condition fell over."""
    try:
        yield
    except PySparkException as error:
        if (mine := ours(error)) is not None:
            raise mine from error
        if where is None or not (error.getSqlState() or "").startswith(_DATA_EXCEPTION):
            raise
        raise _unfit(where, "does not fit every dead letter", error) from None


def _unfit(where: str, why: str, error: PySparkException) -> ConfigError:
    return ConfigError(f"where is {where!r}, which {why}: {first_line(error)}")


def _group(row: Row) -> Group:
    found = row.asDict()
    for name in ("names", "samples", "ids"):
        found[name] = tuple(found[name])
    return Group(**found)
