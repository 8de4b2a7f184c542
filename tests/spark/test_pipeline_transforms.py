"""The transforms of the pipeline, on events told by hand, to the row.

A table takes Spark as long for one story as for ten. So each queue has a story of its own, all of
them are made into tables at once, and tests ask what became of theirs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own habit

from chasquimq.pipeline import Slo, bronze, fingerprints, instants, sql
from chasquimq.pipeline.failures import failures, fallen
from chasquimq.pipeline.jobs import jobs
from chasquimq.pipeline.periods import facts, figures, minutes, roll_ups, rows_of
from chasquimq.pipeline.runs import parts, runs
from chasquimq.pipeline.steps import in_buckets, touched
from chasquimq.pipeline.tables import BRONZE, DAYS, HOURS
from chasquimq.pipeline.tallies import tallies
from tests.support.spark import SPARK_MARKS
from tests.support.told import START, START_MS, a_run, at, computed, frame, told

pytestmark = SPARK_MARKS

# Made at 2026-01-31T09:59:59Z.
ULID = "01KG9QXF8R0000000000000000"
HOUR_MS, MINUTE_MS = instants.HOUR_MS, instants.MINUTE_MS
SLO = Slo(within_ms=500, target=0.5)

# `a` fails, is retried and completes; `b` dies at once, is replayed and completes; `c` waits.
STORY = [
    told(0, "waiting", "a"),
    *a_run(10, "a", fails="row 7 of 'x.csv'"),
    told(13, "retry-scheduled", "a", attempt=2, backoff_ms=500),
    told(600, "waiting", "a"),
    *a_run(605, "a", attempt=2, us=4_000),
    told(0, "waiting", "b"),
    *a_run(20, "b", fails="no such thing"),
    told(23, "dlq", "b", attempt=1, reason="unrecoverable"),
    told(61_000, "waiting", "b"),
    *a_run(61_003, "b"),
    told(700, "waiting", "c"),
    told(0, "drained", None),
]
LOST = told(2_000, "data-loss", None, lost=25, reason="25 events are missing")

# By queue.
STORIES = {
    # The order in which it came does not matter.
    "story": [*reversed(STORY)],
    "twice": [
        *STORY,
        *STORY,
        # The same thing, told a second time under an id of its own.
        told(10, "active", "a", attempt=1, wait_ms=10, created_at=at(0), entry_seq=7),
        told(12, "failed", "a", attempt=1, reason="row 7 of 'x.csv'", duration_us=2_000,
             entry_seq=8),
    ],
    "unread": [
        told(0, "waiting", "a"),
        told(5, "dlq", "a", attempt=0, reason="malformed"),
    ],
    "open": [
        told(0, "active", "a", attempt=1, wait_ms=40, created_at=at(-40)),
        told(9, "completed", "b", attempt=2, duration_us=5),
    ],
    "clocks": [
        told(0, "waiting", ULID, entry_ms=0),
        told(-50, "active", ULID, attempt=1, wait_ms=0, created_at=at(0), entry_ms=1),
        told(-40, "completed", ULID, attempt=1, duration_us=3, entry_ms=2),
    ],
    "untold": [*a_run(0, "a", fails="no"), *a_run(9, "a", attempt=2)],
    "hours": [
        # Over five hours, with values below and above what is exact.
        *(each for job in range(40) for each in (
            told(job * 7 * MINUTE_MS, "waiting", f"job-{job}"),
            *a_run(job * 7 * MINUTE_MS + 17 * job * job, f"job-{job}", us=53_000 * job),
        )),
        # Twice in an hour, again in the next, and once more a day later: one job each time.
        *(each for turn, at_ms in enumerate((0, MINUTE_MS, HOUR_MS, 24 * HOUR_MS), start=1)
          for each in a_run(at_ms, "again", attempt=turn, fails="no")),
        # Given up before its first run, replayed, run: that is one job that ran.
        told(0, "dlq", "unread", attempt=0, reason="malformed"),
        *a_run(MINUTE_MS, "unread"),
    ],
    "failed": [
        *a_run(0, "a", fails="row 7 of 'x.csv'"),
        *a_run(1, "b", fails="row 12 of 'other file'"),
        told(5, "dlq", "b", attempt=1, reason="retries_exhausted"),
    ],
    "gap": [
        *a_run(0, "a"),
        # The last before it has the same id.
        told(2_000, "drained", None),
        LOST | {"event_at": None},
        *a_run(120_000, "b"),
        *a_run(240_000, "c"),
    ],
}  # fmt: skip


@dataclass
class Book:
    """All stories as tables: how they are made, and their rows."""

    frames: dict[str, DataFrame] = field(default_factory=dict)
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def made(self, name: str, frame: DataFrame) -> DataFrame:
        """The same rows, computed and noted."""
        self.frames[name] = frame
        return self.note(name, computed(frame))

    def note(self, name: str, rows: DataFrame) -> DataFrame:
        """Keep the rows of a table, instants as ms since the beginning."""
        self.rows[name] = [row.asDict() for row in in_ms(rows).collect()]
        return rows

    def picked(
        self, name: str, queue: str, *columns: str, order: Sequence[str]
    ) -> list[tuple[Any, ...]]:
        """Some columns of a story's rows."""
        found = [row for row in self.rows[name] if row["queue"] == queue]
        found.sort(key=lambda row: [row[each] for each in order])
        return [tuple(row[each] for each in columns) for row in found]


def in_ms(frame: DataFrame) -> DataFrame:
    kinds = dict(frame.dtypes)
    return frame.select(
        *(
            (F.unix_millis(name) - START_MS if kinds[name] == "timestamp" else F.col(name)).alias(
                name
            )
            for name in frame.columns
        )
    )


@pytest.fixture(scope="module")
def book(request):
    spark, made = request.getfixturevalue("spark"), Book()
    told = [each | {"queue": queue} for queue, events in STORIES.items() for each in events]
    rows = bronze.events(frame(spark, told), "b-0")
    of_jobs = made.made("parts", parts(rows))
    found_runs = made.made("runs", runs(of_jobs))
    found_jobs = made.made("jobs", jobs(of_jobs))
    gaps = made.made("gaps", bronze.gaps(rows))
    all_facts = made.made("facts", facts(found_runs, found_jobs, SLO))
    made.made("minutes", minutes(all_facts, gaps, slo=SLO))
    every = made.made("roll-ups", roll_ups(tallies(all_facts), gaps, slo=SLO))
    for table in (HOURS, DAYS):
        made.note(table.name, rows_of(table, every))
    made.made("failures", failures(fallen(found_runs, found_jobs)))
    return made


def test_a_run_says_how_it_waited_ran_and_ended_and_what_came_then(book):
    names = ("job_id", "life", "attempt", "started_at", "ended_at", "waited_ms", "ran_us",
             "outcome", "then", "backoff_ms", "error")  # fmt: skip
    assert book.picked("runs", "story", *names, order=("job_id", "life", "attempt")) == [
        ("a", 1, 1, 10, 12, 10, 2_000, "failed", "retry", 500, "row 7 of 'x.csv'"),
        ("a", 1, 2, 605, 609, 5, 4_000, "completed", None, None, None),
        ("b", 1, 1, 20, 22, 20, 2_000, "failed", "dead", None, "no such thing"),
        ("b", 2, 1, 61_003, 61_005, 3, 2_000, "completed", None, None, None),
    ]


def test_a_job_says_when_it_came_how_it_stands_and_what_it_took(book):
    names = ("job_id", "arrived_at", "finished_at", "outcome", "lives", "attempts", "failures",
             "retries", "waited_ms", "ran_us", "total_ms", "dlq_reason", "error")  # fmt: skip
    assert book.picked("jobs", "story", *names, order=("job_id",)) == [
        ("a", 0, 609, "completed", 1, 2, 1, 1, 10, 6_000, 609, None, "row 7 of 'x.csv'"),
        # Replayed: what it took counts from then.
        ("b", 0, 61_005, "completed", 2, 2, 1, 0, 20, 4_000, 5, None, "no such thing"),
        ("c", 700, None, "waiting", 1, 0, 0, 0, None, None, None, None, None),
    ]


def test_events_that_come_twice_change_nothing(book):
    for table in ("runs", "jobs"):
        once, twice = (
            sorted(str(row | {"queue": ""}) for row in book.rows[table] if row["queue"] == queue)
            for queue in ("story", "twice")
        )
        assert once == twice != []


def test_a_job_that_is_dead_says_why_and_one_that_never_ran_has_no_run(book):
    assert book.picked("runs", "unread", "job_id", order=("job_id",)) == []
    names = ("outcome", "attempts", "dlq_reason", "finished_at", "total_ms")
    found = book.picked("jobs", "unread", *names, order=("job_id",))
    assert found == [("dead", 0, "malformed", 5, 5)]


def test_a_run_without_an_end_is_open_and_one_without_a_beginning_has_no_start(book):
    names = ("job_id", "started_at", "ended_at", "waited_ms", "outcome")
    assert book.picked("runs", "open", *names, order=("job_id",)) == [
        ("a", 0, None, 40, "open"),
        ("b", None, 9, None, "completed"),
    ]
    assert book.picked("jobs", "open", "job_id", "outcome", order=("job_id",)) == [
        ("a", "active"),
        ("b", "completed"),
    ]


def test_clocks_that_differ_make_no_duration_negative(book):
    assert book.picked("runs", "clocks", "waited_ms", order=("job_id",)) == [(0,)]
    assert book.picked("jobs", "clocks", "total_ms", order=("job_id",)) == [(0,)]


def test_a_later_run_that_nobody_told_the_beginning_of_has_waited_an_unknown_time(book):
    found = book.picked("runs", "untold", "attempt", "waited_ms", order=("attempt",))
    assert found == [(1, 0), (2, None)]


def test_a_job_whose_producer_is_days_ahead_is_found_in_its_bucket(spark):
    """The id of the job is of a day on which there are no events."""
    ahead = "01KGHF3M8R0000000000000000"
    rows = bronze.events(frame(spark, [told(0, "waiting", ahead), *a_run(5, ahead)]), "b-0")
    assert in_buckets(rows, touched(rows)).count() == 3


def test_a_minute_counts_what_came_ran_and_ended_in_it(book):
    counted = ("period", "arrivals", "runs", "completed", "dead", "failures", "retries")
    # The story begins a second before a minute ends.
    assert book.picked("minutes", "story", *counted, order=("period",)) == [
        (-59_000, 3, 3, 1, 0, 2, 1),
        (61_000, 0, 1, 1, 0, 0, 0),
    ]
    first, last = sorted(
        (row for row in book.rows["minutes"] if row["queue"] == "story"),
        key=lambda row: row["period"],
    )
    assert (first["failure_rate"], first["retry_rate"], first["retry_amplification"]) == (
        pytest.approx(2 / 3), pytest.approx(1 / 3), 1.5,
    )  # fmt: skip
    assert (first["wait_p50_ms"], first["run_p50_ms"], first["total_p50_ms"]) == (10, 2, 609)
    assert first["handler_seconds"] == pytest.approx(0.008)
    assert first["throughput_per_s"] == pytest.approx(1 / 60)
    assert (first["slo_good"], first["slo_burn"]) == (0, 2.0)
    assert (last["slo_good"], last["slo_burn"]) == (1, 0.0)
    assert (first["stretch"], last["stretch"]) == ("2026-01-31T09-50", "2026-01-31T10-00")
    assert first["is_complete"]
    assert book.picked("hours", "story", "period", "runs", order=("period",)) == [
        (1_000 - HOUR_MS, 3),
        (1_000, 1),
    ]
    names = ("arrivals", "runs", "completed", "day")
    assert book.picked("days", "story", *names, order=("period",)) == [(3, 4, 2, "2026-01-31")]


def test_hours_and_days_are_what_their_runs_and_jobs_would_give(book):
    """Added up from ten minutes each, they have the same counts, percentiles and shares."""
    units = {HOURS: HOUR_MS, DAYS: instants.DAY_MS}
    each = book.frames["facts"].selectExpr(
        "*", f"explode(array({', '.join(map(str, units.values()))})) AS unit_ms"
    )
    period = "timestamp_millis(unix_millis(at) - unix_millis(at) % unit_ms) AS period"
    expected = figures(each.selectExpr("*", period), ("queue", "name", "unit_ms", "period"), SLO)
    wanted = [row.asDict() for row in in_ms(expected).collect()]
    for table, unit_ms in units.items():
        same = [name for name in table.names if name in expected.columns]
        assert {"retry_amplification", "run_p99_ms", "handler_seconds", "slo_good"} <= {*same}
        book.rows["wanted"] = [row for row in wanted if row["unit_ms"] == unit_ms]
        for queue in STORIES:
            made, given = (
                book.picked(name, queue, *same, order=("period",))
                for name in (table.name, "wanted")
            )
            assert made == given
        assert len(book.picked("wanted", "hours", "period", order=("period",))) > 1


def test_failures_are_counted_by_what_went_wrong(book):
    names = ("kind", "reason", "error", "failures")
    assert book.picked("failures", "failed", *names, order=("kind",)) == [
        ("job", "retries_exhausted", "row 12 of 'other file'", 1),
        ("run", "error", "row 7 of 'x.csv'", 2),
    ]


def test_a_gap_makes_the_time_until_the_next_event_incomplete(book):
    names = ("after_id", "from_at", "to_at", "lost")
    assert book.picked("gaps", "gap", *names, order=("after_id",)) == [
        (f"{START_MS + 2_000}-0", 2_000, 120_000, 25)
    ]
    found = book.picked("minutes", "gap", "period", "is_complete", "runs", order=("period",))
    assert [each for *each, ran in found if ran] == [
        [-59_000, True],
        [61_000, False],
        [181_000, True],
    ]


def test_every_event_is_kept_with_the_bucket_of_its_job(spark):
    rows = bronze.events(
        frame(
            spark, [told(0, "waiting", ULID), told(1, "waiting", "mine"), told(2, "drained", None)]
        ),
        "b-0",
    )
    assert rows.columns == BRONZE.names
    found = [(row["bucket"], row["day"]) for row in rows.orderBy("entry_at").collect()]
    assert found[0] == ("2026-01-31T09-50", "2026-01-31")
    assert found[1][0].startswith("id-")
    assert found[2][0] is None


@pytest.mark.parametrize("escaped", ["false", "true"])
def test_any_name_of_a_queue_can_stand_in_sql(spark, escaped):
    """Whether a backslash escapes is a setting of the session."""
    names = [
        "plain-7",
        "it's",
        'two "words"',
        "back\\slash",
        "\\'",
        "größe 漢字",
        "$" + "{x}",
        "\x1f",
    ]
    setting = "spark.sql.parser.escapedStringLiterals"
    spark.conf.set(setting, escaped)
    try:
        [row] = spark.range(1).selectExpr(*map(sql.text, names)).collect()
    finally:
        spark.conf.unset(setting)
    assert list(row) == names


def test_a_ulid_tells_when_it_was_made_and_other_ids_tell_nothing(spark):
    ids = [(ULID,), (ULID.lower(),), ("8" + ULID[1:],), (ULID[:-1],), ("order-7",)]
    made = spark.createDataFrame(ids, "id string").selectExpr(
        f"unix_millis({instants.ulid_time('id')})"
    )
    assert [row[0] for row in made.collect()] == [START_MS, None, None, None, None]


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu", "America/New_York"])
def test_days_hours_and_stretches_are_utc_in_every_time_zone(spark, zone):
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        one = spark.createDataFrame([(START_MS,)], "ms long").select(
            F.timestamp_millis("ms").alias("at")
        )
        [row] = one.selectExpr(
            instants.day("at"), instants.hour("at"), instants.stretch("at")
        ).collect()
        [[begin]] = one.selectExpr(
            f"unix_millis({instants.period('at', instants.DAY_MS)})"
        ).collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert tuple(row) == ("2026-01-31", "2026-01-31T09", "2026-01-31T09-50")
    assert begin == int(START.replace(hour=0, minute=0, second=0).timestamp() * 1_000)


TRACE = """Traceback (most recent call last):
  File "/srv/app/worker.py", line 10, in run
  File "/srv/app/orders.py", line 222, in total
  File "C:\\\\app\\\\money.py", line 7, in parse
ValueError: {}
"""


def test_errors_are_the_same_if_only_particulars_differ(spark):
    texts = [
        ("ValueError: row 7 of 'a.csv' is 0xFF", TRACE),
        ("ValueError: row 1,234 of 'b.csv' is 0x0A", TRACE.replace("222", "230")),
        ("ValueError: row 7 of 'a.csv' is 0xFF", TRACE.replace("parse", "load")),
        ("TypeError: row 7 of 'a.csv' is 0xFF", TRACE),
        ("ValueError: job 01KG9QXF8R0000000000000000 and 8d3a7f00-0000-4000-8000-00000000abcd", ""),
        ("ValueError: job 01KG9QXF8R1111111111111111 and 9d3a7f00-0000-4000-8000-00000000abcd", ""),
        (None, None),
        ("KeyError: 'tax_number'", TRACE),
        ("KeyError: 'amount'", TRACE),
        ('KeyError: "the user\'s order 12"', TRACE),
        ('KeyError: "the user\'s order 13"', TRACE),
    ]
    error, trace = F.col("error"), F.col("trace")
    rows = (
        spark.createDataFrame(texts, "error string, trace string")
        .select(
            fingerprints.of_error(error, trace).alias("print"),
            fingerprints.normalised(fingerprints.message_of(error)).alias("message"),
            fingerprints.top_frames(trace).alias("frames"),
        )
        .collect()
    )
    prints = [row["print"] for row in rows]
    assert prints[0] == prints[1]
    assert prints[4] == prints[5]
    assert prints[9] == prints[10]
    assert len({*prints}) == 8
    assert prints[6] is None
    assert rows[0]["message"] == "row # of '…' is #"
    assert rows[0]["frames"] == "money.py:parse < orders.py:total < worker.py:run"
    assert rows[4]["message"] == "job # and #"
    assert [row["message"] for row in rows[7:10]] == ["tax_number", "amount", "the user's order #"]


def test_no_window_looks_at_all_that_follows(book):
    """Spark would do so for each row: a hundred thousand events of one queue took minutes."""
    plans = {
        name: frame._jdf.queryExecution().optimizedPlan().toString().lower()  # noqa: SLF001
        for name, frame in book.frames.items()
    }
    with_windows = {name for name, plan in plans.items() if "windowspecdefinition" in plan}
    assert {"gaps", "parts"} <= with_windows
    assert [name for name, plan in plans.items() if "unboundedfollowing" in plan] == []
