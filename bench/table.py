"""Rows of text as a table that is also Markdown, so that what was seen can be pasted into docs."""

from collections.abc import Sequence

from bench.rounds import Spread


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table with aligned columns: the first to the left, the others to the right."""
    widths = [max(len(row[at]) for row in [head, *rows]) for at in range(len(head))]
    rule = ["-" * width if at == 0 else "-" * (width - 1) + ":" for at, width in enumerate(widths)]
    return "\n".join(_line(row, widths) for row in [head, rule, *rows])


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [
        text.ljust(width) if at == 0 else text.rjust(width)
        for at, (text, width) in enumerate(zip(row, widths, strict=True))
    ]
    return f"| {' | '.join(cells)} |"


def thousands(value: float) -> str:
    """A rate, in thousands: `85 k`."""
    return f"{value / 1_000:.1f} k" if value < 10_000 else f"{value / 1_000:.0f} k"  # noqa: PLR2004


def spread(values: Spread, digits: int = 2) -> str:
    """A median with its range: `0.71 (0.66-0.75)`."""
    return f"{values.median:,.{digits}f} ({values.least:,.{digits}f}-{values.most:,.{digits}f})"
