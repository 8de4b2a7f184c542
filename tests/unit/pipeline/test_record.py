"""What is kept of a backfill comes back as it was, and tells how its source has changed."""

import json

import pytest

from chasquimq.errors import ConfigError
from chasquimq.pipeline.record import Record, check_run_id, digest_of, listed
from chasquimq.pipeline.sources import FileSeen

FILES = [FileSeen(f"file:/in/{name}.csv", 10, 1_700_000_000_000) for name in "abc"]


def a_record(files=FILES, **more):
    cut = {"spark.sql.files.minPartitionNum": "4", "spark.sql.files.maxPartitionNum": None}
    return Record(1, digest_of(files), listed(files), cut, 8, 30, **more)


def test_it_comes_back_as_it_was_and_passes_over_what_a_newer_version_kept():
    record = a_record(added=7, is_done=True)
    kept = json.loads(record.as_json()) | {"colour": "blue"}
    assert Record.from_json(json.dumps(kept)) == record


def test_a_run_that_was_started_anew_is_another_run_to_the_sink():
    assert a_record().run_id("r") == "r"
    assert Record(2, "", (), {}, 8, 30).run_id("r") == "r anew 2"
    with pytest.raises(ConfigError, match="run_id is 'r anew 2'"):
        check_run_id("r anew 2")


@pytest.mark.parametrize(
    ("now", "told"),
    [
        (FILES, None),
        (FILES[1:], "file:/in/a.csv is gone"),
        ([*FILES, FileSeen("file:/in/d.csv", 1, 1)], "file:/in/d.csv is new"),
        (
            [*FILES[:2], FileSeen("file:/in/c.csv", 12, 1_700_000_000_000)],
            "file:/in/c.csv had 10 bytes and has 12, or was written anew",
        ),
        (
            [*FILES[:2], FileSeen("file:/in/c.csv", 10, 1_700_000_000_001)],
            "file:/in/c.csv had 10 bytes and has 10, or was written anew",
        ),
    ],
)
def test_a_source_that_is_not_what_it_was_is_told_by_its_first_difference(now, told):
    assert a_record().change(now, "") == told
    assert a_record(reading="otherwise").change(now, "") == (
        "its format, options, columns or names are given differently"
    )


def test_a_change_beyond_the_files_that_are_kept_is_noticed_all_the_same():
    many = [FileSeen(f"file:/in/{number:05}", 1, 1) for number in range(1_500)]
    record = a_record(many)
    assert len(record.files) == 1_000
    assert record.change(many, "") is None
    assert record.change([*many[:-1], FileSeen("file:/in/01499", 2, 1)], "") == (
        "one of its many files is not what it was"
    )
