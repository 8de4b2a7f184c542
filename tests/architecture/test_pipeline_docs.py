"""`docs/pipeline.md` against the tables of the pipeline: every column, in order, with its type."""

import re
from pathlib import Path

import pytest

from chasquimq.pipeline.tables import TABLES

PAGE = (Path(__file__).parents[2] / "docs" / "pipeline.md").read_text()
SECTION = re.compile(r"^### (\w+)\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
SECTIONS = dict(SECTION.findall(PAGE))


def test_every_table_has_its_section():
    assert list(SECTIONS) == [each.name for each in TABLES]


@pytest.mark.parametrize("table", TABLES, ids=lambda each: each.name)
def test_the_section_of_a_table_has_its_columns_key_and_folders(table):
    rows = re.findall(r"^\| `(\w+)` \| (\S+) \| (.+) \|$", SECTIONS[table.name], re.MULTILINE)
    assert rows == [(each.name, each.type.simpleString(), each.means) for each in table.columns]
    told = f"Key: {named(table.key)}. Folders: {named(table.partitions)}."
    assert f"{table.means} {told}" in SECTIONS[table.name]


@pytest.mark.parametrize("table", TABLES, ids=lambda each: each.name)
def test_keys_and_folders_are_columns_and_every_row_has_its_version(table):
    assert {*table.key, *table.partitions, "schema_version"} <= set(table.names)


def named(columns):
    return ", ".join(f"`{each}`" for each in columns)
