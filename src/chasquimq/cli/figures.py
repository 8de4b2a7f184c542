"""The pipeline's report on a terminal: the figures of each name, and throughput in one line."""

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from chasquimq.cli.render import console, cut, facts, panel, say, show, table

if TYPE_CHECKING:
    from chasquimq.pipeline.summary import Figures, Summary

_BLOCKS = "▁▂▃▄▅▆▇█"
_MOST_BLOCKS = 60
_MOST_NAMES = 20
_ROOM_FOR_ALL = 156
# Of each of the two, so that a long queue does not hide the name.
_WIDE_NAME, _NARROW_NAME = 18, 12
_ALERT = 1.0


def show_figures(summary: "Summary") -> None:
    """Print what a report says, in some lines; something must have happened."""
    show(panel(_title(summary), [facts(_facts(summary))]), _names(summary))
    left = len(summary.names) - _MOST_NAMES
    if left > 0:
        say(f"and {left} more names")
    if summary.gaps:
        say(f"events are missing in {summary.gaps} gaps: numbers of those times are too small")


def spark_line(values: Sequence[float], most: int = _MOST_BLOCKS) -> str:
    """Values as a line of blocks; more than `most` are added up in groups."""
    size = -(-len(values) // most) or 1
    sums = [sum(values[at : at + size]) for at in range(0, len(values), size)]
    top = max(sums, default=0) or 1
    # Nothing at all is a gap in the line, so that a little can be told from it.
    return "".join(
        _BLOCKS[min(7, int(8 * each / (top * 1.0001)))] if each else " " for each in sums
    )


def _title(summary: "Summary") -> str:
    if summary.span is None:
        return ""
    first, end = summary.span
    return f"{first:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC"


def _facts(summary: "Summary") -> list[tuple[str, object]]:
    total = summary.total
    found: list[tuple[str, object]] = [
        ("jobs", f"{total.arrivals:,} arrived, {total.completed:,} completed, {total.dead:,} dead"),
        ("throughput", f"{_rate(total)} completed per min"),
        ("", spark_line([each.completed for each in summary.points])),
        ("wait", f"{_times(total, 'wait')}  (p50 / p95 / p99)"),
        ("run", _times(total, "run")),
        ("in all", _times(total, "total")),
    ]  # fmt: skip
    if summary.slo_ms is not None and summary.slo_target is not None and total.finished:
        good = f"{total.slo_good / total.finished:.1%} within {_time(summary.slo_ms)}"
        promised = f"{good}, target {summary.slo_target:.1%}, burn "
        found.append(("SLO", Text.assemble(promised, _burn(total))))
    return found


def _names(summary: "Summary") -> Table:
    """One row a name; a narrow screen shows fewer columns, and only p95."""
    wide = console().width >= _ROOM_FOR_ALL
    percents, room = ((50, 95, 99), _WIDE_NAME) if wide else ((95,), _NARROW_NAME)
    times = [" / ".join(f"p{each}" for each in percents)] * 2
    heads = ["queue / name", "jobs", "per min", f"wait {times[0]}", f"run {times[1]}", "failed",
             "runs/job", "dead", "burn"]  # fmt: skip
    rows = [
        [f"{cut(each.queue, room)} / {cut(each.name or '(no name)', room)}",
         f"{each.arrivals:,}", _rate(each), _times(each, "wait", percents),
         _times(each, "run", percents), _share(each.failure_rate),
         "-" if each.retry_amplification is None else f"{each.retry_amplification:.2f}",
         f"{each.dead:,}", _burn(each)]
        for each in itertools.islice(summary.names, _MOST_NAMES)
    ]  # fmt: skip
    left_out = () if wide else (2, 6)
    kept = [at for at in range(len(heads)) if at not in left_out]
    columns = [heads[at] for at in kept]
    return table(columns, [[row[at] for at in kept] for row in rows], right=columns[1:],
                 whole=columns[:1])  # fmt: skip


def _times(figures: "Figures", what: str, percents: Sequence[int] = (50, 95, 99)) -> str:
    return " / ".join(_time(getattr(figures, f"{what}_p{each}_ms")) for each in percents)


def _share(part: float | None) -> str:
    return "-" if part is None else f"{part:.1%}"


def _time(ms: float | None) -> str:
    from chasquimq.pipeline.axes import lasting  # noqa: PLC0415 -- Spark may not be installed

    return "-" if ms is None else lasting(ms)


def _rate(figures: "Figures") -> str:
    return _shown(figures.throughput_per_s * 60)


def _burn(figures: "Figures") -> Text:
    if figures.slo_burn is None:
        return Text("-")
    return Text(_shown(figures.slo_burn), style="bold red" if figures.slo_burn > _ALERT else "")


def _shown(value: float) -> str:
    from chasquimq.pipeline.axes import shown  # noqa: PLC0415 -- Spark may not be installed

    return shown(value)
