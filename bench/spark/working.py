"""Jobs worked off by a fleet of two slots, beside two processes without Spark.

What is timed is the same for all: from the moment the queue begins to shrink until it is empty, as
the server sees it. So the start of processes and of the query does not count, and what is between
two stints does.
"""

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from bench.draining import drained_s
from bench.rounds import Rival
from bench.spark.data import fill_jobs
from bench.spark.ground import Ground, Match, Target
from chasquimq.spark import SparkWorker

_ROOT = Path(__file__).parents[2]
_PROCESSES = 2
_CONCURRENCY = 100


def match(ground: Ground) -> Match:
    """Name who works; each finds the same jobs waiting."""

    def fill() -> None:
        ground.forget()
        fill_jobs(ground.url, ground.queue, ground.rows)

    return Match(
        [
            Rival("2 blocking loops", lambda: _native(ground, "blocking_worker", []), prepare=fill),
            Rival(
                "2 workers",
                lambda: _native(ground, "native_worker", [str(_CONCURRENCY)]),
                prepare=fill,
            ),
            Rival("fleet of 2 slots", lambda: _fleet(ground), prepare=fill),
            Rival("fleet, batches", lambda: _fleet(ground, batch=True), prepare=fill),
        ],
        [Target("fleet of 2 slots", 0.7), Target("fleet, batches", 0.7)],
    )


def _native(ground: Ground, module: str, more: list[str]) -> float:
    command = [sys.executable, "-m", f"bench.spark.{module}", ground.url, ground.queue]
    workers = [
        subprocess.Popen(
            [*command, f"native-{number}", *more],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(_PROCESSES)
    ]
    try:
        for each in workers:
            assert each.stdout is not None  # noqa: S101 -- a pipe, as asked for
            if not each.stdout.readline():
                msg = f"bench.spark.{module} did not start"
                raise RuntimeError(msg)

        def go() -> None:
            for each in workers:
                assert each.stdin is not None  # noqa: S101 -- the same
                each.stdin.write("go\n")
                each.stdin.flush()

        return _drained_s(ground, go)
    finally:
        for each in workers:
            each.communicate()


def _fleet(ground: Ground, *, batch: bool = False) -> float:
    fleet = SparkWorker(
        ground.queue,
        "bench.spark.handlers:" + ("nothing_at_all" if batch else "nothing"),
        spark=ground.spark,
        redis_url=ground.url,
        slots=_PROCESSES,
        concurrency=2 if batch else _CONCURRENCY,
        batch="arrow" if batch else None,
        app_dir=str(_ROOT),
    )
    running = threading.Thread(target=lambda: fleet.run(until_idle=True), name="fleet")
    try:
        return _drained_s(ground, running.start)
    finally:
        fleet.stop()
        running.join()


def _drained_s(ground: Ground, go: Callable[[], object]) -> float:
    return drained_s(lambda: int(ground.client.run("XLEN", ground.keys.stream)), go)
