"""What SECURITY.md promises of the source: no code from payloads, no port but on loopback."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
# Modules that turn bytes into code or objects of any class.
UNSAFE_MODULES = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "yaml", "code"}
UNSAFE_CALLS = {"eval", "exec", "compile", "__import__"}


def _names(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]


def _calls(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_nothing_turns_bytes_into_code(path):
    tree = ast.parse(path.read_text())
    assert UNSAFE_MODULES.isdisjoint(_names(tree))
    assert UNSAFE_CALLS.isdisjoint(_calls(tree))


def test_what_reads_from_the_server_imports_nothing_by_name():
    """`chasqui worker app:handler` does, because a person wrote that name; a payload never can."""
    for folder in ("wire", "broker", "engine"):
        for path in (ROOT / "src" / "chasquimq" / folder).rglob("*.py"):
            assert "import_module(" not in path.read_text(), path


def test_no_port_is_opened_to_the_world_unless_asked():
    for path in SOURCES:
        assert '"0.0.0.0"' not in path.read_text(), path
