"""A worker process of a flood: takes its time for each job, and notes how late new ones are."""

import asyncio
import logging
from pathlib import Path

from chaos.clocks import now_ms
from chaos.process import Life, Orders
from chasquimq import Job, Worker

NEW = "new"


async def main(orders: Orders) -> None:
    """Work until SIGTERM."""
    settings = dict(orders.settings or {})
    takes_s = settings.pop("takes_ms") / 1_000
    Life(orders).obey(lambda _: None)
    with Path(orders.history).with_suffix(".late").open("a", buffering=1) as lateness:

        async def act(job: Job) -> None:
            if job.name == NEW:
                sent_ms = job.data
                lateness.write(f"{sent_ms} {now_ms() - sent_ms}\n")
            if takes_s:
                await asyncio.sleep(takes_s)

        await Worker(orders.queue, act, redis_url=orders.url, **settings).run()


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    asyncio.run(main(Orders.given()))
