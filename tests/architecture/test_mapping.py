"""`docs/mapping.md` has a row for every name of the documented pages, and what it maps to exists.

The names of the pages are a list of their own, `page_names.txt`: a row that the table loses is
missed, and a name that no page has is noticed.
"""

import inspect
import re
from pathlib import Path

import pytest

import chasquimq
from chasquimq import QueueEvents, Worker, engine, metrics
from chasquimq.wire.event import EventName

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "mapping.md").read_text()
LIST = Path(__file__).with_name("page_names.txt").read_text()
PAGES = ("Rust", "Python", "Node")
NOTHING = "—"

ROW = re.compile(r"^\| (`.+?`) \| (`.+?`|—) \|(.*)\|$", re.MULTILINE)
BRACES = re.compile(r"^(.*?)\{(.*)\}(.*)$")


def expanded(cell: str) -> list[str]:
    """`a.{x, y}` is `a.x` and `a.y`; what has no braces is itself."""
    cell = cell.strip("`")
    if not (found := BRACES.match(cell)):
        return [cell]
    before, inner, after = found.groups()
    return [f"{before}{each.strip()}{after}" for each in inner.split(",")]


def section(page: str) -> str:
    return TEXT.partition(f"\n## {page}\n")[2].partition("\n## ")[0]


def rows(page: str) -> list[tuple[str, str, str]]:
    """Name there, name here (or the dash), note: one each, braces expanded."""
    found = []
    for there, here, note in ROW.findall(section(page)):
        names = expanded(there)
        ours = [NOTHING] * len(names) if here == NOTHING else expanded(here)
        assert len(names) == len(ours), f"{there} and {here} list different numbers of names"
        found += [(*pair, note.strip()) for pair in zip(names, ours, strict=True)]
    return found


def page_names(page: str) -> list[str]:
    block = LIST.partition(f"[{page}]\n")[2].partition("\n[")[0]
    return [line for line in block.splitlines() if line]


@pytest.mark.parametrize("page", PAGES)
def test_every_name_of_a_page_has_one_row(page):
    named = [there for there, _, _ in rows(page)]
    assert len(named) > 70
    assert sorted(named) == sorted(page_names(page))
    assert len(set(named)) == len(named)


@pytest.mark.parametrize("page", PAGES)
def test_no_line_of_a_table_is_left_unread(page):
    lines = [line for line in section(page).splitlines() if line.startswith("| `")]
    assert len(lines) == len(ROW.findall(section(page)))


HERE = sorted({here for page in PAGES for _, here, _ in rows(page) if here != NOTHING})


@pytest.mark.parametrize("here", HERE)
def test_a_name_of_ours_exists_and_is_public(here):
    assert problem_of(here) is None


@pytest.mark.parametrize("page", PAGES)
def test_what_is_not_offered_says_why(page):
    reasons = {note for _, here, note in rows(page) if here == NOTHING}
    assert all(re.match(r"not offered: .{10,}", reason) for reason in reasons), reasons


@pytest.mark.parametrize(
    "invented",
    [
        "Qeue", "Queue.addd", "Queue.add(dely=)", "Queue(nothing=)", "engine.Queue",
        "metrics.nothing", '"wating"', "Job.id.nothing", "engine.crew", "engine.Crew",
        'Worker.on("redy")', 'QueueEvents.on("wating")',
    ],
)  # fmt: skip
def test_a_name_that_does_not_exist_is_noticed(invented):
    assert problem_of(invented)


def problem_of(here: str) -> str | None:
    """What is wrong with a name of ours; None if it is there, and public."""
    if found := re.fullmatch(r'"([\w-]+)"', here):
        return None if found[1] in set(EventName) else f"there is no event {found[1]!r}"
    if found := re.fullmatch(r'(Worker|QueueEvents)\.on\("([\w-]+)"\)', here):
        return problem_of_listening(*found.groups())
    path, _, argument = here.removesuffix("=)").partition("(")
    try:
        value = resolved(path)
    except (AttributeError, LookupError) as error:
        return str(error) or repr(error)
    if argument and argument not in inspect.signature(value).parameters:
        return f"{path} has no argument {argument}"
    return None


def problem_of_listening(kind: str, event: str) -> str | None:
    """Whether one can listen to this event; what nobody tells is refused."""
    source = Worker("emails", print) if kind == "Worker" else QueueEvents("emails")
    try:
        source.on(event, print)
    except ValueError as error:
        return str(error)
    return None


def resolved(path: str) -> object:
    place, *names = path.split(".")
    match place:
        case "engine":
            module, public = engine, engine.__all__
        case "metrics":
            module, public = metrics, [name for name in vars(metrics) if name[0] != "_"]
        case _:
            module, public, names = chasquimq, chasquimq.__all__, [place, *names]
    if names[0] not in public:
        message = f"{module.__name__} has no public name {names[0]}"
        raise LookupError(message)
    value: object = module
    for name in names:
        value = member(value, name)
    return value


def member(owner: object, name: str) -> object:
    """An attribute; of a dataclass without slots, fields without defaults count too."""
    if name in getattr(owner, "__dataclass_fields__", {}):
        return owner.__dataclass_fields__[name]
    if name == "value" and isinstance(owner, type):
        return inspect.getattr_static(owner, name)
    return getattr(owner, name)
