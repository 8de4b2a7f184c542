"""The report as one HTML page that loads nothing: styles and charts are in it. Pure."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from html import escape
from importlib.resources import files

from chasquimq.pipeline import axes
from chasquimq.pipeline.axes import lasting, shown
from chasquimq.pipeline.charts import Bar, Frame, Series, bars, heat, over_time, table
from chasquimq.pipeline.instants import DAY_MS, HOUR_MS, MINUTE_MS
from chasquimq.pipeline.summary import Point, Reason, Summary

TITLE = "What the queues did"

_STYLE = files(__package__).joinpath("report.css").read_text(encoding="utf-8")
# What a browser is told to allow: this page and nothing else, should a name ever slip through.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_SHOWN_NAMES = 30
_SHOWN_QUEUES = 5
_SLOWEST = 8
_REASONS = 8
_HEAT_DAYS = 14
_PERCENTS = ((50, "blue"), (95, "amber"), (99, "violet"))
_PER = {MINUTE_MS: "per minute", HOUR_MS: "per hour", DAY_MS: "per day"}
_DASH = "-"

_WORDS = """<footer><p><b>Waited</b> is how long a run stood in the queue, <b>ran</b> how long the
handler took, <b>in all</b> from being added to being finished, retries included; of a job that was
replayed, from the replay on. Of messages is shown what they have in common. <b>p95</b> is the
time within which 95 of 100 were done. A job is <b>given up</b> when it goes to the dead letters,
and is not sent round again. <b>Runs per job</b> is 1 if nothing is ever retried. <b>Burn</b> is the
share of jobs that missed the promise over the share that may: above 1 the promise is broken. All
times are UTC.</p></footer>
"""
_NOTHING = """<p class="verdict">Nothing has happened yet in the queues and days that were asked
for. Once workers have run jobs, bring the tables up to date and make the report again:
<code>chasqui pipeline run QUEUE</code>, then <code>chasqui pipeline report</code>.</p>
"""


def page(summary: Summary, *, title: str = TITLE, made_at_ms: int) -> str:
    """The whole page; whatever came out of a queue is escaped."""
    made_at = datetime.fromtimestamp(made_at_ms // 1_000, UTC)
    head = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>"
    )
    body = "".join(
        (
            f"<header><h1>{escape(title)}</h1>",
            f'<p class="soft">{escape(_span(summary))} Made {_instant(made_at)} UTC.</p>',
            _verdict(summary),
            _missing(summary),
            "</header>",
            _told(summary) if summary.points else _NOTHING,
        )
    )
    return f"{head}<body><main>{body}</main></body></html>\n"


def _told(summary: Summary) -> str:
    return f'{_cards(summary)}<div class="all">{_sections(summary)}</div>{_WORDS}'


def _span(summary: Summary) -> str:
    if summary.span is None:
        return "No events yet."
    first, end = summary.span
    queues = sorted({each.queue for each in summary.names})
    named = ", ".join(queues[:_SHOWN_QUEUES])
    left = len(queues) - _SHOWN_QUEUES
    of = f"{named} and {left} more queues" if left > 0 else named
    return f"{_instant(first)} to {_instant(end)}, of {of}."


def _verdict(summary: Summary) -> str:
    """The one sentence that somebody reads who reads no other."""
    total = summary.total
    if summary.slo_ms is None or summary.slo_target is None or not total.finished:
        return ""
    good = total.slo_good / total.finished
    burn = total.slo_burn or 0.0
    kept = burn <= 1
    then = (
        "The promise was kept"
        if kept
        else f"The promise was broken: {burn:.1f} times as many missed it as it allows"
    )
    return (
        f'<p class="verdict{"" if kept else " bad"}"><b>{good:.1%}</b> of {total.finished:,} '
        f"finished jobs were done within {lasting(summary.slo_ms)}; "
        f"{summary.slo_target * 100:.6g}% should be. <b>{then}.</b></p>"
    )


def _missing(summary: Summary) -> str:
    if not summary.gaps:
        return ""
    many = f"{summary.lost:,}" if summary.lost else "an unknown number of"
    return (
        f'<p class="missing" role="note">Events are missing: {many}, in {summary.gaps} gaps. They '
        "were trimmed before they were read; numbers of those times are too small.</p>"
    )


def _cards(summary: Summary) -> str:
    total = summary.total
    busiest = max((each.completed for each in summary.points), default=0)
    per = _per(summary.step_ms)
    facts = [
        ("jobs arrived", shown(total.arrivals), f"{shown(total.finished)} finished"),
        ("completed", shown(total.completed), f"at most {shown(busiest)} {per}"),
        ("given up", shown(total.dead), f"{_share(total.dead, total.finished)} of the finished"),
        ("runs that failed", _share(total.failures, total.runs),
         f"{_or_dash(total.retry_amplification)} runs per job"),
        ("in all, p95", _time(total.total_p95_ms), f"half within {_time(total.total_p50_ms)}"),
        ("handler time", lasting(total.handler_seconds * 1_000), f"{shown(total.runs)} runs"),
    ]  # fmt: skip
    cards = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd><dd>{escape(more)}</dd></div>"
        for name, value, more in facts
    )
    return f"<dl>{cards}</dl>"


def _sections(summary: Summary) -> str:
    points = summary.points
    failed = [each for each in summary.reasons if each.kind == "run"]
    dead = [each for each in summary.reasons if each.kind == "job"]
    return "".join(
        (
            _section("Throughput", _throughput(summary), f"Jobs {_per(summary.step_ms)}.",
                     "wide"),
            *(_section(title, _latency(summary, what), about, "third") for title, what, about in (
                ("How long jobs waited", "wait", "In the queue, before a run."),
                ("How long runs took", "run", "In the handler."),
                ("How long jobs took in all", "total", "From being added to being finished."),
            )),
            _section("Why runs failed", _reasons(failed), "Failed runs by error."),
            _section("Why jobs were given up", _reasons(dead), "Dead letters by reason and error."),
            _section("Slowest names", _slowest(summary),
                     "95 of 100 runs took at most so long; the strong part is the median.", "wide"),
            _section("Busy hours", _heat_map(summary), "Jobs completed in each hour, UTC.", "wide"),
            _section("By name", _by_name(summary), "Those that cost most first.", "wide"),
            _section("Step by step", _by_step(points, summary.step_ms), "", "wide"),
        )
    )  # fmt: skip


def _throughput(summary: Summary) -> str:
    points = summary.points
    series = [
        Series("completed", "green", [each.completed for each in points], is_column=True),
        Series("given up", "red", [each.dead for each in points], is_column=True),
        Series("arrived", "plain", [each.arrivals for each in points]),
    ]
    largest = [float(max(each.finished, each.arrivals)) for each in points]
    busiest = max(points, key=lambda each: each.completed)
    says = (
        f"Throughput: {summary.total.completed:,} jobs completed, {summary.total.dead:,} given up; "
        f"most completed at {busiest.at:%d %b %H:%M}: {busiest.completed:,}."
    )
    return over_time(series, _frame(summary, axes.counts(largest), shown), says)


def _latency(summary: Summary, what: str) -> str:
    series = [
        Series(f"p{percent}", colour, [getattr(each, f"{what}_p{percent}_ms")
               for each in summary.points])
        for percent, colour in _PERCENTS
    ]  # fmt: skip
    scale = axes.durations([value for each in series for value in each.values if value is not None])
    told = ", ".join(
        f"p{percent} {_time(getattr(summary.total, f'{what}_p{percent}_ms'))}"
        for percent, _ in _PERCENTS
    )
    drawn = over_time(series, _frame(summary, scale, lasting), f"{what}: {told}")
    about_scale = " The scale is logarithmic." if scale.is_log else ""
    return f"{drawn}<p>Over the whole time: {escape(told)}.{about_scale}</p>"


def _reasons(found: Sequence[Reason]) -> str:
    if not found:
        return "<p>None.</p>"
    rows = [
        Bar(each.error or "(no message)", float(each.failures), shown(each.failures),
            " · ".join(filter(None, (each.reason.replace("_", " ") if each.kind == "job" else "",
                                     ", ".join(map(_called, each.names))))))
        for each in found[:_REASONS]
    ]  # fmt: skip
    left = len(found) - len(rows)
    return bars(rows, "red") + (f"<p>And {left} more kinds.</p>" if left else "")


def _slowest(summary: Summary) -> str:
    ran = [each for each in summary.names if each.run_p95_ms is not None]
    if not ran:
        return "<p>Nothing ran.</p>"
    slowest = sorted(ran, key=lambda each: -(each.run_p95_ms or 0.0))[:_SLOWEST]
    rows = [
        Bar(_named(each.queue, each.name), each.run_p95_ms or 0.0, _time(each.run_p95_ms),
            f"median {_time(each.run_p50_ms)} · p99 {_time(each.run_p99_ms)} · "
            f"{shown(each.runs)} runs", inner=each.run_p50_ms)
        for each in slowest
    ]  # fmt: skip
    return bars(rows, "blue")


def _heat_map(summary: Summary) -> str:
    if not summary.hours:
        return "<p>Nothing completed.</p>"
    first, last = summary.hours[0][0], summary.hours[-1][0]
    cells = dict(summary.hours)
    last_day = last.replace(hour=0)
    days = [last_day - timedelta(days=back) for back in reversed(range(_HEAT_DAYS))]
    rows = [
        (f"{day:%a} {day.day} {day:%b}", [
            float(cells.get(at, 0)) if first <= at <= last else None
            for at in (day + timedelta(hours=hour) for hour in range(24))
        ])
        for day in days if day + timedelta(days=1) > first
    ]  # fmt: skip
    return heat(rows, "green", "jobs")


def _by_name(summary: Summary) -> str:
    heads = ("queue / name", "arrived", "completed", "given up", "per min", "wait p95", "run p50",
             "run p95", "run p99", "in all p95", "failed", "runs per job", "handler time",
             "SLO burn")  # fmt: skip
    rows = [
        (_named(each.queue, each.name), shown(each.arrivals), shown(each.completed),
         shown(each.dead), shown(each.throughput_per_s * 60), _time(each.wait_p95_ms),
         _time(each.run_p50_ms), _time(each.run_p95_ms), _time(each.run_p99_ms),
         _time(each.total_p95_ms), _share(each.failures, each.runs),
         _or_dash(each.retry_amplification), lasting(each.handler_seconds * 1_000),
         _or_dash(each.slo_burn))
        for each in summary.names[:_SHOWN_NAMES]
    ]  # fmt: skip
    left = len(summary.names) - len(rows)
    return table(heads, rows) + (f"<p>And {left} more names.</p>" if left else "")


def _by_step(points: Sequence[Point], step_ms: int) -> str:
    """The figures of the charts in words: for those who do not see them, and for copying."""
    heads = (_per(step_ms), "arrived", "completed", "given up", "failed runs",
             *(f"{what} p{percent}" for what in ("wait", "run", "in all")
               for percent, _ in _PERCENTS))  # fmt: skip
    rows = [
        (f"{each.at:%Y-%m-%d %H:%M}" + ("" if each.is_complete else " (events missing)"),
         *(shown(number) for number in (each.arrivals, each.completed, each.dead, each.failures)),
         *(_time(getattr(each, f"{what}_p{percent}_ms")) for what in ("wait", "run", "total")
           for percent, _ in _PERCENTS))
        for each in points
    ]  # fmt: skip
    return f"<details><summary>The figures of the charts</summary>{table(heads, rows)}</details>"


def _frame(summary: Summary, scale: axes.Scale, words: axes.Words) -> Frame:
    at = [each.at for each in summary.points]
    form = "%a %d %b %Y" if summary.step_ms >= DAY_MS else "%a %d %b, %H:%M"
    return Frame([each.strftime(form) for each in at], axes.times(at, summary.step_ms), scale,
                 words)  # fmt: skip


def _section(title: str, inside: str, about: str, kind: str = "") -> str:
    told = f"<p>{escape(about)}</p>" if about else ""
    return f'<section class="{kind}"><h2>{escape(title)}</h2>{told}{inside}</section>'


def _per(step_ms: int) -> str:
    """`per hour`, `per 15 min`."""
    return _PER.get(step_ms, f"per {lasting(step_ms)}")


def _instant(at: datetime) -> str:
    return f"{at.day} {at:%b %Y, %H:%M}"


def _called(queue_and_name: str) -> str:
    queue, _, name = queue_and_name.partition("/")
    return _named(queue, name)


def _named(queue: str, name: str) -> str:
    return f"{queue} / {name or '(no name)'}"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else _DASH


def _time(ms: float | None) -> str:
    return _DASH if ms is None else lasting(ms)


def _or_dash(value: float | None) -> str:
    return _DASH if value is None else shown(value)
