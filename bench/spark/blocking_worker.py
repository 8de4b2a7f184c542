"""The least a worker can do without Spark: read many, call the handler, complete many; blocking.

A program of its own, started by the comparison of fleets. It says `ready`, and begins when it is
told to. It renews no lease, retries nothing and knows no pause: it is a limit, not a worker to use.
"""

import sys

from bench.spark.handlers import nothing_at_all
from chasquimq.broker import stream
from chasquimq.broker.blocking import BlockingConnection
from chasquimq.broker.options import ConnectionOptions
from chasquimq.broker.stream import Completion, Delivery, ResultKeeping, StartedRow, Telling
from chasquimq.broker.url import parse_url
from chasquimq.clock import SYSTEM_CLOCK
from chasquimq.config import ConsumerConfig
from chasquimq.wire.envelope import decode
from chasquimq.wire.keys import QueueKeys

_BATCH = 1_000


def main(url: str, queue: str, consumer: str) -> None:
    """Work until nothing is left."""
    keys, config = QueueKeys(queue), ConsumerConfig()
    connection = BlockingConnection(parse_url(url), ConnectionOptions(), slot_key=keys.tag)
    has_xackdel = connection.ready().has_xackdel
    connection.run(stream.join(keys, config.group))
    print("ready", flush=True)
    sys.stdin.readline()
    while True:
        taken = connection.run(
            stream.read(
                keys, config.group, consumer, count=_BATCH, block_ms=0, claim_min_idle_ms=None
            )
        )
        if not taken:
            break
        runs = [_run(each) for each in taken]
        connection.run(
            stream.complete(
                keys,
                config.group,
                [done for _, done in runs],
                has_xackdel=has_xackdel,
                keeping=ResultKeeping(),
                telling=Telling(SYSTEM_CLOCK.now_ms(), config.events_max_stream_len),
                started=[began for began, _ in runs],
            )
        )
    connection.close()


def _run(delivery: Delivery) -> tuple[StartedRow, Completion]:
    envelope = decode(delivery.data or b"")
    now_ms, began_us = SYSTEM_CLOCK.now_ms(), SYSTEM_CLOCK.monotonic_us()
    nothing_at_all(envelope)
    took_us = SYSTEM_CLOCK.monotonic_us() - began_us
    wait_ms = max(0, now_ms - envelope.created_at_ms)
    began = (envelope.id, delivery.name, now_ms, 1, wait_ms, envelope.created_at_ms)
    return began, Completion(delivery.entry_id, envelope.id, delivery.name, 1, took_us)


if __name__ == "__main__":
    main(*sys.argv[1:])
