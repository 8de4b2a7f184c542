"""Summaries by hand, for the page and the terminal: small ones, and one that fills all charts."""

import math
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from chasquimq.pipeline.instants import HOUR_MS, MINUTE_MS
from chasquimq.pipeline.summary import Figures, Named, Point, Reason, Summary

START = datetime(2026, 1, 31, 9, tzinfo=UTC)


def some_figures(**changes: Any) -> dict[str, Any]:
    """What 50 jobs came to."""
    values: dict[str, Any] = {
        "arrivals": 50, "runs": 60, "completed": 40, "dead": 5, "failures": 15, "retries": 10,
        "throughput_per_s": 40 / 300, "wait_p50_ms": 1.0, "wait_p95_ms": 5.0, "wait_p99_ms": 9.0,
        "run_p50_ms": 2.0, "run_p95_ms": 7.0, "run_p99_ms": None, "total_p50_ms": 4.0,
        "total_p95_ms": 40.0, "total_p99_ms": 400.0, "failure_rate": 0.25,
        "retry_amplification": 1.2, "handler_seconds": 1.5, "slo_good": 36, "slo_burn": 20.0,
    }  # fmt: skip
    return values | changes


def a_summary(**changes: Any) -> Summary:
    """Five minutes of one name."""
    values: dict[str, Any] = {
        "step_ms": MINUTE_MS,
        "points": tuple(
            Point(at=START + timedelta(minutes=minute), **some_figures(arrivals=10, completed=8))
            for minute in range(5)
        ),
        "total": Figures(**some_figures()),
        "names": (Named(queue="q", name="<b>ship</b>", **some_figures()),),
        "reasons": (Reason("job", "unrecoverable", "<script>alert(1)</script>", 5, ("q/ship",)),),
        "hours": ((START, 40),),
        "lost": 0,
        "gaps": 0,
        "slo_ms": 60_000,
        "slo_target": 0.99,
    }
    return Summary(**values | changes)


NOTHING = {
    "points": (), "total": Figures(), "names": (), "reasons": (), "hours": (), "slo_ms": None,
    "slo_target": None,
}  # fmt: skip
"""What is different where nothing has happened."""


def a_full_summary(seed: int = 7) -> Summary:
    """Four days of many names, some of them long, with all that a page can show."""
    chance = Random(seed)  # noqa: S311 -- numbers to look at, not a secret
    hours = [START + timedelta(hours=hour) for hour in range(96)]
    points = [
        Point(at=at, **some_figures(
            arrivals=(busy := round(5_000 * math.exp(-(((at.hour - 14) / 5) ** 2)) + 40)),
            completed=busy - (dead := chance.randrange(1 + busy // 20)), dead=dead, runs=busy,
            failures=2 * dead, **_times(chance),
        ), is_complete=at.hour != 3)
        for at in hours
    ]  # fmt: skip
    of_all = {name: sum(getattr(each, name) for each in points)
              for name in ("arrivals", "completed", "dead", "runs", "failures")}  # fmt: skip
    names = [
        Named(queue=queue, name=name, **some_figures(runs=1_200 * at, arrivals=1_100 * at,
              completed=1_090 * at, handler_seconds=4_000.0 / at, **_times(chance, 900 / at)))
        for at, (queue, name) in enumerate(
            [("emails", "welcome"), ("emails", ""), ("reports", "a-name-that-is-" + "long-" * 12),
             *(("media", f"thumbnail-{size}") for size in range(36))], start=1)
    ]  # fmt: skip
    reasons = [
        Reason("run" if at % 3 else "job", "retries_exhausted", error, 900 // at,
               ("emails/welcome", "media/thumbnail-1"))
        for at, error in enumerate(
            ["SMTPServerDisconnected: connection lost", "KeyError: 'tax_number'",
             "ValueError: " + "no word is as long as this one, " * 8, None,
             *(f"TimeoutError: after {at} s" for at in range(12))], start=1)
    ]  # fmt: skip
    return a_summary(
        step_ms=HOUR_MS, points=tuple(points),
        total=Figures(**some_figures(**of_all, slo_good=round(of_all["completed"] * 0.97),
                                     slo_burn=5.4, handler_seconds=16_000.0, **_times(chance))),
        names=tuple(names), reasons=tuple(reasons),
        hours=tuple((each.at, each.completed) for each in points), gaps=4, lost=1_234,
    )  # fmt: skip


def _times(chance: Random, scale: float = 1.0) -> dict[str, float]:
    return {
        f"{what}_p{percent}_ms": scale * median * factor * chance.uniform(0.8, 1.3)
        for what, median in (("wait", 35), ("run", 210), ("total", 280))
        for percent, factor in ((50, 1), (95, 8), (99, 40))
    }
