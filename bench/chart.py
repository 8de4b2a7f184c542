"""A picture of the results for the docs: bars as SVG, written by hand, nothing to install.

One group of bars a scenario, each as long as its rival is fast beside the fastest of the group.
Only rates are drawn: of those, longer is better. The ratios are those of the table.
"""

import textwrap
from collections.abc import Sequence
from xml.sax.saxutils import escape

from bench.results import OURS, Result
from bench.scenarios import SCENARIOS
from bench.targets import LIMIT, REFERENCE, TOLD_LIMIT

_WIDTH, _LEFT, _RIGHT = 860, 170, 130
_BAR, _GAP, _TITLE, _TOP = 16, 3, 26, 44
_NOTE_LETTERS = 150
_COLOURS = {OURS: "#0b6e4f", REFERENCE: "#c8553d", LIMIT: "#b8b8b8", TOLD_LIMIT: "#b8b8b8"}
_OTHER = "#7a8fa6"


def chart(found: Sequence[Result], note: str = "") -> str:
    """The picture; `note` is a line below it: the machine, its load."""
    groups: dict[str, list[Result]] = {}
    for each in found:
        if each.figure == "rate":
            groups.setdefault(each.scenario, []).append(each)
    parts, top = [], _TOP
    for name, bars in groups.items():
        parts.append(_text(8, top + 14, SCENARIOS[name].what, weight="bold"))
        top += _TITLE
        longest = max(each.values.median for each in bars)
        for each in bars:
            parts += _bar(each, top, longest)
            top += _BAR + _GAP
        top += _TITLE - _BAR
    for line in textwrap.wrap(note, _NOTE_LETTERS):
        top += _BAR
        parts.append(_text(8, top, line, size=10, colour="#666"))
    return _document(parts, top + _BAR)


def _bar(each: Result, top: int, longest: float) -> list[str]:
    width = max(1.0, each.values.median / longest * (_WIDTH - _LEFT - _RIGHT))
    label = f"{each.values.median:,.0f}"
    if each.to_reference is not None:
        label += f"  ({each.to_reference.median:.2g}x)"
    colour = _COLOURS.get(each.rival, _OTHER)
    return [
        _text(_LEFT - 8, top + 12, each.rival, anchor="end"),
        f'<rect x="{_LEFT}" y="{top}" width="{width:.1f}" height="{_BAR}" fill="{colour}"/>',
        _text(_LEFT + width + 6, top + 12, label),
    ]


def _text(  # noqa: PLR0913 -- what a text in a picture has
    x: float,
    y: float,
    text: str,
    *,
    size: int = 12,
    weight: str = "normal",
    anchor: str = "start",
    colour: str = "#222",
) -> str:
    style = f'font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" fill="{colour}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(text)}</text>'


def _document(parts: Sequence[str], height: int) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}" font-family="sans-serif" role="img">'
    )
    title = "Jobs a second, and how many times the reference"
    back = f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>'
    shown = _text(8, 22, title, size=15, weight="bold")
    return "\n".join([head, f"<title>{title}</title>", back, shown, *parts, "</svg>", ""])
