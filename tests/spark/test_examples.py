"""The examples that need Spark, one after the other in the session that all tests share."""

import re
import runpy
from pathlib import Path

import pytest

from tests.support.spark import EXAMPLES, SPARK_MARKS

pytestmark = [*SPARK_MARKS, pytest.mark.usefixtures("spark")]

FOLDER = Path(__file__).parents[2] / "examples"
MAX_LINES = 60


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_short_and_says_what_it_shows(capsys, name):
    assert len((FOLDER / name).read_text().splitlines()) <= MAX_LINES
    runpy.run_path(str(FOLDER / name), run_name="__main__")
    said = capsys.readouterr().out
    assert re.search(".*?".join(EXAMPLES[name]), said, re.DOTALL), said
