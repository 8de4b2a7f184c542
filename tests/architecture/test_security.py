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


# Spelt so they are looked for anywhere; an empty host, or none, where something is bound to it.
EVERYWHERE = {"0.0.0.0", "::", "[::]"}  # noqa: S104 -- none of ours
BINDERS = {
    "bind",
    "create_server",
    "start_server",
    "HTTPServer",
    "ThreadingHTTPServer",
    "TCPServer",
}


def opened_to_the_world(source):
    """The lines that name every address of a machine, or open a port and name none."""
    tree = ast.parse(source)
    in_sentences = {
        id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)
        for part in node.values
    }  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in in_sentences:
            if node.value in EVERYWHERE:
                yield node.lineno
        elif isinstance(node, ast.Call) and _called(node) in BINDERS:
            hosts = [each.value for each in node.keywords if each.arg == "host"]
            hosts += [each.elts[0] for each in node.args if isinstance(each, ast.Tuple)]
            if any(isinstance(host, ast.Constant) and not host.value for host in hosts):
                yield node.lineno


def _called(call):
    return getattr(call.func, "attr", None) or getattr(call.func, "id", None)


@pytest.mark.parametrize(
    "source",
    [
        'monitor("0.0.0.0", 9100)',
        "HOST = '::'",
        'socket.bind(("", 80))',
        'socket.bind(("::", 80))',
        'HTTPServer(("", 80), Handler)',
        'asyncio.start_server(serve, host="", port=80)',
        "loop.create_server(serve, host=None, port=80)",
    ],
)
def test_however_every_address_is_written_it_is_seen(source):
    assert list(opened_to_the_world(source))


@pytest.mark.parametrize(
    "source",
    ['socket.bind(("127.0.0.1", 0))', 'HTTPServer(("::1", 80), Handler)', 'connect(host="")',
     'f"{name}::{rest}"'],
)  # fmt: skip
def test_one_address_and_other_texts_are_not(source):
    assert not list(opened_to_the_world(source))


def test_no_port_is_opened_to_the_world_unless_asked():
    for path in SOURCES:
        assert not list(opened_to_the_world(path.read_text())), path
