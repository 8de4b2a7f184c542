"""A worker process: does as the data of its jobs says, and writes it all down."""

import asyncio
import logging
import random
import time
from collections.abc import Callable
from typing import Any

from chaos.clocks import now_ms, now_us
from chaos.history import Blocked, Ended, Started
from chaos.process import Life, Orders
from chaos.steps import Steps
from chasquimq import ChasquiError, Job, RetryConfig, UnrecoverableError, Worker
from chasquimq.wire.keys import QueueKeys

_TELLS = 0.1


class Play:
    """What the jobs do, and the orders of the nemesis."""

    def __init__(self, orders: Orders) -> None:
        """Begin to take orders."""
        self._orders = orders
        self.life = Life(orders)
        self.steps = Steps(self.life.die)
        self._runs = 0
        self._chance = random.Random(orders.seed)
        self._loop = asyncio.get_running_loop()
        self.life.obey(self._obey)

    def _obey(self, order: str) -> None:
        verb, _, rest = order.partition(" ")
        if verb == "die":
            self.steps.arm(rest)
        elif verb == "live":
            self.steps.arm("")
        elif verb == "block":
            self._loop.call_soon_threadsafe(self._block, float(rest))

    def _block(self, seconds: float) -> None:
        now = now_us()
        self.life.scroll.write(Blocked(now, now + round(seconds * 1_000_000), self._orders.who))
        time.sleep(seconds)

    async def act(self, job: Job) -> Any:  # noqa: ANN401 -- what a handler returns
        """Do what the job's data says, in the event loop."""
        end = self._begin(job)
        try:
            if self._chance.random() < _TELLS:
                await self._tell(job)
            await asyncio.sleep(job.data["takes_ms"] / 1_000)
        except asyncio.CancelledError:
            end("cancelled")
            raise
        return self._finish(job, end)

    def act_plainly(self, job: Job) -> Any:  # noqa: ANN401 -- what a handler returns
        """Do it in a thread."""
        end = self._begin(job)
        time.sleep(job.data["takes_ms"] / 1_000)
        return self._finish(job, end)

    async def _tell(self, job: Job) -> None:
        try:
            await job.update_progress(50)
            await job.log("half way")
        except ChasquiError:
            return  # a broken connection may cost them; it must not cost the job

    def _begin(self, job: Job) -> Callable[[str], None]:
        """Write down that it has begun; what is returned writes down how it ended."""
        self._runs += 1
        run = f"{self._orders.who}#{self._runs}"
        data = job.data
        began = Started(
            now_us(), now_ms(), run, self._orders.who, job.id, data["call"], job.attempt,
            data["budget"],
        )  # fmt: skip
        self.life.scroll.write(began)
        if data["ends"] == "die":
            self.life.die()
        self.steps.reached("in-handler")
        returns = data["returns"]
        return lambda how: self.life.scroll.write(
            Ended(now_us(), run, how, has_value=returns and how == "ok")
        )

    @staticmethod
    def _finish(job: Job, end: Callable[[str], None]) -> Any:  # noqa: ANN401
        if job.attempt <= job.data["fails"]:
            end("failed")
            message = "not yet"
            raise RuntimeError(message)
        if job.data["ends"] == "hopeless":
            end("hopeless")
            message = "never"
            raise UnrecoverableError(message)
        end("ok")
        return {"call": job.data["call"]} if job.data["returns"] else None


async def main(orders: Orders) -> None:
    """Work until SIGTERM."""
    play = Play(orders)
    settings = dict(orders.settings or {})
    handler = play.act_plainly if settings.pop("plain") else play.act
    worker = Worker(
        orders.queue,
        handler,
        redis_url=orders.url,
        consumer_id=settings.pop("consumer_id"),
        retry=RetryConfig(initial_backoff_ms=20, max_backoff_ms=400, jitter_ms=10),
        metrics=play.steps,
        **settings,
    )
    play.steps.watch_flushes(QueueKeys(orders.queue).stream)
    # Its scheduler's token is its own affair, and nobody else's.
    holder = worker._config.scheduler.holder_id  # noqa: SLF001
    play.life.begin(holder, keeps_results=settings["store_results"])
    await worker.run()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message).300s")
    asyncio.run(main(Orders.given()))
