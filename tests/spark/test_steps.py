"""Batches taken through the tables one after the other, where it could go wrong.

A batch takes Spark seconds, whatever is in it. So one history is played, in which each queue has a
story of its own, and tests ask what became of theirs.
"""

import json
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chasquimq.pipeline import SCHEMA_VERSION, Compacted, Pipeline, keeping, width
from chasquimq.wire.ids import _Mint
from tests.support.batches import MADE, Batches, content
from tests.support.spark import SPARK_MARKS
from tests.support.told import START_MS, a_run, told

pytestmark = SPARK_MARKS

AT_ONCE = timedelta(0)
THIRD_DAY = 2 * 86_400_000
RAN_AT = 20 * 60_000
LOST = told(-START_MS, "data-loss", None, lost=None, reason="nobody knows how many are missing")


def ulid(ms, last):
    """The id of a job that was made so many ms after the beginning."""
    return _Mint().one(START_MS + ms)[:10] + f"{last:0>16}"


LONG, SHORT = ulid(0, "A"), ulid(THIRD_DAY, "B")

# By batch, then by queue.
EVENTS = [
    {"days": [told(0, "waiting", LONG)]},
    {"days": [told(1, "waiting", "own")]},
    {
        "days": [*a_run(2, LONG, fails="no"), *a_run(3, "own")],
        "late": a_run(RAN_AT, "mine"),
        "gap": a_run(0, "mine"),
        "timeless": [told(0, "waiting", "mine") | {"event_at": None}],
        "old": [
            told(0, "waiting", "a"),
            *a_run(5, "a"),
            told(6, "progress", "a", progress=50, entry_seq=3),
            *a_run(6, "b", fails="no"),
            told(9, "dlq", "b", attempt=1, reason="unrecoverable"),
        ],
    },
    {
        "days": [*a_run(THIRD_DAY, LONG, 2), told(THIRD_DAY, "waiting", SHORT)],
        "late": [told(RAN_AT - 5, "waiting", "mine")],
        # Of a stream that was begun before its queue, and trimmed before it was read.
        "gap": [LOST | {"event_at": None}, told(3_600_000, "drained", None)],
    },
    {"days": a_run(THIRD_DAY + 5, SHORT)},
]


def batch(number):
    """All events of a batch."""
    return [each | {"queue": name} for name, told in EVENTS[number].items() for each in told]


def age(folder, *missing):
    """Make the files of a table what a version wrote that did not know some columns yet."""
    for path in folder.rglob("*.parquet"):
        rows = pq.ParquetFile(path).read().drop_columns(list(missing))
        at = rows.schema.get_field_index("schema_version")
        version = pa.array([0] * len(rows), pa.int32())
        aged = rows.set_column(at, "schema_version", version)
        pq.write_table(aged, path, use_deprecated_int96_timestamps=True)  # as Spark does


@dataclass
class History:
    """What the tables held, as rows in JSON, after each batch that made them, and in the end."""

    after: list[dict[str, list[str]]] = field(default_factory=list)
    gathered: list[Compacted] = field(default_factory=list)
    aged: dict[str, list[str]] = field(default_factory=dict)
    anew: dict[str, list[str]] = field(default_factory=dict)
    once_more: dict[str, list[str]] = field(default_factory=dict)

    def rows(self, queue: str, table: str, at: int = -1) -> list[dict[str, Any]]:
        """Those of a queue, after one of the batches."""
        return of_queue(self.after[at], queue, table)


def of_queue(tables, queue, table):
    return [row for row in map(json.loads, tables[table]) if row["queue"] == queue]


@pytest.fixture(scope="module")
def history(spark, tmp_path_factory):
    folder = tmp_path_factory.mktemp("history") / "lake"
    batches, pipeline, found = Batches(spark, folder), Pipeline(str(folder), spark=spark), History()
    for number in (0, 1, 2):
        batches.keep(number, batch(number))
    found.gathered.append(pipeline.compact(keep=AT_ONCE))
    # The newest again, as after a crash behind bronze.
    for number in (2, 3, 4):
        batches.take(number, batch(number))
        found.after.append(content(pipeline))
    found.gathered.append(pipeline.compact(keep=AT_ONCE))

    age(folder / "jobs", "dlq_reason", "lives")
    age(folder / "bronze", "progress")
    found.aged = content(pipeline, ("bronze", "jobs"))
    # In the way of many rows, which makes the same tables as that of few: in several tasks, with
    # plans that change while they run. To compile them, too, would take a third as long again.
    own = spark.newSession()
    own.conf.set("spark.sql.adaptive.enabled", "true")
    own.conf.set("spark.sql.shuffle.partitions", "3")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keeping, "FEW", 0)
        patch.setattr(width, "FEW", 0)
        Pipeline(str(folder), spark=own).rebuild()
    found.anew = content(pipeline, ("bronze", *MADE))
    pipeline.rebuild()  # in the way of few
    found.once_more = content(pipeline)
    return found


def test_made_batch_by_batch_or_all_at_once_the_tables_are_the_same(history):
    assert {name: history.anew[name] for name in MADE} == history.after[-1]
    assert history.once_more == history.after[-1]


def test_later_batches_and_a_batch_that_comes_again_find_all_that_was_gathered(history):
    # Of the first day: two batches of one queue; then that with a third, and two of two others.
    assert history.gathered == [
        Compacted(gathered=2, into=1),
        Compacted(gathered=6, into=3, deleted=2),
    ]
    jobs = history.rows("days", "jobs")
    assert [(job["job_id"], job["outcome"], job["attempts"]) for job in jobs] == [
        (LONG, "completed", 2), (SHORT, "completed", 1), ("own", "completed", 1)
    ]  # fmt: skip
    # The day of which the last batch knew one job only.
    [day] = [day for day in history.rows("days", "days") if day["day"] == "2026-02-02"]
    assert (day["runs"], day["completed"]) == (2, 2)


def test_a_time_that_nothing_is_in_any_more_leaves_no_rows(history):
    """A late event says that the job came at another time than it seemed."""

    def stretches(table, at):
        return sorted({row["stretch"] for row in history.rows("late", table, at)})

    seemed, came = "2026-01-31T09-50", "2026-01-31T10-10"
    assert stretches("minutes", 0) == stretches("tallies", 0) == [seemed, came]
    assert stretches("minutes", 1) == stretches("tallies", 1) == [came]
    # All in the hour that it came in, and none in the one before.
    hours = history.rows("late", "hours")
    assert [(hour["arrivals"], hour["runs"]) for hour in hours] == [(1, 1)]


def test_a_gap_since_ever_marks_what_there_is_and_makes_no_more(history):
    for table in ("minutes", "hours", "days"):
        before, after = (history.rows("gap", table, at) for at in (0, 1))
        assert [row["is_complete"] for row in before] == [True] * len(after)
        assert [row["is_complete"] for row in after] == [False] * len(after)
        assert sum(row["runs"] for row in after) == 1


def test_columns_that_a_version_did_not_have_are_null_until_their_rows_are_made_anew(history):
    [dead] = [job for job in history.rows("old", "jobs") if job["outcome"] == "dead"]
    assert (dead["dlq_reason"], dead["schema_version"]) == ("unrecoverable", SCHEMA_VERSION)
    for job in of_queue(history.aged, "old", "jobs"):
        assert job["schema_version"] == 0
        assert not job.keys() & {"lives", "dlq_reason"}  # nulls are not in JSON
    # What was kept of an event stays as it was kept.
    assert history.anew["bronze"] == history.aged["bronze"]
    assert not any("progress" in json.loads(row) for row in history.anew["bronze"])


def test_a_job_whose_events_have_no_time_is_there_and_counts_at_no_time(history):
    for tables in (history.after[0], history.anew):
        [job] = of_queue(tables, "timeless", "jobs")
        assert (job["job_id"], job["outcome"], "arrived_at" in job) == ("mine", "waiting", False)
        assert of_queue(tables, "timeless", "days") == []


@pytest.mark.usefixtures("adaptive")
@pytest.mark.parametrize(
    ("events", "jobs", "gaps"),
    [
        pytest.param([told(0, "waiting", "mine") | {"event_at": None}], 1, [], id="no-time"),
        pytest.param([LOST | {"event_at": None, "lost": 25}, told(1, "drained", None)], 0, [25],
                     id="no-job"),
    ],
)  # fmt: skip
def test_a_batch_of_which_nothing_comes_midway_is_taken_in(spark, tmp_path, events, jobs, gaps):
    """Spark may leave out what it will not need, and with it who counts events on the way."""
    Batches(spark, tmp_path / "lake").take(0, events)
    pipeline = Pipeline(str(tmp_path / "lake"), spark=spark)
    assert pipeline.table("jobs").count() == jobs
    assert pipeline.table("days").count() == 0
    assert [row["lost"] for row in pipeline.table("gaps").collect()] == gaps
