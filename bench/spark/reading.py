"""Events read in a batch to nothing, and as a stream to Parquet, beside one raw reader."""

import shutil

from bench.rounds import Rival
from bench.spark.data import fill_events
from bench.spark.ground import Ground, Match, Target

_FETCH = 5_000  # as the option `fetchCount` has it
_TRIGGER = 500_000


def match(ground: Ground) -> Match:
    """Write the events, and name who reads them."""
    fill_events(ground.client, ground.queue, ground.rows)
    return Match(
        [
            Rival("raw reader", lambda: _raw(ground)),
            Rival("batch to nothing", lambda: _batch(ground)),
            Rival("stream to Parquet", lambda: _stream(ground)),
        ],
        [Target("batch to nothing", 0.65), Target("stream to Parquet", 0.2)],
    )


def _raw(ground: Ground) -> None:
    """One connection, hiredis, the same pages; what comes is counted and dropped."""
    stream, after, found = ground.keys.events, b"-", 0
    while True:
        page = ground.client.run("XRANGE", stream, after, "+", "COUNT", _FETCH)
        found += len(page)
        if len(page) < _FETCH:
            break
        after = b"(" + page[-1][0]
    _require(found, ground.rows)


def _options(ground: Ground) -> dict[str, str]:
    return {"redis_url": ground.url, "queue": ground.queue}


def _batch(ground: Ground) -> None:
    frame = ground.spark.read.format("chasquimq_events").options(**_options(ground)).load()
    frame.write.format("noop").mode("overwrite").save()


def _stream(ground: Ground) -> None:
    """All events from a new checkpoint, in micro-batches; the start of the query is counted."""
    folder = ground.new_folder()
    frame = (
        ground.spark.readStream.format("chasquimq_events")
        .options(**_options(ground))
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", _TRIGGER)
        .load()
    )
    query = (
        frame.writeStream.format("parquet")
        .option("path", f"{folder}/lake")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = sum(each["numInputRows"] for each in query.recentProgress)
    shutil.rmtree(folder)
    _require(found, ground.rows)


def _require(found: int, rows: int) -> None:
    if found != rows:
        msg = f"{found} rows were read, there are {rows}"
        raise RuntimeError(msg)
