"""Tells how far a long job of Spark is, in tasks, while it is under way."""

import logging
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

log = logging.getLogger("chasquimq.pipeline")

OnStep = Callable[[str], None]

_LOOK_S = 5.0
# What tells the jobs of Spark apart that a thread starts, and what its page shows of them.
_GROUP = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")


@contextmanager
def told(spark: SparkSession, doing: str, on_step: OnStep | None) -> Iterator[None]:
    """Say what begins, and every few seconds how many tasks of it are done, if some more are.

    The latter from a thread of its own; not where Spark does not tell it, as with Spark Connect.
    """
    if on_step is None:
        yield
        return
    on_step(doing)
    try:
        context = spark.sparkContext
    except PySparkException:
        yield
        return
    group, is_over = f"chasquimq {uuid.uuid4().hex}", threading.Event()
    looking = threading.Thread(
        target=_look, args=(context, group, doing, on_step, is_over), daemon=True
    )
    before = [context.getLocalProperty(name) for name in _GROUP]
    context.setJobGroup(group, doing)
    looking.start()
    try:
        yield
    finally:
        is_over.set()
        looking.join()
        for name, value in zip(_GROUP, before, strict=True):
            # None takes it away.
            context.setLocalProperty(name, value)  # type: ignore[arg-type]


def _look(
    context: SparkContext, group: str, doing: str, on_step: OnStep, is_over: threading.Event
) -> None:
    seen = 0
    while not is_over.wait(_LOOK_S):
        try:
            done, total = _tasks(context, group)
            if done > seen:
                seen = done
                on_step(f"{doing}: {done:,} of {total:,} tasks are done")
        except Exception:  # it must not end what it tells of
            log.exception("how far it is cannot be told: %s", doing)
            return


def _tasks(context: SparkContext, group: str) -> tuple[int, int]:
    """How many tasks of a group's jobs are done, and how many there are as far as is known."""
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = {stage for job in jobs if job is not None for stage in job.stageIds}
    infos = [info for stage in stages if (info := tracker.getStageInfo(stage)) is not None]
    return sum(info.numCompletedTasks for info in infos), sum(info.numTasks for info in infos)
