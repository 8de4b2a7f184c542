"""A worker process of a soak: does as the name of a job says, and keeps the ledger of the ends."""

import asyncio
import logging
import random
from pathlib import Path
from typing import Any

from chaos.process import Life, Orders
from chaos.soak.ledger import ENDED, Ledger
from chasquimq import ChasquiError, Job, RetryConfig, UnrecoverableError, Worker

_TELLS = 0.1
_TAKES_S = (0.0, 0.01)


class Play:
    """What the jobs do."""

    def __init__(self, orders: Orders) -> None:
        """Begin to watch the standard input, whose end is the end of this process."""
        Life(orders).obey(lambda _: None)
        self._ledger = Ledger(Path(orders.history).with_suffix(f".{ENDED}"))
        self._chance = random.Random(orders.seed)

    async def act(self, job: Job) -> Any:  # noqa: ANN401 -- what a handler returns
        """Take a moment, and end as the job's name says."""
        if self._chance.random() < _TELLS:
            try:
                await job.update_progress(50)
                await job.log("half way")
            except ChasquiError:
                pass  # a broken connection may cost them; it must not cost the job
        await asyncio.sleep(self._chance.uniform(*_TAKES_S))
        if job.name == "flaky" and job.attempt == 1:
            message = "not yet"
            raise RuntimeError(message)
        if job.data["number"] is not None:  # it was added, and not fired
            self._ledger.write(job.data["number"])
        if job.name == "hopeless":
            message = "never"
            raise UnrecoverableError(message)
        return {"number": job.data["number"]}


async def main(orders: Orders) -> None:
    """Work until SIGTERM."""
    worker = Worker(
        orders.queue,
        Play(orders).act,
        redis_url=orders.url,
        retry=RetryConfig(initial_backoff_ms=20, max_backoff_ms=400, jitter_ms=10),
        store_results=True,
        **orders.settings or {},
    )
    await worker.run()


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    asyncio.run(main(Orders.given()))
