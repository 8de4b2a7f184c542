"""Runs the handler of `chasqui worker --engine spark` on Spark, one fleet for each queue."""

import logging
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from chasquimq.broker.url import parse_url
from chasquimq.cli.loading import LoadError, load
from chasquimq.cli.serving import Ready, Settings, queue_names
from chasquimq.cli.spark import spark_settings, start, told_in_a_line
from chasquimq.given import chosen
from chasquimq.sync_queue import SyncQueue

if TYPE_CHECKING:
    from chasquimq.spark import SparkWorker

log = logging.getLogger("chasquimq.cli")

# Between two looks at the fleets, in which signals are heard.
_LOOK_S = 0.2


def run_fleet(
    settings: Settings,
    fleet: dict[str, Any],
    *,
    conf: dict[str, str],
    is_verbose: bool,
    greet: Callable[[Ready], None],
) -> int:
    """Work until a signal, or with `--burst` until nothing is left; what a fleet raises ends all.

    `fleet` has arguments of `SparkWorker` that `Worker` does not have.

    The handler is loaded and the server asked first: Spark takes seconds to start, and would tell
    what is wrong with either in a hundred lines.
    """
    try:
        loaded = load(settings.target, settings.app_dir)
    except LoadError as error:
        sys.stderr.write(error.details)
        raise
    try:
        from chasquimq.spark import SparkWorker  # noqa: PLC0415 -- an extra
        from chasquimq.spark.session import running  # noqa: PLC0415 -- the same
    except ModuleNotFoundError as error:
        msg = f"--engine spark needs {error.name}: run  pip install pyspark pyarrow"
        raise click.UsageError(msg) from None
    url = settings.redis_url or (loaded.app.redis_url if loaded.app is not None else None)
    names = queue_names(settings, loaded)
    for name in names:
        with SyncQueue(name, redis_url=url) as queue:
            queue.counts()
    given = chosen(redis_url=url, **settings.options, **fleet)
    fleets = [
        SparkWorker(name, settings.target, app_dir=str(Path(settings.app_dir).resolve()), **given)
        for name in names
    ]
    with told_in_a_line(is_verbose=is_verbose):
        if (before := running()) is None:
            log.info("starting Spark, which takes some seconds")
        spark = before or start(
            "chasqui worker",
            spark_settings(conf, is_verbose=is_verbose),
            is_verbose=is_verbose,
            is_heard=True,
        )
        try:
            greet(Ready(str(loaded), names, parse_url(url).safe_text))
            _run(fleets, is_burst=settings.is_burst)
        finally:
            if before is None:
                spark.stop()
    return 0


def _run(fleets: "list[SparkWorker]", *, is_burst: bool) -> None:
    with _stopped_by_signals(fleets), ThreadPoolExecutor(len(fleets)) as threads:
        runs = [threads.submit(each.run, until_idle=is_burst) for each in fleets]
        left = set(runs)
        while left:
            done, left = wait(left, timeout=_LOOK_S, return_when=FIRST_COMPLETED)
            if any(run.exception() is not None for run in done):
                for fleet in fleets:
                    fleet.stop()
    for run in runs:
        run.result()


@contextmanager
def _stopped_by_signals(fleets: "list[SparkWorker]") -> Iterator[None]:
    """SIGTERM and SIGINT let running jobs finish; the second time tasks are cancelled."""
    heard: list[int] = []

    def hear(number: int, _: object) -> None:
        heard.append(number)
        for fleet in fleets:
            fleet.stop(force=len(heard) > 1)

    before = {each: signal.signal(each, hear) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
