"""Rows written as jobs by the sink, beside the raw client that sends jobs ready-made."""

import time
import uuid
from collections.abc import Iterator

from bench.rounds import Rival
from bench.spark.ground import Ground, Match, Target
from chasquimq.broker import runs, stream
from chasquimq.broker.blocking import BlockingConnection
from chasquimq.broker.options import ConnectionOptions
from chasquimq.broker.runs import Memory, RunJob
from chasquimq.broker.stream import Telling
from chasquimq.broker.url import parse_url
from chasquimq.clock import SYSTEM_CLOCK
from chasquimq.spark.options import SinkOptions
from chasquimq.wire.codec import pack
from chasquimq.wire.envelope import encode_job


def match(ground: Ground) -> Match:
    """Name who writes; each writes to an empty queue."""
    return Match(
        [
            Rival("raw chunked write", lambda: _raw(ground), prepare=ground.forget),
            Rival("sink", lambda: _sink(ground), prepare=ground.forget),
        ],
        [Target("sink", 0.6)],
    )


def _raw(ground: Ground) -> float:
    """One blocking connection, the sink's own script and chunks; only the calls are timed."""
    options = SinkOptions(target=parse_url(ground.url), queues=(ground.queue,))
    keys = ground.keys
    connection = BlockingConnection(options.target, ConnectionOptions(), slot_key=keys.tag)
    connection.ready()
    memory, run_id, took_s = Memory(options.dedup_ttl_s, 3_600), uuid.uuid4().hex, 0.0
    for chunk in _chunks(ground.rows, options.chunk_rows):
        began_s = time.perf_counter()
        telling = Telling(SYSTEM_CLOCK.now_ms(), options.events_cap)
        call = runs.add(keys, run_id, chunk, limit=ground.rows + 1, memory=memory, telling=telling)
        connection.run(call)
        took_s += time.perf_counter() - began_s
    _require(connection.run(stream.depth(keys)), ground.rows)
    connection.close()
    return took_s


def _chunks(rows: int, size: int) -> Iterator[list[RunJob]]:
    """The very jobs that the sink makes of its rows, with ids of the same length."""
    now_ms = SYSTEM_CLOCK.now_ms()
    for first in range(0, rows, size):
        chunk = []
        for number in range(first, min(rows, first + size)):
            payload = pack({"number": number, "who": f"customer-{number % 1000}", "due": 3.5})
            job_id = f"s-{number:020d}"
            chunk.append(RunJob(job_id, encode_job(job_id, payload, now_ms), "bill"))
        yield chunk


def _sink(ground: Ground) -> None:
    rows = ground.spark.range(0, ground.rows, 1, 2).selectExpr(
        "'bill' as name",
        "id as number",
        "concat('customer-', id % 1000) as who",
        "3.5d as due",
    )
    options = {"redis_url": ground.url, "queue": ground.queue, "maxStreamLen": str(ground.rows + 1)}
    rows.write.format("chasquimq").options(**options).mode("append").save()
    _require(ground.client.run("XLEN", ground.keys.stream), ground.rows)


def _require(found: int, rows: int) -> None:
    if found != rows:
        msg = f"{found} jobs were added, there should be {rows}"
        raise RuntimeError(msg)
