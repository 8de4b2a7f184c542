"""Charts as HTML and SVG text, for a page that must not load anything. Pure.

Text is HTML and only shapes are SVG: shapes stretch with the page, words keep their size. Colours
are classes of the page's styles, so that they are right on light and on dark. Each chart says in
words what it shows, for those who do not see it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from chasquimq.pipeline.axes import Mark, Scale, Words

_SIZE = 1_000
"""Width and height of a drawing, in units of its own."""
_GAP = 0.15


@dataclass(frozen=True, slots=True)
class Series:
    """One line or set of columns: a value for each step, None where there is none."""

    name: str
    colour: str
    values: Sequence[float | None]
    is_column: bool = False


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: what it stands for, how long it is, and what is said of it."""

    name: str
    value: float
    shown: str
    note: str = ""
    inner: float | None = None
    """A part of it, drawn darker."""


@dataclass(frozen=True, slots=True)
class Frame:
    """What a chart over time stands in: its steps by name, the marks below them, its scale."""

    steps: Sequence[str]
    marks: Sequence[Mark]
    scale: Scale
    shown: Words


def over_time(series: Sequence[Series], frame: Frame, says: str) -> str:
    """Lines, and columns one on top of the other; a missing value breaks its line."""
    columns = [each for each in series if each.is_column]
    shapes = [*_lines_at(frame), *_columns(columns, frame)]
    shapes += [path for each in series if not each.is_column for path in _line(each, frame)]
    shapes += _touch(series, frame)
    drawing = (
        f'<svg viewBox="0 0 {_SIZE} {_SIZE}" preserveAspectRatio="none" aria-hidden="true">'
        f"{''.join(shapes)}</svg>"
    )
    upright = "".join(
        f'<span style="bottom:{place:.2%}">{escape(label)}</span>'
        for place, label in frame.scale.marks
    )
    below = "".join(
        f'<span style="left:{mark.place:.2%}">{escape(mark.label)}</span>' for mark in frame.marks
    )
    return (
        f"{_key(series)}"
        f'<div class="chart" role="img" aria-label="{escape(says)}">'
        f'<div class="up" aria-hidden="true">{upright}</div><div class="plot">{drawing}</div>'
        f'<div class="foot" aria-hidden="true">{below}</div></div>'
    )


def bars(rows: Sequence[Bar], colour: str) -> str:
    """A bar for each row, in the order given."""
    top = max((row.value for row in rows), default=0.0) or 1.0
    found = "".join(_bar(row, top, colour) for row in rows)
    return f'<ul class="bars">{found}</ul>'


def heat(days: Sequence[tuple[str, Sequence[float | None]]], colour: str, unit: str) -> str:
    """A cell for each hour of each day, the stronger the more; None is no cell at all."""
    top = max((cell for _, cells in days for cell in cells if cell), default=0.0)
    hours = "".join(f'<th scope="col">{hour:02d}</th>' for hour in range(24))
    rows = "".join(
        f'<tr><th scope="row">{escape(day)}</th>'
        + "".join(_cell(day, hour, cell, top, unit) for hour, cell in enumerate(cells))
        + "</tr>"
        for day, cells in days
    )
    steps = "".join(f'<i class="h{level}"></i>' for level in range(6))
    return (
        f'<table class="heat {colour}"><thead><tr><td></td>{hours}</tr></thead>'
        f"<tbody>{rows}</tbody></table>"
        f'<p class="key {colour}"><span>0</span>{steps}<span>{top:,.0f} {escape(unit)}</span></p>'
    )


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Figures in rows; the first column names them."""
    head = "".join(f'<th scope="col">{escape(each)}</th>' for each in heads)
    body = "".join(
        f'<tr><th scope="row">{escape(first)}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in rest)
        + "</tr>"
        for first, *rest in rows
    )
    return (
        f'<div class="scroll" tabindex="0"><table class="figures"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _key(series: Sequence[Series]) -> str:
    found = "".join(
        f'<span class="{escape(each.colour)}"><i class="{"box" if each.is_column else "dash"}"></i>'
        f"{escape(each.name)}</span>"
        for each in series
    )
    return f'<p class="key">{found}</p>'


def _lines_at(frame: Frame) -> list[str]:
    return [
        f'<path class="grid" d="M0 {_y(place):.1f}H{_SIZE}"/>' for place, _ in frame.scale.marks
    ]


def _columns(columns: Sequence[Series], frame: Frame) -> list[str]:
    width = _SIZE / max(1, len(frame.steps))
    feet = [0.0] * len(frame.steps)
    found = []
    for each in columns:
        for at, value in enumerate(each.values):
            if not value:
                continue
            foot, top = (frame.scale.place(feet[at] + more) for more in (0.0, value))
            feet[at] += value
            found.append(
                f'<rect class="{each.colour}" x="{(at + _GAP / 2) * width:.1f}" y="{_y(top):.1f}"'
                f' width="{(1 - _GAP) * width:.1f}" height="{(top - foot) * _SIZE:.1f}"/>'
            )
    return found


def _line(each: Series, frame: Frame) -> list[str]:
    width = _SIZE / max(1, len(frame.steps))
    points = [
        None if value is None else ((at + 0.5) * width, _y(frame.scale.place(value)))
        for at, value in enumerate(each.values)
    ]
    return [
        # A line of no length is drawn as the dot that its round ends make.
        f'<path class="line {each.colour}{" dot" if len(piece) == 1 else ""}" d="M'
        + "L".join(f"{x:.1f} {y:.1f}" for x, y in piece)
        + ("h0" if len(piece) == 1 else "")
        + '"/>'
        for piece in _pieces(points)
    ]


def _touch(series: Sequence[Series], frame: Frame) -> list[str]:
    """What a mouse finds: for each step its time, and all values there."""
    width = _SIZE / max(1, len(frame.steps))
    found = []
    for at, step in enumerate(frame.steps):
        values = [
            f"{each.name}: {'-' if (value := each.values[at]) is None else frame.shown(value)}"
            for each in series
        ]
        found.append(
            f'<rect class="touch" x="{at * width:.1f}" y="0" width="{width:.1f}" height="{_SIZE}">'
            f"<title>{escape(chr(10).join((step, *values)))}</title></rect>"
        )
    return found


def _pieces(
    points: Sequence[tuple[float, float] | None],
) -> list[list[tuple[float, float]]]:
    """Points that are next to each other."""
    found: list[list[tuple[float, float]]] = [[]]
    for point in points:
        if point is not None:
            found[-1].append(point)
        elif found[-1]:
            found.append([])
    return [each for each in found if each]


def _bar(row: Bar, top: float, colour: str) -> str:
    inner = "" if row.inner is None else f'<b style="width:{min(1.0, row.inner / top):.2%}"></b>'
    note = f"<small>{escape(row.note)}</small>" if row.note else ""
    return (
        f'<li><span class="what">{escape(row.name)}</span><span class="much">{escape(row.shown)}'
        f'</span><span class="track {colour}"><i style="width:{row.value / top:.2%}"></i>{inner}'
        f"</span>{note}</li>"
    )


def _cell(day: str, hour: int, cell: float | None, top: float, unit: str) -> str:
    if cell is None:
        return "<td></td>"
    level = 0 if not cell else min(5, 1 + int(5 * cell / (top * 1.0001)))
    told = f"{day}, {hour:02d}:00 to {(hour + 1) % 24:02d}:00: {cell:,.0f} {unit}"
    return f'<td class="h{level}" title="{escape(told)}"><span>{cell:,.0f}</span></td>'


def _y(place: float) -> float:
    return (1 - place) * _SIZE
