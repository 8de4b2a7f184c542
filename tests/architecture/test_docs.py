"""The docs tell the truth: tables match the code, named tests and linked files exist."""

import ast
import dataclasses
import inspect
import re
from pathlib import Path

import pytest

from chasquimq import Queue, QueueEvents, SyncQueue, Worker, config, errors
from chasquimq.wire.event import EventName
from chasquimq.wire.keys import QueueKeys

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PACKAGE = ROOT / "src" / "chasquimq"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
MAX_LINES = {"README.md": 120, "ARCHITECTURE.md": 250}
MAX_DECISION_LINES = 60

# Defaults that are made anew for every object; the docs show their shape.
MADE = {"consumer_id": r"c-[0-9a-f-]{36}", "holder_id": r"[ps]-[0-9a-f-]{36}"}
SHOWN_AS = {"c-<uuid4>", "p-<uuid4>", "s-<uuid4>"}


def table(page: str, heading: str) -> list[list[str]]:
    """The rows of the first table below a heading, cells without their backticks."""
    text = (DOCS / page).read_text()
    found = re.search(
        rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", text, re.MULTILINE | re.DOTALL
    )
    assert found, f"{page} has no section {heading!r}"
    block = re.search(r"(?:^\|.*\n)+", found[1], re.MULTILINE)
    assert block, f"{page}, {heading}: there is no table"
    rows = [line.strip()[1:-1].split("|") for line in block[0].splitlines()[2:]]
    return [[cell.strip().strip("`") for cell in row] for row in rows]


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# --- reference tables


CONFIGS = [
    each
    for each in vars(config).values()
    if dataclasses.is_dataclass(each) and each.__module__ == config.__name__
]


@pytest.mark.parametrize("kind", CONFIGS, ids=lambda kind: kind.__name__)
def test_the_table_of_a_config_has_every_field_with_its_default(kind):
    rows = {row[0]: row[1] for row in table("configuration.md", kind.__name__)}
    value = kind()
    assert list(rows) == [each.name for each in dataclasses.fields(kind)]
    for name, text in rows.items():
        default = getattr(value, name)
        if text in SHOWN_AS:
            assert re.fullmatch(MADE[name], default)
            assert default[:2] == text[:2]
        elif text.endswith("Config()"):
            assert f"{type(default).__name__}()" == text
        elif text == "NO_METRICS":
            assert default is config.NO_METRICS
        else:
            assert (name, ast.literal_eval(text)) == (name, default)


@pytest.mark.parametrize(
    ("heading", "kind"),
    [
        ("Queue and SyncQueue", Queue),
        ("Queue and SyncQueue", SyncQueue),
        ("Worker", Worker),
        ("QueueEvents", QueueEvents),
    ],
    ids=lambda each: getattr(each, "__name__", None),
)
def test_the_table_of_a_class_has_every_argument_with_its_default(heading, kind):
    rows = {row[0]: ast.literal_eval(row[1]) for row in table("configuration.md", heading)}
    parameters = inspect.signature(kind).parameters.values()
    assert rows == {
        each.name: each.default for each in parameters if each.kind is each.KEYWORD_ONLY
    }


def test_the_arguments_of_a_worker_name_fields_that_exist():
    fields = {each.name for each in dataclasses.fields(config.ConsumerConfig)}
    named = {row[2] for row in table("configuration.md", "Worker")} - {""}
    assert named
    assert named <= fields


def test_numbers_told_for_left_out_arguments_of_a_queue_are_the_defaults_of_its_config():
    value = config.ProducerConfig()
    told = {}
    for name, default, means in table("configuration.md", "Queue and SyncQueue"):
        number = re.match(r"([\d,]+)", means)
        if default == "None" and number:
            told[name] = int(number[1].replace(",", ""))
    assert told
    assert told == {name: getattr(value, name) for name in told}


def test_the_options_of_add_are_all_in_its_table():
    rows = {row[0]: ast.literal_eval(row[1]) for row in table("jobs.md", "Options of add")}
    parameters = inspect.signature(Queue.add).parameters.values()
    assert rows == {
        each.name: each.default for each in parameters if each.kind is each.KEYWORD_ONLY
    }


ERRORS = {
    name: each.code
    for name, each in vars(errors).items()
    if isinstance(each, type) and issubclass(each, errors.ChasquiError)
}
# Callers are told their base, `ConnectionFailedError`, which is in the table.
STEPS_OF_CONNECTING = {"OutOfPatienceError", "ServerNotReadyError", "SlotElsewhereError"}


def test_every_error_is_in_its_table_with_its_code():
    rows = {row[0]: row[1] for row in table("errors.md", "Classes")}
    assert rows == ERRORS


def test_no_error_is_defined_where_its_table_does_not_look():
    elsewhere = {
        node.name
        for path in PACKAGE.rglob("*.py")
        if path.name != "errors.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        and any(isinstance(base, ast.Name) and base.id in ERRORS for base in node.bases)
    }
    assert elsewhere == STEPS_OF_CONNECTING


def test_every_dead_letter_reason_is_in_its_table_with_its_code():
    rows = {row[0]: row[1] for row in table("errors.md", "Dead-letter reasons")}
    assert rows == {str(reason): reason.code for reason in errors.DlqReason}


def test_every_script_is_in_the_table_with_the_file_that_calls_it():
    rows = {row[0]: row[2] for row in table("scripts.md", "Scripts")}
    assert sorted(rows) == sorted(path.stem for path in PACKAGE.glob("broker/lua/*.lua"))
    silent = [
        name
        for name, caller in rows.items()
        if f"scripts.{name.upper()}." not in (PACKAGE / caller).read_text()
    ]
    assert silent == []


def test_every_key_is_in_the_table_or_named_as_reserved():
    text = (DOCS / "redis-keys.md").read_text()
    named = set(re.findall(r"`(:[\w:]+)(?:<[\w ]+>)?`", text))
    keys = QueueKeys("q")
    fixed = {
        value.removeprefix(keys.tag).decode()
        for name in QueueKeys.__slots__
        if isinstance(value := getattr(keys, name), bytes) and value != keys.tag
    }
    made = {
        method("").removeprefix(keys.tag).decode()
        for name, method in inspect.getmembers(keys, inspect.ismethod)
        if not name.startswith("_")
    }
    assert named == fixed | made


def test_every_event_is_in_the_table_or_named_as_reserved():
    rows = {row[0] for row in table("results-and-events.md", "Events")}
    reserved = re.search(
        r"Reserved, and not written[^:]*:(.*?)\.\n", page("results-and-events.md"), re.DOTALL
    )
    assert rows | set(re.findall(r"`([\w-]+)`", reserved[1])) == set(EventName)


def page(name: str) -> str:
    return (DOCS / name).read_text()


# --- names of tests, links, lengths


TEST_ID = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def test_every_test_that_a_page_names_exists():
    named = {found for path in PAGES for found in TEST_ID.findall(path.read_text())}
    assert len(named) > 10
    assert [f"{file}::{name}" for file, name in sorted(named) if not has_test(file, name)] == []


def has_test(file: str, name: str) -> bool:
    path = ROOT / file
    if not path.exists():
        return False
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return any(
        isinstance(node, functions) and node.name == name
        for node in ast.parse(path.read_text()).body
    )


def test_every_guarantee_names_a_test_and_its_limits():
    sections = re.split(r"^## ", page("guarantees.md"), flags=re.MULTILINE)[1:]
    promises = [each for each in sections if "**Promise.**" in each]
    assert len(promises) > 5
    for each in promises:
        assert "**Limits.**" in each, each.splitlines()[0]
        assert TEST_ID.search(each), each.splitlines()[0]


def test_every_state_change_in_the_architecture_names_its_test():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    states = text.partition("## States\n")[2].partition("\n## ")[0]
    rows = [line for line in states.splitlines() if line.startswith("|")][2:]
    assert len(rows) > 10
    assert [row for row in rows if not TEST_ID.search(row)] == []


@pytest.mark.parametrize("path", PAGES, ids=shown)
def test_every_link_of_a_page_leads_somewhere(path):
    text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    dead = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        file, _, anchor = target.partition("#")
        linked = (path.parent / file).resolve() if file else path
        if not linked.exists() or (anchor and anchor not in anchors(linked)):
            dead.append(target)
    assert dead == []


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as forges make them."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


def test_pages_that_must_be_short_are():
    lengths = {shown(path): len(path.read_text().splitlines()) for path in PAGES}
    limits = MAX_LINES | {name: MAX_DECISION_LINES for name in lengths if "decisions/" in name}
    assert {name: lengths[name] for name, limit in limits.items() if lengths[name] > limit} == {}
