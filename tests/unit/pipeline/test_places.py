"""Paths are those of this process, wherever Java was started."""

import pytest

from chasquimq.pipeline.lake import Lake
from chasquimq.pipeline.places import resolved


def test_a_relative_path_is_of_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert resolved("lake") == f"{tmp_path}/lake"
    assert resolved("in/day=*/*.csv") == f"{tmp_path}/in/day=*/*.csv"
    assert resolved("../lake") == f"{tmp_path.parent}/lake"
    assert Lake(None, "lake/").path == f"{tmp_path}/lake"


@pytest.mark.parametrize(
    "path", ["/data/lake", "s3a://bucket/lake", "file:/lake", "hdfs://h/a/../b"]
)
def test_what_is_absolute_stays_as_it_is(path):
    assert resolved(path) == path
