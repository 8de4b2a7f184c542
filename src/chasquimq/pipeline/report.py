"""The report as one HTML page that loads nothing: styles and charts are in it. Pure."""

from collections.abc import Sequence
from html import escape

from chasquimq.pipeline.charts import Line, bars, heat, lines, shown
from chasquimq.pipeline.summary import Point, Summary

_BLUE, _GREEN, _RED, _AMBER, _GREY = "#3867d6", "#20a37a", "#d64545", "#d99a1c", "#8a94a6"
_HEAT_DAYS = 14
_FORMS = {"minutes": "%H:%M", "hours": "%d %b %H:00", "days": "%d %b"}

_STYLE = """
:root{color-scheme:light dark;--bg:#f5f6f9;--card:#fff;--text:#1c2430;--soft:#667085;--line:#e4e7ec}
@media(prefers-color-scheme:dark){:root{--bg:#12161d;--card:#1b212b;--text:#e8ecf2;--soft:#98a2b3;
--line:#2c3440}}
*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--text);
font:15px/1.5 system-ui,sans-serif}main{max-width:1100px;margin:auto;padding:24px 16px}
h1{font-size:22px;margin:0}h2{font-size:15px;margin:0 0 8px}p{margin:4px 0;color:var(--soft)}
.cards,.charts{display:grid;gap:12px;margin-top:16px}
.cards{grid-template-columns:repeat(auto-fit,minmax(140px,1fr))}
.charts{grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr))}
section,.card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:14px}
.card b{display:block;font-size:22px}.card span{color:var(--soft);font-size:13px}
.wide{grid-column:1/-1}.scroll{overflow-x:auto}svg{width:100%;height:auto;display:block}
svg text{font:11px system-ui,sans-serif;fill:var(--soft)}.grid{stroke:var(--line)}
table{border-collapse:collapse;width:100%;font-size:14px}td,th{padding:5px 8px;text-align:right;
border-bottom:1px solid var(--line);white-space:nowrap}
td:first-child,th:first-child{text-align:left}
th{color:var(--soft);font-weight:600}.key{display:inline-block;margin-right:14px;font-size:13px;
color:var(--soft)}.key i{display:inline-block;width:10px;height:10px;border-radius:3px;
margin-right:5px}.warn{color:#d64545;font-weight:600}
"""


def page(summary: Summary, *, title: str, made_at: str) -> str:
    """The whole page; whatever came out of a queue is escaped."""
    head = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>"
    )
    body = "".join(
        (
            f"<h1>{escape(title)}</h1>",
            f"<p>{escape(_span(summary.points))} Made {escape(made_at)}. All times are UTC.</p>",
            _warning(summary),
            _cards(summary),
            f'<div class="charts">{_charts(summary)}</div>',
        )
    )
    return f"{head}<body><main>{body}</main></body></html>\n"


def _span(points: Sequence[Point]) -> str:
    if not points:
        return "Nothing has happened yet."
    first, last = points[0].at, points[-1].at
    return f"From {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M}."


def _warning(summary: Summary) -> str:
    if not summary.gaps:
        return ""
    many = f"{summary.lost:,}" if summary.lost else "an unknown number of"
    return (
        f'<p class="warn">Events are missing: {many}, in {summary.gaps} gaps. They were trimmed '
        "before they were read; numbers of those times are too small.</p>"
    )


def _cards(summary: Summary) -> str:
    arrivals = sum(each.arrivals for each in summary.points)
    completed = sum(each.completed for each in summary.points)
    dead = sum(each.dead for each in summary.points)
    runs = sum(each.runs for each in summary.points)
    failed = sum(each.failures for each in summary.points)
    seconds = sum(each.handler_seconds for each in summary.names)
    good = sum(each.slo_good for each in summary.names)
    facts = [
        ("jobs arrived", shown(arrivals)),
        ("completed", shown(completed)),
        ("dead letters", shown(dead)),
        ("runs that failed", f"{failed / runs:.1%}" if runs else "-"),
        ("handler time", shown(seconds, "s")),
    ]
    if summary.slo_ms is not None and completed + dead:
        within = f"within {shown(summary.slo_ms / 1_000, 's')} (target {summary.slo_target:.1%})"
        facts.append((within, f"{good / (completed + dead):.1%}"))
    cards = "".join(
        f'<div class="card"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
        for name, value in facts
    )
    return f'<div class="cards">{cards}</div>'


def _charts(summary: Summary) -> str:
    labels = [each.at.strftime(_FORMS[summary.unit]) for each in summary.points]
    per = f"jobs in {'a minute' if summary.unit == 'minutes' else f'one of the {summary.unit}'}"
    points = summary.points
    flow = [
        Line("arrived", _GREY, [each.arrivals for each in points]),
        Line("completed", _GREEN, [each.completed for each in points]),
        Line("dead", _RED, [each.dead for each in points]),
    ]
    waits = [
        Line("wait p50", _BLUE, [each.wait_p50_ms for each in points]),
        Line("wait p99", _AMBER, [each.wait_p99_ms for each in points]),
    ]
    takes = [
        Line("run p50", _BLUE, [each.run_p50_ms for each in points]),
        Line("run p99", _AMBER, [each.run_p99_ms for each in points]),
        Line("from added to done p99", _GREY, [each.total_p99_ms for each in points]),
    ]
    slowest = sorted(summary.names, key=lambda each: -(each.run_p95_ms or 0))
    slow_rows = [(_called(each.queue, each.name), each.run_p95_ms or 0.0) for each in slowest]
    return "".join(
        (
            _section("Throughput", _key(flow) + lines(labels, flow, per), wide=True),
            _section("How long jobs wait", _key(waits) + lines(labels, waits, "ms")),
            _section("How long they take", _key(takes) + lines(labels, takes, "ms")),
            _section("Failures by reason", _failures(summary)),
            _section("Slowest names, p95 of a run", bars(slow_rows, _BLUE, "ms")),
            _section("Completed by hour of the day", _heat_map(summary), wide=True),
            _section("By name", _table(summary), wide=True),
        )
    )


def _failures(summary: Summary) -> str:
    if not summary.reasons:
        return "<p>None.</p>"
    rows = [
        (f"{each.reason}: {each.error or 'no message'}" if each.kind == "job"
         else each.error or "no message", float(each.failures))
        for each in summary.reasons
    ]  # fmt: skip
    return bars(rows, _RED) + "<p>A reason in front means a job that was given up.</p>"


def _heat_map(summary: Summary) -> str:
    cells = {(f"{at:%Y-%m-%d}", at.hour): float(number) for at, number in summary.hours}
    days = sorted({day for day, _ in cells})[-_HEAT_DAYS:]
    return heat(days, cells, _GREEN)


def _table(summary: Summary) -> str:
    heads = ("name", "arrived", "completed", "dead", "runs", "failed", "retried", "handler s",
             "run p95 ms", "total p95 ms", "SLO burn")  # fmt: skip
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
        for cells in (
            (_called(each.queue, each.name), *map(shown, (each.arrivals, each.completed, each.dead,
             each.runs, each.failures, each.retries, each.handler_seconds)),
             _or_dash(each.run_p95_ms), _or_dash(each.total_p95_ms), _or_dash(each.slo_burn))
            for each in summary.names
        )
    )  # fmt: skip
    head = "".join(f"<th>{each}</th>" for each in heads)
    return f'<div class="scroll"><table><tr>{head}</tr>{rows}</table></div>'


def _section(title: str, inside: str, *, wide: bool = False) -> str:
    kind = ' class="wide"' if wide else ""
    return f"<section{kind}><h2>{escape(title)}</h2>{inside}</section>"


def _key(series: Sequence[Line]) -> str:
    return "".join(
        f'<span class="key"><i style="background:{each.colour}"></i>{escape(each.name)}</span>'
        for each in series
    )


def _called(queue: str, name: str) -> str:
    return f"{queue} / {name or '(no name)'}"


def _or_dash(value: float | None) -> str:
    return "-" if value is None else shown(value)
