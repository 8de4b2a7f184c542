"""What the page on Spark says is so: tables match the code, and fragments run."""

import ast
import dataclasses
import re
from pathlib import Path

import pytest

from chasquimq import SyncQueue
from chasquimq.spark import FORMATS, options, schemas
from chasquimq.spark.options import shown_default
from chasquimq.spark.sink_rows import MEANINGS
from tests.support.spark import SPARK_MARKS

pytestmark = SPARK_MARKS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "spark.md").read_text()


def tables(heading):
    """All tables of a section, as rows of cells without their backticks."""
    section = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)[1]
    found = []
    for block in re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE):
        rows = [line.strip()[1:-1].split("|") for line in block.splitlines()]
        found.append([[cell.strip().replace("`", "") for cell in row] for row in rows])
    return found


def options_table(heading):
    [table] = [each for each in tables(heading) if each[0][0] == "option"]
    return {row[0]: row[1:] for row in table[2:]}


COMMON = {each.metadata["name"] for each in dataclasses.fields(options.Options)}


@pytest.mark.parametrize(
    ("heading", "kind"),
    [
        ("The session", options.Options),
        ("Events", options.EventsOptions),
        ("Jobs", options.JobsOptions),
        ("Delayed jobs", options.PagedOptions),
        ("Dead letters", options.RangeOptions),
        ("The sink", options.SinkOptions),
    ],
)
def test_the_table_of_options_has_each_with_its_default_rule_and_meaning(heading, kind):
    told = options_table(heading)
    fields = {each.metadata["name"]: each.metadata for each in dataclasses.fields(kind)}
    own = fields.keys() - (set() if kind is options.Options else COMMON)
    assert told.keys() == own
    for name, (default, rule, means) in told.items():
        assert (rule, means) == tuple(
            fields[name][key].replace("`", "") for key in ("rule", "means")
        )
        value = shown_default(kind, name)
        assert default == ("" if value in (None, (), "") else str(value).lower())


@pytest.mark.parametrize(
    ("heading", "columns"),
    [
        ("Events", schemas.EVENTS),
        ("Jobs", schemas.JOBS),
        ("Delayed jobs", schemas.DELAYED),
        ("Dead letters", schemas.DLQ),
        ("Schedules", schemas.SCHEDULES),
        ("Results", schemas.RESULTS),
    ],
)
def test_the_table_of_columns_is_the_schema(heading, columns):
    [table] = [each for each in tables(heading) if each[0][0] == "column"]
    assert table[2:] == [
        [each.name, each.type.simpleString(), each.means.replace("`", "")] for each in columns
    ]


def test_the_columns_of_the_sink_are_those_it_knows():
    [table] = [each for each in tables("The sink") if each[0][0] == "column"]
    assert [row[0] for row in table[2:]] == list(MEANINGS)


def test_the_formats_are_all_told():
    [table] = [each for each in tables("The session") if each[0][0] == "format"]
    assert {row[0] for row in table[2:]} == set(FORMATS)


def test_the_fragments_of_the_page_run_one_after_the_other(spark, start_server, tmp_path):
    own = start_server("valkey")
    with SyncQueue("emails", redis_url=own.url) as queue:
        queue.add("welcome", {})
    world = {"spark": spark, "url": own.url, "folder": str(tmp_path)}
    fragments = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(fragments) > 3
    for text in fragments:
        exec(compile(ast.parse(text), "spark.md", "exec"), world)  # noqa: S102 -- our own page
    with SyncQueue("bills", redis_url=own.url) as queue:
        assert queue.counts().waiting == 2
    assert spark.read.parquet(f"{tmp_path}/events").count() == 1
