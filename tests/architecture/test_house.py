"""The rules of the house that no linter knows: sizes, clocks, words, paths named in docs."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "chasquimq"

MAX_PYTHON_LINES = 400
MAX_LUA_LINES = 80
MAX_FUNCTION_LINES = 50

# Modules that may read a clock themselves, each with the reason. `clock.py` is where it belongs.
CLOCK_READERS = {
    "clock.py": "the only reader of wall and monotonic time",
}
CLOCK_NAMES = re.compile(
    r"time\.(time|monotonic|perf_counter)(_ns)?|datetime\.(now|utcnow|today)|date\.today"
)

BUCKETS = {"utils", "util", "helpers", "common", "types", "models", "misc"}

# What must not be written down anywhere in the repository, and why.
FORBIDDEN = {
    "a path of one machine": re.compile(r"(?<![\w.}*-])/(?:work|root)/\w"),
    "an archive or index host": re.compile(r"\b[\w-]+\.(?:debian|ubuntu|pythonhosted|pypi)\.org\b"),
    "a reminder without an issue number": re.compile(r"\b(?:TO[D]O|FIX[M]E)\b(?! ?\(?#\d)"),
}
FOLDERS = (".ci", "bench", "chaos", "docs", "examples", "scripts", "src", "tests")
TEXT_SUFFIXES = {"", ".cfg", ".css", ".html", ".js", ".lua", ".md", ".py", ".toml", ".yaml", ".yml"}


def sources(suffix: str) -> list[Path]:
    return sorted(PACKAGE.rglob(f"*{suffix}"))


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def texts() -> Iterator[tuple[Path, str]]:
    """Every text file that people write: the top level and the known folders."""
    top = [path for path in ROOT.iterdir() if path.is_file() and path.name != ".git"]
    below = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    for path in sorted(top + below):
        if path.suffix in TEXT_SUFFIXES and "__pycache__" not in path.parts:
            yield path, path.read_text(encoding="utf-8")


def test_there_is_a_house_to_inspect():
    assert len(sources(".py")) > 2
    assert any(path.name == "pyproject.toml" for path, _ in texts())


@pytest.mark.parametrize(
    ("suffix", "limit"), [(".py", MAX_PYTHON_LINES), (".lua", MAX_LUA_LINES)], ids=["python", "lua"]
)
def test_no_source_file_is_longer_than_its_limit(suffix, limit):
    lengths = {shown(path): len(path.read_text().splitlines()) for path in sources(suffix)}
    assert {path: n for path, n in lengths.items() if n > limit} == {}


def test_no_script_is_longer_than_a_source_file_may_be():
    scripts = [path for path, _ in texts() if path.parent == ROOT / "scripts"]
    lengths = {shown(path): len(path.read_text().splitlines()) for path in scripts}
    assert "scripts/test" in lengths
    assert {path: n for path, n in lengths.items() if n > MAX_PYTHON_LINES} == {}


def test_no_function_is_longer_than_a_page():
    """Of bodies: a documented signature is as long as it is, and a docstring as the truth needs."""
    long = {}
    for path in sources(".py"):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[1:] if ast.get_docstring(node) is not None else node.body
                lines = (node.end_lineno or 0) - body[0].lineno + 1 if body else 0
                if lines > MAX_FUNCTION_LINES:
                    long[f"{shown(path)}:{node.lineno} {node.name}"] = lines
    assert long == {}


def test_every_module_says_in_its_first_sentence_what_it_is_responsible_for():
    silent = []
    for path in sources(".py"):
        first = (ast.get_docstring(parsed(path)) or "").partition("\n\n")[0]
        if not first.rstrip().endswith((".", ":")):
            silent.append(shown(path))
    assert silent == []


def test_no_module_is_a_bucket():
    assert [shown(path) for path in sources(".py") if path.stem in BUCKETS] == []


def test_clocks_are_read_in_one_module():
    readers = {}
    for path in sources(".py"):
        if path.relative_to(PACKAGE).as_posix() in CLOCK_READERS:
            continue
        if found := sorted(clock_reads(parsed(path))):
            readers[shown(path)] = found
    assert readers == {}


def clock_reads(module: ast.Module) -> Iterator[str]:
    """Reads of a clock by its full name, and imports of one under a bare name."""
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute):
            name = ast.unparse(node).replace("datetime.datetime", "datetime")
            if CLOCK_NAMES.fullmatch(name):
                yield f"line {node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            for imported in node.names:
                if CLOCK_NAMES.fullmatch(f"time.{imported.name}"):
                    yield f"line {node.lineno}: from time import {imported.name}"


@pytest.mark.parametrize(
    "line",
    [
        "import time; time.time()",
        "import time; time.monotonic_ns()",
        "import time; read = time.perf_counter",
        "from time import perf_counter_ns",
        "from datetime import datetime; datetime.now(UTC)",
        "import datetime; datetime.datetime.now()",
        "from datetime import date; date.today()",
    ],
)
def test_the_clock_rule_sees_every_way_to_read_a_clock(line):
    assert list(clock_reads(ast.parse(line)))


@pytest.mark.parametrize("what", FORBIDDEN)
def test_nothing_in_the_repository_names(what):
    found = [
        f"{shown(path)}:{number}: {line.strip()[:80]}"
        for path, text in texts()
        for number, line in enumerate(text.splitlines(), 1)
        if FORBIDDEN[what].search(line)
    ]
    assert found == []


def test_every_path_named_in_the_architecture_exists():
    document = ROOT / "ARCHITECTURE.md"
    if not document.exists():
        pytest.skip("ARCHITECTURE.md is not written yet")
    named = set(re.findall(r"`([\w./-]+(?:\.(?:py|lua|md|toml)|/))`", document.read_text()))
    bases = [ROOT, PACKAGE, PACKAGE / "broker", PACKAGE / "broker" / "lua"]
    assert named, "the architecture names no file"
    assert [path for path in sorted(named) if not any((b / path).exists() for b in bases)] == []
