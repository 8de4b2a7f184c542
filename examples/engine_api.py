"""The engine-level API: bytes in, bytes out, and each part of a worker on its own."""

import asyncio
import json
from datetime import timedelta

from chasquimq import engine

URL, QUEUE = "embedded://", "orders"
TWICE = engine.JobRetryOverride(2, engine.BackoffSpec.fixed(timedelta(milliseconds=10)))


class Shop:
    """Payloads are whatever both sides agree on; here JSON."""

    def __init__(self) -> None:
        """Nothing is sold yet."""
        self.sold: asyncio.Queue[str] = asyncio.Queue()

    async def sell(self, job: engine.Job) -> bytes:
        """What an order costs."""
        order = json.loads(job.payload)
        print(f"{order} in run {job.attempt}")
        if order["items"] == 0:
            problem = ValueError("an empty order")
            raise engine.HandlerError.unrecoverable(problem)
        if job.attempt == 1 and job.retry is not None:
            message = "the shop is closed"
            raise ConnectionError(message)
        self.sold.put_nowait(job.id)
        return json.dumps({"total": 5 * order["items"]}).encode()


async def main() -> None:
    """Add orders now and later, run them, read results and dead letters."""
    producer = await engine.Producer.connect(URL, engine.ProducerConfig(queue_name=QUEUE))
    plain, _ = await producer.add_bulk([b'{"items": 1}', b'{"items": 0}'])
    flaky = await producer.add_with_options(b'{"items": 2}', engine.AddOptions(retry=TWICE))
    late = await producer.add_in(timedelta(milliseconds=100), b'{"items": 3}')

    # A consumer has a promoter inside; here it stands beside.
    shop, stop = Shop(), asyncio.Event()
    config = engine.ConsumerConfig(queue_name=QUEUE, store_results=True, delayed_enabled=False)
    consumer = engine.Consumer.from_config(URL, config)
    running = asyncio.gather(consumer.run(shop.sell, stop), engine.Promoter(URL, QUEUE).run(stop))
    for _ in (plain, flaky, late):
        await shop.sold.get()
    stop.set()
    await running
    print("results:", await producer.get_result_bulk([plain, flaky, late]))
    print("dead:", [(entry.reason, entry.error) for entry in await producer.peek_dlq()])
    await producer.close()


asyncio.run(main())
