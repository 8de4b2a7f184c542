"""Bronze gathered into one file for each day and queue: no row changes, whatever happens."""

import contextlib
import json
from datetime import timedelta

import pytest
from click.testing import CliRunner

from chasquimq.cli import pipeline as command_line
from chasquimq.errors import ConfigError
from chasquimq.pipeline import Compacted, Pipeline
from chasquimq.pipeline.lake import Lake
from chasquimq.pipeline.tables import COMPACTIONS
from tests.support.spark import SPARK_MARKS
from tests.support.story import some

pytestmark = SPARK_MARKS

AT_ONCE = timedelta(0)


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


def test_folders_become_one_file_and_no_row_changes_whenever_it_is_killed(
    server, queue_name, pipeline, play, tmp_path, monkeypatch
):
    play([*some("ok", 3), *some("broken", 1)])
    done = pipeline.run([queue_name], redis_url=server.url, max_events=4)
    assert done.batches > 2
    kept, batches = events(pipeline), files(tmp_path)
    reading = pipeline.table("bronze").drop("batch")

    with monkeypatch.context() as patch:
        killed_at(patch, COMPACTIONS)
        with pytest.raises(OSError, match="killed here"):
            pipeline.compact()
    assert "compacted-00000001" in files(tmp_path)
    assert events(pipeline) == kept

    # All but the newest, which might come again. What the killed one left is deleted first.
    first = pipeline.compact()
    assert first == Compacted(gathered=done.batches - 1, into=1, deleted=1)
    assert files(tmp_path) == batches | {"compacted-00000001": 1}
    assert events(pipeline) == kept
    # A reader that began before goes on with what it found.
    assert sorted(map(str, reading.collect())) == kept
    assert pipeline.compact() == Compacted()

    later = pipeline.compact(keep=AT_ONCE)
    assert later == Compacted(deleted=done.batches - 1)
    assert files(tmp_path) == {max(batches): batches[max(batches)], "compacted-00000001": 1}
    assert events(pipeline) == kept
    assert pipeline.compact(keep=AT_ONCE) == Compacted()

    # Later runs go on as if nothing had been, also with a compaction in their midst.
    play(some("flaky", 2))
    pipeline.run([queue_name], redis_url=server.url, max_events=6,
                 on_batch=lambda _: pipeline.compact(keep=AT_ONCE))  # fmt: skip
    found = events(pipeline)
    assert len(found) == server.client().xlen(f"{{chasqui:{queue_name}}}:events")
    assert set(kept) < set(found)
    made = {name: sorted(map(str, pipeline.table(name).collect())) for name in ("jobs", "days")}
    pipeline.backfill()
    for name, rows in made.items():
        assert sorted(map(str, pipeline.table(name).collect())) == rows
    assert len(files(tmp_path)) <= 4


def test_what_cannot_be_compacted_is_refused(spark, tmp_path, pipeline):
    with pytest.raises(ConfigError, match="tables of 'json' are not compacted here"):
        Pipeline(str(tmp_path), spark=spark, file_format="json").compact()
    with pytest.raises(ConfigError, match="keep is -1 day"):
        pipeline.compact(keep=timedelta(days=-1))
    assert pipeline.compact() == Compacted()


def test_the_command_does_it_and_tells(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(command_line, "_spark", lambda _: contextlib.nullcontext(spark))
    arguments = ["compact", "--path", str(tmp_path)]
    said = CliRunner().invoke(command_line.command, arguments)
    assert (said.exit_code, said.output) == (0, "gathered 0 folders into 0, deleted 0\n")
    told = CliRunner().invoke(command_line.command, [*arguments, "--json", "--keep", "0"])
    assert json.loads(told.output) == {"gathered": 0, "into": 0, "deleted": 0}
