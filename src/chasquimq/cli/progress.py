"""How far a long command is: one line, rewritten, on a terminal; a line now and then elsewhere."""

import sys
from typing import TYPE_CHECKING

import click

from chasquimq.cli.render import duration
from chasquimq.clock import monotonic_s

if TYPE_CHECKING:
    from chasquimq.pipeline import Progress

# Between two lines of a log.
_EVERY_S = 5.0


class ProgressLine:
    """Tells progress on stderr; `end` leaves the terminal at the beginning of a line."""

    def __init__(self, what: str = "rows", *, every_s: float = _EVERY_S) -> None:
        """Nothing is told yet; `what` is counted."""
        self._what = what
        self._is_live = sys.stderr.isatty()
        self._every_s = every_s
        self._told_s: float | None = None
        self._width = 0

    def tell(self, progress: "Progress") -> None:
        """Say it, unless it was said a moment ago and nobody looks."""
        text = f"chasqui: {line(progress, self._what)}"
        if self._is_live:
            click.echo("\r" + text.ljust(self._width), err=True, nl=False)
            self._width = len(text)
            return
        now_s = monotonic_s()
        if self._told_s is None or now_s - self._told_s >= self._every_s:
            self._told_s = now_s
            click.echo(text, err=True)

    def end(self) -> None:
        """Nothing more will be told."""
        if self._width:
            click.echo("", err=True)


def line(progress: "Progress", what: str = "rows") -> str:
    """`12,000 of 50,000 rows (24 %), 3,400 a second, 11 s left`."""
    share = 100 * progress.done // progress.total if progress.total else 100
    text = f"{progress.done:,} of {progress.total:,} {what} ({share} %)"
    if progress.eta_s is None:
        return text
    left = duration(1_000 * progress.eta_s)
    return f"{text}, {progress.per_s:,.0f} a second, {left} left"
