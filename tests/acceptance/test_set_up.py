"""What `make` puts into `.venv`, played with a pip that only notes what it is asked for."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ("bash", "cksum", "dirname", "rm", "touch", "tr")


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def set_up(tmp_path):
    """`set_up(**variables)`: what it says, and each line that pip is given."""
    asked = tmp_path / "asked"
    program(tmp_path / ".venv/bin/python", f'echo "$*" >> {asked}')
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/venv", tmp_path / "scripts")
    (tmp_path / "pyproject.toml").touch()
    for name in TOOLS:
        (tmp_path / ".venv/bin" / name).symlink_to(shutil.which(name))

    def run(**variables):
        asked.unlink(missing_ok=True)
        done = subprocess.run(
            [tmp_path / "scripts/venv"], capture_output=True, text=True, timeout=30, check=True,
            env={"PATH": str(tmp_path / ".venv/bin"), **variables},
        )  # fmt: skip
        told = asked.read_text().splitlines() if asked.exists() else []
        return done.stderr, [line for line in told if "install" in line]

    return run


def test_a_java_comes_with_the_environment_where_there_is_none_for_spark(set_up, tmp_path):
    said, asked = set_up()
    assert "installing a Java for Spark" in said
    assert asked[-1].endswith("--editable .[spark-java]")
    assert set_up()[1] == []  # all is there


@pytest.mark.parametrize(("version", "is_enough"), [("1.8.0_1", False), ("11.0.2", False),
                                                    ("17.0.1", True), ("25-ea", True)])  # fmt: skip
@pytest.mark.parametrize("where", ["path", "JAVA_HOME"])
def test_a_java_that_spark_can_use_is_left_as_it_is(set_up, tmp_path, version, is_enough, where):
    variables = {} if where == "path" else {"JAVA_HOME": str(tmp_path / "home")}
    folder = tmp_path / (".venv/bin" if where == "path" else "home/bin")
    program(folder / "java", f"echo 'openjdk version \"{version}\"' >&2")
    said, asked = set_up(**variables)
    assert ("a Java" not in said) is is_enough
    assert any("spark-java" in line for line in asked) is not is_enough


def test_the_environment_is_whole_where_no_java_can_be_had(set_up, tmp_path):
    program(tmp_path / ".venv/bin/python",
            f'echo "$*" >> {tmp_path}/asked; case "$*" in *spark-java*) exit 1;; esac')  # fmt: skip
    assert "no Java can be installed" in set_up()[0]
    assert set_up() == ("", [])
