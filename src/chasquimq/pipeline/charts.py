"""Charts as SVG text, for a page that must not load anything. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT = 640, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 8, 10, 24
_TICKS = 4
_LABELS = 6
_BAR = 26
_ROOM_FOR_NAMES = 210


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart: a value for each label, None where there is none."""

    name: str
    colour: str
    values: Sequence[float | None]


def lines(labels: Sequence[str], series: Sequence[Line], unit: str = "") -> str:
    """Lines over time, with a scale from 0; a missing value breaks its line."""
    top = _scale(max((v for each in series for v in each.values if v is not None), default=0.0))
    parts = [_grid(top, unit), _labels(labels)]
    for each in series:
        points = [
            None if value is None else (_x(at, len(labels)), _y(value, top))
            for at, value in enumerate(each.values)
        ]
        parts += [_stroke(piece, each) for piece in _pieces(points)]
    return _svg(_WIDTH, _HEIGHT, parts)


def bars(rows: Sequence[tuple[str, float]], colour: str, unit: str = "") -> str:
    """A bar for each name, the longest on top as given, its value behind it."""
    top = max((value for _, value in rows), default=0.0) or 1.0
    room = _WIDTH - _ROOM_FOR_NAMES - 90
    parts = []
    for at, (name, value) in enumerate(rows):
        y = at * _BAR
        width = max(1.0, room * value / top)
        parts.append(
            f'<text x="{_ROOM_FOR_NAMES - 8}" y="{y + 17}" text-anchor="end">'
            f"<title>{escape(name)}</title>{escape(_cut(name))}</text>"
            f'<rect x="{_ROOM_FOR_NAMES}" y="{y + 5}" width="{width:.1f}" height="16" rx="3"'
            f' fill="{colour}"/>'
            f'<text x="{_ROOM_FOR_NAMES + width + 6:.1f}" y="{y + 17}">{shown(value, unit)}</text>'
        )
    return _svg(_WIDTH, max(_BAR, len(rows) * _BAR), parts)


def heat(days: Sequence[str], cells: dict[tuple[str, int], float], colour: str) -> str:
    """A square for each hour of each day, the darker the more."""
    top = max(cells.values(), default=0.0) or 1.0
    step = (_WIDTH - 84) / 24
    parts = [
        f'<text x="{84 + hour * step:.1f}" y="10">{hour:02d}</text>' for hour in range(0, 24, 3)
    ]
    for row, day in enumerate(days):
        y = 16 + row * 20
        parts.append(f'<text x="0" y="{y + 13}">{escape(day)}</text>')
        for hour in range(24):
            value = cells.get((day, hour), 0.0)
            opacity = 0.06 if value == 0 else 0.2 + 0.8 * value / top
            parts.append(
                f'<rect x="{84 + hour * step:.1f}" y="{y}" width="{step - 2:.1f}" height="17"'
                f' rx="3" fill="{colour}" fill-opacity="{opacity:.2f}">'
                f"<title>{escape(day)} {hour:02d}:00, {shown(value)}</title></rect>"
            )
    return _svg(_WIDTH, 16 + max(1, len(days)) * 20, parts)


def shown(value: float, unit: str = "") -> str:
    """A number for people: `1,234`, `0.25`, `12.3 k`."""
    if abs(value) >= 100_000:  # noqa: PLR2004 -- from here on the thousands are what counts
        text = f"{value / 1_000:,.0f} k"
    elif value == int(value) or abs(value) >= 100:  # noqa: PLR2004 -- no fraction is of interest
        text = f"{value:,.0f}"
    else:
        text = f"{value:,.3g}"
    return f"{text} {unit}".strip()


def _stroke(piece: Sequence[tuple[float, float]], line: Line) -> str:
    if len(piece) == 1:
        [(x, y)] = piece
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{line.colour}"/>'
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in piece)
    return (
        f'<polyline points="{points}" fill="none" stroke="{line.colour}" stroke-width="2"'
        f' stroke-linejoin="round"><title>{escape(line.name)}</title></polyline>'
    )


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


def _grid(top: float, unit: str) -> str:
    parts = []
    for tick in range(_TICKS + 1):
        value = top * tick / _TICKS
        y = _y(value, top)
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{shown(value)}</text>'
        )
    if unit:
        parts.append(f'<text x="{_LEFT + 4}" y="{_TOP + 4}">{escape(unit)}</text>')
    return "".join(parts)


def _labels(labels: Sequence[str]) -> str:
    step = max(1, (len(labels) + _LABELS - 1) // _LABELS)
    return "".join(
        f'<text x="{_x(at, len(labels)):.1f}" y="{_HEIGHT - 6}" text-anchor="middle">'
        f"{escape(labels[at])}</text>"
        for at in range(0, len(labels), step)
    )


def _x(at: int, count: int) -> float:
    room = _WIDTH - _LEFT - _RIGHT - 24
    return _LEFT + 12 + (room / 2 if count <= 1 else room * at / (count - 1))


def _y(value: float, top: float) -> float:
    room = _HEIGHT - _TOP - _BOTTOM
    return _TOP + room * (1 - value / top)


def _scale(largest: float) -> float:
    """A round number that is no less."""
    if largest <= 0:
        return 1.0
    power = 1.0
    while power * 10 <= largest:
        power *= 10
    while power > largest:
        power /= 10
    return next(power * step for step in (1, 2, 4, 5, 8, 10) if power * step >= largest)


def _cut(text: str, most: int = 30) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _svg(width: int, height: int, parts: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {width} {height}" role="img">{"".join(parts)}</svg>'
