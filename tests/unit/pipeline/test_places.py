"""Paths are those of this process, wherever Java was started."""

import pytest

from chasquimq.pipeline.lake import Lake
from chasquimq.pipeline.places import on_this_machine, resolved
from chasquimq.pipeline.sources import must_be_there
from chasquimq.spark.session import sees_files_here


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


@pytest.mark.parametrize(
    ("path", "here"),
    [
        ("/data/lake", "/data/lake"),
        ("file:/data/lake", "/data/lake"),
        ("file:///data/lake", "/data/lake"),
        ("file://host/data/lake", "/data/lake"),
        ("s3a://bucket/lake", None),
        ("hdfs:/lake", None),
    ],
)
def test_a_path_is_of_this_machine_unless_its_scheme_is_another(path, here):
    found = on_this_machine(path)
    assert (found and str(found)) == here


@pytest.mark.parametrize(
    ("name", "file_format", "must"),
    [
        ("orders.csv", None, True),
        ("orders.csv.gz", None, True),
        ("in/orders", None, True),
        ("orders", "json", True),
        ("orders", None, False),
        ("orders.csv", "table", False),
        ("in/day=*/*.csv", None, False),
    ],
)
def test_only_what_can_be_no_table_and_is_no_glob_must_be_there(name, file_format, must):
    assert must_be_there(name, file_format) is must


@pytest.fixture
def no_settings(monkeypatch):
    """An environment that says nothing of Spark."""
    for name in ("MASTER", "SPARK_REMOTE", "PYSPARK_SUBMIT_ARGS", "HADOOP_CONF_DIR", "SPARK_HOME",
                 "SPARK_CONF_DIR"):  # fmt: skip
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("no_settings")
@pytest.mark.parametrize(
    ("config", "environment", "sees"),
    [
        ({}, {}, True),
        ({"spark.master": "local[2]"}, {}, True),
        ({"spark.master": "spark://h:7077"}, {}, False),
        ({"spark.remote": "sc://h"}, {}, False),
        ({}, {"MASTER": "yarn"}, False),
        ({}, {"HADOOP_CONF_DIR": "/etc/hadoop"}, False),
        ({"spark.hadoop.fs.defaultFS": "hdfs://h"}, {}, False),
    ],
)
def test_spark_elsewhere_may_see_files_that_are_not_here(monkeypatch, config, environment, sees):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert sees_files_here(config) is sees


@pytest.mark.usefixtures("no_settings")
@pytest.mark.parametrize("name", ["spark-defaults.conf", "core-site.xml"])
def test_settings_in_files_may_name_another_place_for_files(monkeypatch, tmp_path, name):
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert sees_files_here({})
    (tmp_path / name).touch()
    assert not sees_files_here({})
