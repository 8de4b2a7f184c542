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
from tests.support.batches import Batches, batch_key
from tests.support.spark import SPARK_MARKS
from tests.support.told import a_run

pytestmark = SPARK_MARKS

AT_ONCE = timedelta(0)


@pytest.fixture
def pipeline(spark, tmp_path):
    """At a URL, as on storage elsewhere."""
    return Pipeline((tmp_path / "lake").as_uri(), spark=spark)


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
    said = []
    assert pipeline.compact(on_step=said.append) == Compacted(gathered=3, into=1, deleted=1)
    assert said == [
        "looking which folders of bronze there are",
        "deleting 1 that were replaced",
        "gathering 3 of 2026-01-31, queue q (1 of 1)",
    ]
    assert files(tmp_path) == before | {"compacted-00000001": 1}
    assert events(pipeline) == kept
    assert pipeline.compact() == Compacted()
    # A reader that began before goes on with what it found.
    assert sorted(map(str, reading.collect())) == kept

    assert pipeline.compact(keep=AT_ONCE) == Compacted(deleted=3)
    assert files(tmp_path) == {batch_key(3): before[batch_key(3)], "compacted-00000001": 1}
    assert events(pipeline) == kept
    assert pipeline.compact(keep=AT_ONCE) == Compacted()


def test_what_cannot_be_compacted_is_refused(spark, tmp_path, pipeline, monkeypatch):
    monkeypatch.setattr(Lake, "check_format", lambda _: None)
    with pytest.raises(ConfigError, match="tables of 'delta' are not compacted here"):
        Pipeline(str(tmp_path), spark=spark, file_format="delta").compact()
    with pytest.raises(ConfigError, match="keep is -1 day"):
        pipeline.compact(keep=timedelta(days=-1))
    assert pipeline.compact() == Compacted()


@pytest.mark.usefixtures("spark")
def test_the_command_does_it_and_tells(tmp_path):
    arguments = ["compact", "--path", str(tmp_path)]
    said = CliRunner().invoke(command_line.command, arguments)
    assert (said.exit_code, said.stdout) == (0, "gathered 0 folders into 0, deleted 0\n")
    assert said.stderr == "chasqui: looking which folders of bronze there are\n"
    told = CliRunner().invoke(command_line.command, [*arguments, "--json", "--keep", "0"])
    assert json.loads(told.stdout) == {"gathered": 0, "into": 0, "deleted": 0}
