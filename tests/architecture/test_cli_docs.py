"""`docs/cli.md` against the code: every command with its arguments, options and examples."""

import re
from pathlib import Path

import click
import pytest

from chasquimq.cli.main import command

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
# Told once for all commands.
SHARED = {"redis_url", "as_json"}
ALIASES = {"repeatable list", "repeatable remove"}


def leaves(group=command, prefix=""):
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        if isinstance(found, click.Group):
            yield from leaves(found, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", found


LEAVES = dict(leaves())
SECTION = re.compile(r"^### chasqui ([^\n]+)\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
SECTIONS = dict(SECTION.findall(PAGE.read_text()))


def test_every_command_has_its_section_and_every_section_its_command():
    assert set(SECTIONS) == set(LEAVES) - ALIASES
    for alias in ALIASES:
        assert f"`chasqui {alias}`" in PAGE.read_text()


@pytest.mark.parametrize("name", SECTIONS)
def test_the_table_of_a_command_has_its_options_in_order(name):
    rows = re.findall(r"^\| (`-.*?) \|", SECTIONS[name], re.MULTILINE)
    told = [re.findall(r"`(-[\w-]+)`", row) for row in rows]
    options = [each for each in LEAVES[name].params if isinstance(each, click.Option)]
    assert told == [list(each.opts) for each in options if each.name not in SHARED]


@pytest.mark.parametrize("name", SECTIONS)
def test_a_default_that_the_page_tells_is_that_of_the_option(name):
    told = dict(
        re.findall(r"^\| `(-[\w-]+)`.*Default: `(.*?)`\. \|$", SECTIONS[name], re.MULTILINE)
    )
    options = [each for each in LEAVES[name].params if isinstance(each, click.Option)]
    assert told == {each.opts[0]: str(each.default) for each in options if each.show_default}


@pytest.mark.parametrize("name", SECTIONS)
def test_a_section_has_the_usage_the_json_and_the_examples(name):
    found = LEAVES[name]
    context = click.Context(found, info_name=name)
    arguments = [each for each in found.params if isinstance(each, click.Argument)]
    usage = " ".join(["chasqui", name, *(each.make_metavar(context) for each in arguments)])
    assert f"\n{usage} [options]\n" in SECTIONS[name]
    assert "\nJSON: " in SECTIONS[name]
    for example in found.examples:
        assert f"\n{example}\n" in SECTIONS[name]
