"""Closes the books of the demo: the table of what happened, and what does not add up."""

from rich import box
from rich.table import Table

from chasquimq import Counts
from demo_parts.ledger import Ledger, Totals
from demo_parts.story import WORK_S, Story

_COLUMNS = ("added", "runs", "retries", "completed", "dead-lettered", "replayed", "p50 wait")


def table(ledger: Ledger, story: Story) -> Table:
    """What happened, a row for each kind of job and one for all of them."""
    shown = Table(
        title="What happened",
        title_justify="left",
        show_footer=True,
        box=box.SIMPLE,
        padding=(0, 1, 0, 0),  # all columns within 80 characters
    )
    shown.add_column("kind", footer="all", no_wrap=True)
    rows = {kind: _row(story.added[kind], ledger.kinds.get(kind, Totals())) for kind in WORK_S}
    everything = _row(sum(story.added.values()), _sum(list(ledger.kinds.values())))
    for column, footer in zip(_COLUMNS, everything, strict=True):
        shown.add_column(column, justify="right", footer=footer, no_wrap=True)
    for kind, row in rows.items():
        shown.add_row(kind, *row)
    return shown


def discrepancies(ledger: Ledger, story: Story, left: Counts) -> list[str]:
    """Every number that is not what it must be; none if all is well.

    The events are held against what `add_bulk` and `replay_dlq` returned, against the handler's own
    count, against the results, and against what is left in the queue.
    """
    wrong = list(story.wrong_results)
    for kind in WORK_S:
        totals, added = ledger.kinds.get(kind, Totals()), story.added[kind]
        expected = {
            "jobs seen": (totals.seen, added),
            "completed": (totals.completed, added),
            "runs told": (totals.runs, story.runs[kind]),
            "runs by cause": (totals.runs, added + totals.retries + totals.replayed),
            "replayed": (totals.replayed, totals.dead_lettered),
        }
        wrong += [
            f"{kind}: {what} {found}, expected {wanted}"
            for what, (found, wanted) in expected.items()
            if found != wanted
        ]
    replayed = sum(each.replayed for each in ledger.kinds.values())
    if replayed != story.replayed:
        wrong.append(f"replay_dlq moved {story.replayed}, events told {replayed}")
    if left != Counts(waiting=0, active=0, delayed=0, dead=0):
        wrong.append(f"the queue is not empty: {left}")
    for kind, has_happened in _must_happen(ledger).items():
        if not has_happened:
            wrong.append(f"the demo was to show {kind}, and none happened")
    return wrong


def _must_happen(ledger: Ledger) -> dict[str, int]:
    everything = _sum(list(ledger.kinds.values()))
    return {"retries": everything.retries, "dead letters": everything.dead_lettered}


def _sum(kinds: list[Totals]) -> Totals:
    return Totals(
        seen=sum(each.seen for each in kinds),
        runs=sum(each.runs for each in kinds),
        retries=sum(each.retries for each in kinds),
        completed=sum(each.completed for each in kinds),
        dead_lettered=sum(each.dead_lettered for each in kinds),
        replayed=sum(each.replayed for each in kinds),
        waits_ms=[wait for each in kinds for wait in each.waits_ms],
    )


def _row(added: int, totals: Totals) -> list[str]:
    numbers = (
        totals.runs,
        totals.retries,
        totals.completed,
        totals.dead_lettered,
        totals.replayed,
    )
    return [str(added), *map(str, numbers), f"{totals.p50_wait_ms:.0f} ms"]
