"""What commands print: tables and panels for people, JSON for programs.

Nothing here talks to a server. Text that came out of a queue is never trusted: control characters
are shown as escapes, so that a job's name cannot move the cursor of whoever looks at it.
"""

import base64
import json
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

import click
from rich.box import ROUNDED
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

# Into a pipe nothing needs to be cut to fit a screen.
_PIPE_WIDTH = 160
_WIDE = 120
_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))
# Up to so many of a unit the next smaller one is shown: 90 s, not 1 min.
_SMALL = 2

# What a column takes beside its text, and how narrow it may be folded.
_FRAME = 3
_READABLE = 10
_INDENT = 2

NONE = "-"


def console() -> Console:
    """Where commands print: with colour on a terminal, unless `NO_COLOR` is set."""
    stdout = Console(highlight=False, markup=False, emoji=False)
    if stdout.is_terminal or os.environ.get("COLUMNS"):
        return stdout
    return Console(highlight=False, markup=False, emoji=False, width=_PIPE_WIDTH)


def is_wide(screen: Console) -> bool:
    """Whether there is room for the columns that a narrow screen leaves out."""
    return screen.width >= _WIDE


def show(*renderables: RenderableType) -> None:
    """Print for people."""
    console().print(*renderables, sep="\n")


def say(line: str) -> None:
    """Print one line for people."""
    click.echo(clean(line))


def remark(line: str) -> None:
    """Print one line beside the answer, where it is in nobody's way."""
    click.echo(f"chasqui: {clean(line)}", err=True)


def emit(value: object) -> None:
    """Print one line of JSON, at once: whoever reads a pipe should not wait for a full buffer."""
    click.echo(json.dumps(plain(value), ensure_ascii=False))
    sys.stdout.flush()


def plain(value: object) -> object:
    """`value` as JSON can carry it.

    Bytes become `{"base64": ...}`, numbers JSON does not have and keys and values of any other kind
    their text.
    """
    match value:
        case None | bool() | int():
            return value
        case float() if math.isfinite(value):
            return value
        case bytes():
            return {"base64": base64.b64encode(value).decode()}
        case Mapping():
            return {str(plain(key)): plain(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [plain(item) for item in value]
        case _:
            return value.isoformat() if isinstance(value, datetime) else str(value)


def pretty(value: object) -> str:
    """The user's data on several lines."""
    return clean(json.dumps(plain(value), ensure_ascii=False, indent=2))


def short(value: object, most: int = 60) -> str:
    """The user's data on one line, cut."""
    return cut(clean(json.dumps(plain(value), ensure_ascii=False)), most)


def cut(text: str, most: int = 60) -> str:
    """The text, or its beginning and an ellipsis."""
    return text if len(text) <= most else text[:most] + "…"


def fitted(text: str) -> str:
    """The text, cut on a terminal; into a pipe or a file it goes whole."""
    return cut(text) if sys.stdout.isatty() else text


def clean(text: str) -> str:
    """The text with control characters as escapes; line ends and tabs stay."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in "\n\t" else char.encode("unicode_escape").decode()
        for char in text
    )


def listing(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    right: Sequence[str] = (),
    whole: Sequence[str] = (),
) -> RenderableType:
    """A table, or where the screen is too narrow for one that can be read a card for each row.

    Nothing is lost either way: what does not fit is folded.
    """
    body, width = list(rows), console().width
    if _width(columns, body) <= width:
        return table(columns, body, right=right)
    if _width(columns, body, firm=[*right, *whole], most=_READABLE) <= width:
        return table(columns, body, right=right, whole=whole)
    parts: list[RenderableType] = [Text(clean(columns[0]), "bold")]
    for first, *others in body:
        pairs = [(name, NONE if value is None else value)
                 for name, value in zip(columns[1:], others, strict=False)]  # fmt: skip
        parts += [Text(f"\n{clean(str(first))}", "cyan", overflow="fold")]
        parts += [Padding(facts(pairs), (0, 0, 0, _INDENT))] if pairs else []
    return Group(*parts)


def _width(
    columns: Sequence[str],
    body: Sequence[Sequence[object]],
    *,
    firm: Sequence[str] = (),
    most: int | None = None,
) -> int:
    """How wide a table is in which columns are folded to `most`, those that are `firm` excepted."""
    needed = len(columns) * _FRAME + 1
    for position, name in enumerate(columns):
        cells = [row[position] for row in body if position < len(row)]
        longest = _longest(cells if name in firm else [*cells, name])
        needed += longest if most is None or name in firm else min(longest, most)
    return needed


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    right: Sequence[str] = (),
    whole: Sequence[str] = (),
) -> Table:
    """A box table; the columns named in `right` hold numbers. None is shown as `-`.

    Those in `whole` hold what people copy: the others make room for them.
    """
    body = list(rows)
    grid = Table(box=ROUNDED, header_style="bold", border_style="dim", pad_edge=True)
    for position, name in enumerate(columns):
        is_number = name in right
        grid.add_column(
            Text(clean(name)),
            justify="right" if is_number else "left",
            overflow="fold",
            style="cyan" if position == 0 else "",
            no_wrap=is_number,
            # Not the least width: rich would take it from the others, and cut off the last one.
            width=_longest(row[position] for row in body) if name in whole and body else None,
        )
    for row in body:
        grid.add_row(*(_cell(value) for value in row))
    return grid


def _longest(cells: Iterable[object]) -> int:
    return max((len(line) for cell in cells for line in str(cell).splitlines()), default=0)


def panel(title: str, parts: Sequence[RenderableType]) -> Panel:
    """One thing in a frame."""
    body, head = Group(*parts), Text(clean(title))
    return Panel(body, title=head, title_align="left", border_style="dim", expand=False)


def facts(pairs: Sequence[tuple[str, object]]) -> Table:
    """Names and values, one pair a line; a value that is None is left out."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    grid.add_column(overflow="fold")
    for name, value in pairs:
        if value is not None:
            grid.add_row(Text(name), _cell(value))
    return grid


def iso(ms: float) -> str:
    """An instant in UTC, to the millisecond; the number itself where no calendar has it."""
    try:
        moment = datetime.fromtimestamp(ms / 1_000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{ms:.0f} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def instant(ms: float | None, now_ms: int) -> str | None:
    """An instant in UTC, and how far away it is; None if there is none."""
    return None if ms is None else f"{iso(ms)} ({away(ms, now_ms)})"


def away(ms: float, now_ms: int) -> str:
    """`in 3 s`, `2 min ago`, `now`."""
    distance = ms - now_ms
    if abs(distance) < 1:
        return "now"
    text = duration(abs(distance))
    return f"in {text}" if distance > 0 else f"{text} ago"


def counted(count: int, noun: str) -> str:
    """`1 job`, `2 jobs`, `3 batches`."""
    if count == 1:
        return f"{count} {noun}"
    return f"{count} {noun}es" if noun.endswith("ch") else f"{count} {noun}s"


def duration(ms: float) -> str:
    """`250 ms`, `3 s`, `5 min`, `2 h`, `4 d`."""
    for size, unit in _UNITS:
        if ms >= size * _SMALL or (unit == "s" and ms >= size):
            return f"{ms // size:.0f} {unit}"
    return f"{ms:.0f} ms"


def _cell(value: object) -> RenderableType:
    if isinstance(value, Text | Table):
        return value
    return Text(NONE if value is None else clean(str(value)))
