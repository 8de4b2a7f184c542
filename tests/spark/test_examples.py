"""The examples that need Spark, as programs: no session is there before them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.spark import DRIVER_MARKS, EXAMPLES, SMALL

# All of them in one go, on a machine that may be busy.
pytestmark = [pytest.mark.timeout(1_200), *DRIVER_MARKS]

FOLDER = Path(__file__).parents[2] / "examples"
MAX_LINES = 60
# One process for all of them: those that come later find its Java warm.
PROGRAM = """
import runpy, sys
for path in sys.argv[1:]:
    runpy.run_path(path, run_name="__main__")
    print("\\f", end="")
"""


@pytest.fixture(scope="module")
def said(java, tmp_path_factory):
    """What each of them wrote; of the first that failed, and all behind it, why it did."""
    conf = tmp_path_factory.mktemp("conf")
    settings = "".join(f"{name} {value}\n" for name, value in SMALL.items())
    (conf / "spark-defaults.conf").write_text(settings)
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, *(str(FOLDER / name) for name in EXAMPLES)],
        capture_output=True, text=True, timeout=1_000, check=False,
        env=os.environ | {"SPARK_CONF_DIR": str(conf)},
    )  # fmt: skip
    wrote = ended.stdout.split("\f")[:-1]
    return dict.fromkeys(EXAMPLES, ended.stderr) | dict(zip(EXAMPLES, wrote, strict=False))


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_short_and_says_what_it_shows(said, name):
    assert len((FOLDER / name).read_text().splitlines()) <= MAX_LINES
    assert re.search(".*?".join(EXAMPLES[name]), said[name], re.DOTALL), said[name]
