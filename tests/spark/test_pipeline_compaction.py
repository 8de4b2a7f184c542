"""Bronze gathered into one file for each day and queue: no row changes, whatever happens."""

import json
from datetime import timedelta

import pytest
from click.testing import CliRunner

from chasquimq.cli import pipeline as command_line
from chasquimq.errors import ConfigError
from chasquimq.pipeline import Compacted, Pipeline
from chasquimq.pipeline.lake import Lake
from chasquimq.pipeline.tables import COMPACTIONS
from chasquimq.wire.ids import _Mint
from tests.support.batches import Batches, batch_key, content
from tests.support.spark import SPARK_MARKS
from tests.support.told import START_MS, a_run, told

pytestmark = SPARK_MARKS

AT_ONCE = timedelta(0)
DAY_MS = 86_400_000


@pytest.fixture
def pipeline(spark, tmp_path):
    return Pipeline(str(tmp_path / "lake"), spark=spark)


def events(pipeline):
    """All rows of bronze, in order, without the folder that they are in."""
    return sorted(map(str, pipeline.table("bronze").drop("batch").collect()))


def files(tmp_path):
    """How many files each folder of bronze has."""
    found = {}
    for path in (tmp_path / "lake" / "bronze").rglob("*.parquet"):
        name = path.parent.name.removeprefix("batch=")
        found[name] = found.get(name, 0) + 1
    return found


def killed_at(monkeypatch, table):
    def replace(lake, to, rows, *, kept=Lake.replace):
        if to is table:
            msg = "killed here"
            raise OSError(msg)
        kept(lake, to, rows)

    monkeypatch.setattr(Lake, "replace", replace)


@pytest.fixture
def batches(spark, tmp_path):
    return Batches(spark, tmp_path / "lake")


def test_folders_become_one_file_and_no_row_changes_whenever_it_is_killed(
    pipeline, batches, tmp_path, monkeypatch
):
    # The second brings what the first brought, as after a checkpoint was lost: no reason to stop.
    for number, (at, job_id) in enumerate([(0, "a"), (0, "a"), (2, "c"), (3, "d")]):
        batches.keep(number, a_run(at, job_id))
    kept, before = events(pipeline), files(tmp_path)
    assert before.keys() == {batch_key(number) for number in range(4)}
    reading = pipeline.table("bronze").drop("batch")

    with monkeypatch.context() as patch:
        killed_at(patch, COMPACTIONS)
        with pytest.raises(OSError, match="killed here"):
            pipeline.compact()
    assert files(tmp_path) == before | {"compacted-00000001": 1}
    assert events(pipeline) == kept

    # All but the newest, which might come again. What the killed one left is deleted first.
    assert pipeline.compact() == Compacted(gathered=3, into=1, deleted=1)
    assert files(tmp_path) == before | {"compacted-00000001": 1}
    assert events(pipeline) == kept
    assert pipeline.compact() == Compacted()
    # A reader that began before goes on with what it found.
    assert sorted(map(str, reading.collect())) == kept

    assert pipeline.compact(keep=AT_ONCE) == Compacted(deleted=3)
    assert files(tmp_path) == {batch_key(3): before[batch_key(3)], "compacted-00000001": 1}
    assert events(pipeline) == kept
    assert pipeline.compact(keep=AT_ONCE) == Compacted()


def test_later_batches_and_a_batch_that_comes_again_find_all_that_was_gathered(
    pipeline, batches, tmp_path
):
    """Over several days; what a batch makes anew is what there is when all is made anew."""
    long, short = ulid(0, "A"), ulid(2 * DAY_MS, "B")
    batches.keep(0, [told(0, "waiting", long)])
    batches.keep(1, [told(1, "waiting", "own")])
    newest = [*a_run(2, long, fails="no"), *a_run(3, "own")]
    batches.keep(2, newest)
    assert pipeline.compact(keep=AT_ONCE) == Compacted(gathered=2, into=1)
    # The newest again, as after a crash behind bronze; two days later others, then more of those.
    batches.take(2, newest)
    third_day = 2 * DAY_MS
    batches.take(3, [*a_run(third_day, long, 2), told(third_day, "waiting", short)])
    batches.take(4, a_run(third_day + 5, short))
    assert pipeline.compact(keep=AT_ONCE) == Compacted(gathered=2, into=1, deleted=2)

    piecewise = content(pipeline)
    outcomes = pipeline.table("jobs").orderBy("job_id").select("job_id", "outcome", "attempts")
    assert list(map(tuple, outcomes.collect())) == [
        (long, "completed", 2), (short, "completed", 1), ("own", "completed", 1)
    ]  # fmt: skip
    # The day of which the last batch knew one job only.
    [day] = pipeline.table("days").where("day = '2026-02-02'").select("runs", "completed").collect()
    assert tuple(day) == (2, 2)
    pipeline.rebuild()
    assert content(pipeline) == piecewise


def ulid(ms, last):
    """The id of a job that was made so many ms after the beginning."""
    return _Mint().one(START_MS + ms)[:10] + f"{last:0>16}"


def test_what_cannot_be_compacted_is_refused(spark, tmp_path, pipeline):
    with pytest.raises(ConfigError, match="tables of 'json' are not compacted here"):
        Pipeline(str(tmp_path), spark=spark, file_format="json").compact()
    with pytest.raises(ConfigError, match="keep is -1 day"):
        pipeline.compact(keep=timedelta(days=-1))
    assert pipeline.compact() == Compacted()


@pytest.mark.usefixtures("spark")
def test_the_command_does_it_and_tells(tmp_path):
    arguments = ["compact", "--path", str(tmp_path)]
    said = CliRunner().invoke(command_line.command, arguments)
    assert (said.exit_code, said.stdout) == (0, "gathered 0 folders into 0, deleted 0\n")
    assert said.stderr == "chasqui: gathering the folders of bronze\n"
    told = CliRunner().invoke(command_line.command, [*arguments, "--json", "--keep", "0"])
    assert json.loads(told.stdout) == {"gathered": 0, "into": 0, "deleted": 0}
