"""Events taken through all tables batch by batch, beside one computation of all tables at once."""

import shutil

from bench.rounds import Rival
from bench.spark.data import fill_events
from bench.spark.ground import Ground, Match, Target
from chasquimq.pipeline import Pipeline

_BATCH = 200_000  # as `Pipeline.run` has it


def match(ground: Ground) -> Match:
    """Write the events, and fill tables once for the recomputation to start from."""
    fill_events(ground.client, ground.queue, ground.rows)
    filled = _pipeline(ground, ground.new_folder())
    _run(ground, filled, max_events=ground.rows)  # in one batch: how is not what is measured
    return Match(
        [
            Rival("full recompute", lambda: _recompute(filled)),
            Rival("incremental", lambda: _incremental(ground)),
        ],
        [Target("incremental", 0.1)],
    )


def _pipeline(ground: Ground, folder: str) -> Pipeline:
    return Pipeline(folder, spark=ground.spark)


def _run(ground: Ground, pipeline: Pipeline, *, max_events: int = _BATCH) -> None:
    done = pipeline.run([ground.queue], redis_url=ground.url, max_events=max_events)
    if done.events != ground.rows:
        msg = f"{done.events} events were taken in, there are {ground.rows}"
        raise RuntimeError(msg)


def _recompute(pipeline: Pipeline) -> None:
    """Silver and gold from bronze; the server is not asked."""
    pipeline.rebuild()


def _incremental(ground: Ground) -> None:
    """From the server, into new tables: bronze, silver, gold and the checks of each batch."""
    folder = ground.new_folder()
    _run(ground, _pipeline(ground, folder))
    shutil.rmtree(folder)
