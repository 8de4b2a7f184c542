"""Checks of the pipeline: whole tables pass, and each broken promise is named."""

import pytest
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own habit

from chasquimq.errors import QualityError
from chasquimq.pipeline import Slo, bronze, quality
from chasquimq.pipeline.failures import failures, fallen
from chasquimq.pipeline.jobs import jobs
from chasquimq.pipeline.periods import facts, minutes, roll_ups
from chasquimq.pipeline.runs import parts, runs
from chasquimq.pipeline.scope import EVERYTHING
from chasquimq.pipeline.tables import JOBS, RUNS
from chasquimq.pipeline.tallies import tallies
from tests.support.spark import SPARK_MARKS
from tests.support.told import a_run, computed, frame, told

pytestmark = SPARK_MARKS


@pytest.fixture(scope="module")
def made(request):
    """Bronze, runs, jobs and periods that are as they should be, as plain frames."""
    spark = request.getfixturevalue("spark")
    events = [told(0, "waiting", "a"), *a_run(5, "a"), *a_run(6, "b", fails="no")]
    rows = computed(bronze.events(frame(spark, events), "b-0"))
    of_jobs = computed(parts(rows))
    found_runs, found_jobs = computed(runs(of_jobs)), computed(jobs(of_jobs))
    all_facts = computed(facts(found_runs, found_jobs, Slo()))
    all_fallen = fallen(found_runs, found_jobs)
    gold = minutes(all_facts, None, slo=Slo()), tallies(all_facts), failures(all_fallen)
    return [rows, found_runs, found_jobs, *map(computed, gold)]


def rolled_up(tallied):
    """Hours and days of these tallies, without a gap."""
    return roll_ups(tallied, None, slo=Slo())


def test_tables_that_are_whole_pass(made):
    rows, found_runs, found_jobs, *gold = made
    assert quality.check_bronze(rows, expected=5).events == 5
    quality.check(
        quality.of_runs(found_runs),
        quality.of_jobs(found_jobs, found_runs),
        quality.of_minutes(*gold, found_runs, found_jobs, EVERYTHING),
        quality.of_roll_ups(rolled_up(gold[1]), gold[0], EVERYTHING),
    )


def test_bronze_must_have_every_event_once(made):
    rows, *_ = made
    with pytest.raises(QualityError, match=r"'counts add up': 6 rows were read, 5 written"):
        quality.check_bronze(rows, expected=6)
    with pytest.raises(QualityError, match=r"'keys are unique': these are not: q/"):
        quality.check_bronze(rows.union(rows.limit(1)), expected=6)


def test_a_row_of_a_newer_version_is_refused(made):
    rows, *_ = made
    newer = rows.withColumn("schema_version", F.lit(99))
    with pytest.raises(QualityError, match=r"'bronze' breaks 'no row of a newer version': 5 rows"):
        quality.check_bronze(newer, expected=5)


def test_a_negative_duration_is_refused(made):
    _, found_runs, found_jobs, *_ = made
    with pytest.raises(QualityError, match=r"'runs' breaks 'no negative durations': 2 rows .*q/a"):
        quality.check(quality.of_runs(RUNS.select(found_runs.withColumn("ran_us", F.lit(-1)))))
    broken = JOBS.select(found_jobs.withColumn("total_ms", F.lit(-1)))
    with pytest.raises(QualityError, match=r"'jobs' breaks 'no negative durations'"):
        quality.check(quality.of_runs(found_runs), quality.of_jobs(broken, found_runs))


def test_a_run_without_its_job_is_refused(made):
    _, found_runs, found_jobs, *_ = made
    with pytest.raises(QualityError, match=r"'no orphan runs': 1 runs are of q/b"):
        quality.check(quality.of_jobs(found_jobs.where("job_id = 'a'"), found_runs))


def test_jobs_and_periods_must_count_what_is_there(made):
    _, found_runs, found_jobs, *gold = made
    with pytest.raises(QualityError, match=r"'counts add up': q/b has 1 attempts and 0 runs"):
        quality.check(quality.of_jobs(found_jobs, found_runs.where("job_id = 'a'")))
    of_one = found_runs.where("job_id = 'a'")
    with pytest.raises(QualityError, match=r"'minutes' breaks 'counts add up': runs come to 2"):
        quality.check(quality.of_minutes(*gold, of_one, found_jobs, EVERYTHING))
    fewer = gold[1].where("measure != 'arrivals'")
    counted = gold[0], fewer, gold[2]
    with pytest.raises(QualityError, match=r"'tallies' breaks 'counts add up': arrivals come to 0"):
        quality.check(quality.of_minutes(*counted, found_runs, found_jobs, EVERYTHING))
    with pytest.raises(QualityError, match=r"'hours' breaks 'counts add up': arrivals come to 0"):
        quality.check(quality.of_roll_ups(rolled_up(fewer), gold[0], EVERYTHING))


def test_failures_must_count_the_runs_that_failed_and_the_jobs_that_are_dead(made):
    _, found_runs, found_jobs, *gold, found = made
    dead = found.unionAll(found.withColumn("kind", F.lit("job")))
    for rows, broken in (
        (found.limit(0), "'counts add up': failures come to 0, and there are 1"),
        (dead, "'counts add up': dead come to 1, and there are 0"),
        (found.unionAll(found), "'keys are unique': these are not: q"),
    ):
        with pytest.raises(QualityError, match=f"'failures' breaks {broken}"):
            quality.check(quality.of_minutes(*gold, rows, found_runs, found_jobs, EVERYTHING))


def test_a_gap_must_be_there_for_each_that_a_batch_tells_of(spark):
    missing = [told(minute, "data-loss", None, lost=lost) for minute, lost in ((1, 7), (2, None))]
    rows = computed(bronze.events(frame(spark, [*missing, *a_run(5, "a")]), "b-0"))
    batch = quality.check_bronze(rows, expected=4)
    gaps = computed(bronze.gaps(rows))
    quality.check_gaps(gaps, batch)
    with pytest.raises(QualityError, match="'gaps' breaks 'counts add up': rows come to 1, and"):
        quality.check_gaps(gaps.where("lost = 7"), batch)
    with pytest.raises(QualityError, match="'gaps' breaks 'counts add up': lost come to 14, and"):
        quality.check_gaps(gaps.withColumn("lost", F.lit(7).cast("long")), batch)
    with pytest.raises(QualityError, match="'gaps' breaks 'keys are unique': these are not: q/"):
        quality.check_gaps(gaps.unionAll(gaps), batch)
