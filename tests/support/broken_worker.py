"""A worker of `chaos` that breaks a promise, so that the checker can show that it sees it.

Its setting `breaks` says which: it `never-renews` its leases, or `acknowledges-first` and runs
afterwards what it has read.
"""

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

import redis

from chaos import worker
from chaos.process import Orders
from chasquimq.broker.stream import Delivery
from chasquimq.engine.leases import Leases
from chasquimq.wire.keys import QueueKeys


def never_renew(orders: Orders) -> None:
    """Let every lease run out."""
    Leases.step = lambda self: 0  # type: ignore[method-assign]


def acknowledge_first(orders: Orders) -> None:
    """Take what was read off the server before anything of it begins."""
    client, keys, take_all = redis.Redis.from_url(orders.url), QueueKeys(orders.queue), _TAKE_ALL

    def taken(leases: Leases, deliveries: Sequence[Delivery], at_us: int) -> list[Delivery]:
        fresh = take_all(leases, deliveries, at_us)
        for each in fresh:
            client.xack(keys.stream, "default", each.entry_id)
            client.xdel(keys.stream, each.entry_id)
        return fresh

    Leases.take_all = taken  # type: ignore[assignment, method-assign]


_TAKE_ALL = Leases.take_all
BREAKS: dict[str, Callable[[Orders], None]] = {
    "never-renews": never_renew,
    "acknowledges-first": acknowledge_first,
}


if __name__ == "__main__":
    given = Orders.given()
    settings = dict(given.settings or {})
    BREAKS[settings.pop("breaks")](given)
    sys.exit(asyncio.run(worker.main(replace(given, settings=settings))))
