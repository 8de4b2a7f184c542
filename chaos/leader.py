"""A process that only leads: a promoter or a scheduler, without a worker around it."""

import asyncio
import logging
import signal

from chaos.process import Life, Orders
from chasquimq.engine import Promoter, Scheduler


async def main(orders: Orders) -> None:
    """Lead, or wait to, until SIGTERM."""
    life = Life(orders)
    life.obey(lambda _: None)
    kind = Promoter if (orders.settings or {})["leads"] == "promoter" else Scheduler
    leader: Promoter | Scheduler = kind(orders.url, orders.queue, holder_id=orders.who)
    life.begin(orders.who)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await leader.run(stop)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message).300s")
    asyncio.run(main(Orders.given()))
