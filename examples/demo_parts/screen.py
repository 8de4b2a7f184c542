"""Shows the demo while it runs: a live display on a terminal, plain lines anywhere else."""

import asyncio
import time

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from chasquimq import QueueEvent
from demo_parts.ledger import STATES, Ledger
from demo_parts.story import WORK_S, Story

_COLOURS = {
    "waiting": "yellow",
    "active": "cyan",
    "delayed": "blue",
    "completed": "green",
    "dead": "red",
    "retry-scheduled": "magenta",
    "failed": "red",
    "dlq": "bold red",
}
_FRAME_S = 1 / 12
_LINE_S = 1.0
_BAR = 18
_EVENTS_SHOWN = 8


async def show(console: Console, ledger: Ledger, story: Story) -> None:
    """Show what happens until this task is cancelled."""
    if console.is_terminal:
        await _show_live(console, ledger, story)
    else:
        await _show_lines(console, ledger, story)


async def _show_live(console: Console, ledger: Ledger, story: Story) -> None:
    # Drawn from this task and not from a thread of rich's: the books change while it runs.
    with Live(console=console, auto_refresh=False) as live:
        try:
            while True:
                live.update(_frame(ledger, story), refresh=True)
                await asyncio.sleep(_FRAME_S)
        finally:
            live.update(_frame(ledger, story), refresh=True)


async def _show_lines(console: Console, ledger: Ledger, story: Story) -> None:
    began, act, next_line_s = time.monotonic(), "", 0.0
    while True:
        passed_s = time.monotonic() - began
        if story.act != act:
            act = story.act
            console.print(act, highlight=False)
        if passed_s >= next_line_s:
            next_line_s += _LINE_S
            counts = ledger.counts()
            text = "  ".join(f"{state} {counts[state]:>3}" for state in STATES)
            console.print(f"  {passed_s:4.1f} s  {text}", highlight=False)
        await asyncio.sleep(_FRAME_S)


def _frame(ledger: Ledger, story: Story) -> RenderableType:
    body = Table.grid(padding=(0, 3))
    body.add_row(_states(ledger), _kinds(ledger, story))
    lines = [_told(event, number) for event, number in ledger.recent]
    events = Text("\n").join(lines + [Text()] * (_EVENTS_SHOWN - len(lines)))
    parts = Group(Text(story.act, style="bold"), Text(), body, Text(), events)
    return Panel(parts, title="ChasquiMQ, embedded server", title_align="left", width=78)


def _states(ledger: Ledger) -> Table:
    """How many jobs are in which state, as bars of all jobs."""
    counts, total = ledger.counts(), max(1, len(ledger.jobs))
    table = Table.grid(padding=(0, 1))
    for state in STATES:
        bar = ProgressBar(
            total=total,
            completed=counts[state],
            width=_BAR,
            complete_style=_COLOURS[state],
            finished_style=_COLOURS[state],
        )
        number = Text(f"{counts[state]:>4}", style=_COLOURS[state])
        table.add_row(Text(state, style=_COLOURS[state]), bar, number)
    return table


def _kinds(ledger: Ledger, story: Story) -> Table:
    """How many jobs of each kind have completed, of those added."""
    table = Table.grid(padding=(0, 1))
    for kind in WORK_S:
        added = story.added[kind]
        done = ledger.kinds[kind].completed if kind in ledger.kinds else 0
        bar = ProgressBar(total=max(1, added), completed=done, width=_BAR)
        table.add_row(kind, bar, f"{done:>3}/{added}" if added else "")
    return table


def _told(event: QueueEvent, number: int) -> Text:
    """An event, or several alike, in a line."""
    told = {key: value for key, value in event.fields.items() if key in _WORTH_TELLING}
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f"{event.name:<15} ", style=_COLOURS.get(event.name, ""))
    line.append(f"{event.job_name:<9}", style="bold")
    line.append(f"x {number:<4}" if number > 1 else "      ", style="bold")
    line.append(f"{(event.job_id or '')[-6:]}  ", style="dim")
    line.append("  ".join(f"{key} {value}" for key, value in told.items()), style="dim")
    return line


_WORTH_TELLING = ("attempt", "reason", "delay_ms", "backoff_ms")
